//! Warnings about certificates in use: expired, not yet valid, about to expire, or for another host than the listener's. The time is an argument.

use std::collections::BTreeMap;
use std::sync::Arc;

use pointsman_resources::gateway::{FrontendTlsValidation, Gateway};
use pointsman_resources::kuma::{DataSource, MeshGateway, is_universal};
use pointsman_resources::meta::to_rfc3339;
use pointsman_resources::policy::BackendTlsValidation;
use pointsman_resources::refs::SecretObjectReference;
use pointsman_resources::{Kind, ObjectKey, Resource};

use crate::bound::{Hostname, SecretId};
use crate::engine::Reader;
use crate::gateway_api::certificates;
use crate::gateway_api::listener::ListenerView;
use crate::kuma::lowering::content;
use crate::x509::{self, Certificate};
use crate::{Binder, Warning};

/// Remaining validity in seconds below which a certificate is reported as about to expire.
const RENEWAL_WINDOW: i64 = 30 * 24 * 60 * 60;

/// Kinds of objects that determine the certificates in use: those that reference or contain them, or permit references.
pub const CERTIFICATE_KINDS: [Kind; 10] = [
    Kind::GatewayClass,
    Kind::Gateway,
    Kind::ListenerSet,
    Kind::BackendTLSPolicy,
    Kind::XBackend,
    Kind::MeshGateway,
    Kind::Secret,
    Kind::ConfigMap,
    Kind::ClusterTrustBundle,
    Kind::ReferenceGrant,
];

impl Binder {
    /// Returns warnings about the certificates in use at a time in Unix seconds. Evaluates every object.
    pub fn certificate_warnings(&self, now: i64) -> Vec<Warning> {
        let objects = self.store.objects.iter();
        let objects = objects.filter(|(key, _)| CERTIFICATE_KINDS.contains(&key.kind));
        let objects: BTreeMap<&ObjectKey, &Resource> = objects.collect();
        let mut checker = CertificateChecker {
            reader: Reader::new(&self.store),
            now,
            object: None,
            warnings: Vec::new(),
        };
        for (key, object) in objects {
            checker.object = Some(key.clone());
            match object {
                Resource::Gateway(gateway) => {
                    let Some(view) = self.gateways.get(&key.name) else {
                        continue;
                    };
                    checker.listeners(key, &view.listeners);
                    checker.gateway(gateway);
                }
                Resource::ListenerSet(set) => {
                    let view = self.gateways.get(&set.gateway());
                    let listeners = view.and_then(|view| view.listeners_of(key));
                    checker.listeners(key, listeners.unwrap_or_default());
                }
                Resource::BackendTLSPolicy(policy) => {
                    checker.validation(key.kind, key.namespace(), "spec", &policy.spec.validation);
                }
                Resource::XBackend(backend) => {
                    let tls = &backend.spec.tls;
                    if let Some(validation) = &tls.validation {
                        checker.validation(key.kind, key.namespace(), "spec.tls", validation);
                    }
                    if let Some(reference) = &tls.client_certificate_ref {
                        let field = "spec.tls.clientCertificateRef";
                        checker.reference(key, reference, field, None);
                    }
                }
                Resource::MeshGateway(gateway) => checker.mesh_gateway(key, gateway),
                _ => {}
            }
        }
        checker.warnings
    }
}

struct CertificateChecker<'a> {
    reader: Reader<'a>,
    now: i64,
    /// Object to which warnings refer.
    object: Option<ObjectKey>,
    warnings: Vec<Warning>,
}

impl CertificateChecker<'_> {
    fn warn(&mut self, field: &str, message: String) {
        self.warnings
            .extend(self.object.clone().map(|object| Warning {
                object,
                field: field.to_owned(),
                message,
            }));
    }

    fn listeners(&mut self, owner: &ObjectKey, listeners: &[ListenerView]) {
        for (index, listener) in listeners.iter().enumerate() {
            let tls = listener
                .spec
                .tls
                .as_ref()
                .filter(|_| listener.tls.is_some());
            let references = tls.map_or(&[][..], |tls| &tls.certificate_refs);
            for (position, reference) in references.iter().enumerate() {
                let field = format!("spec.listeners[{index}].tls.certificateRefs[{position}]");
                let hostname = listener.hostname.as_ref().map(Hostname::as_str);
                self.reference(owner, reference, &field, hostname);
            }
        }
    }

    fn gateway(&mut self, gateway: &Gateway) {
        let key = ObjectKey {
            kind: Kind::Gateway,
            name: gateway.metadata.key(),
        };
        let Some(tls) = &gateway.spec.tls else { return };
        let backend = tls.backend.as_ref();
        if let Some(reference) = backend.and_then(|tls| tls.client_certificate_ref.as_ref()) {
            let field = "spec.tls.backend.clientCertificateRef";
            self.reference(&key, reference, field, None);
        }
        let Some(frontend) = &tls.frontend else {
            return;
        };
        let default = frontend.default.validation.as_ref();
        self.clients(&key, "spec.tls.frontend.default", default);
        for (index, config) in frontend.per_port.iter().enumerate() {
            let field = format!("spec.tls.frontend.perPort[{index}].tls");
            self.clients(&key, &field, config.tls.validation.as_ref());
        }
    }

    /// Checks the CA certificates for client validation.
    fn clients(&mut self, key: &ObjectKey, of: &str, validation: Option<&FrontendTlsValidation>) {
        let references = validation.into_iter().flat_map(|v| &v.ca_certificate_refs);
        for (index, reference) in references.enumerate() {
            let parts = (
                reference.group.as_str(),
                reference.kind.as_str(),
                reference.name.as_str(),
                reference.namespace.as_deref(),
            );
            let field = format!("{of}.validation.caCertificateRefs[{index}]");
            self.authorities(key.kind, key.namespace(), &field, parts);
        }
    }

    /// Checks the CA certificates for backend validation.
    fn validation(&mut self, kind: Kind, namespace: &str, of: &str, with: &BackendTlsValidation) {
        for (index, reference) in with.ca_certificate_refs.iter().enumerate() {
            let parts = (&*reference.group, &*reference.kind, &*reference.name, None);
            let field = format!("{of}.validation.caCertificateRefs[{index}]");
            self.authorities(kind, namespace, &field, parts);
        }
    }

    fn authorities(
        &mut self,
        from: Kind,
        namespace: &str,
        field: &str,
        parts: (&str, &str, &str, Option<&str>),
    ) {
        let (_, kind, name, _) = parts;
        let anchors = certificates::resolve_authorities(&self.reader, from, namespace, parts);
        for (index, der) in anchors.into_iter().flatten().enumerate() {
            let what = format!("certificate {} of {kind} {name}", index + 1);
            self.period(&what, &der, field);
            let unusable = Certificate::read(&der).and_then(|c| x509::unusable_public_key(&c));
            if let Some(why) = unusable {
                self.warn(
                    field,
                    format!("{what} can't verify others: its key is {why}"),
                );
            }
        }
    }

    fn mesh_gateway(&mut self, key: &ObjectKey, gateway: &MeshGateway) {
        let spec = match is_universal(&gateway.metadata) {
            true => "",
            false => "spec.",
        };
        for (index, listener) in gateway.spec.conf.listeners.iter().enumerate() {
            let tls = listener.tls.as_ref().filter(|_| !listener.cross_mesh);
            let sources = tls.map_or(&[][..], |tls| &tls.certificates);
            for (position, source) in sources.iter().enumerate() {
                let field = format!("{spec}conf.listeners[{index}].tls.certificates[{position}]");
                let found = match source {
                    DataSource::Secret(name) => {
                        let found =
                            certificates::resolve_mesh_secret(&self.reader, &gateway.mesh, name);
                        found.ok().and_then(|found| self.chain(&found.id))
                    }
                    source => content(&self.reader, source)
                        .and_then(|pem| certificates::parse_certified_key(&pem))
                        .ok()
                        .map(|found| (key.to_string(), found.chain)),
                };
                if let Some((what, chain)) = found {
                    self.certificate(&what, &chain, &field, listener.hostname());
                }
            }
        }
    }

    fn reference(
        &mut self,
        from: &ObjectKey,
        reference: &SecretObjectReference,
        field: &str,
        hostname: Option<&str>,
    ) {
        let namespace = from.namespace();
        let found =
            certificates::resolve_certificate(&self.reader, from.kind, namespace, reference);
        if let Some((what, chain)) = found.ok().and_then(|found| self.chain(&found.id)) {
            self.certificate(&what, &chain, field, hostname);
        }
    }

    fn chain(&self, id: &SecretId) -> Option<(String, Vec<Arc<[u8]>>)> {
        let SecretId::Object(name) = id else {
            return None;
        };
        let key = self.reader.certificate(name)?.ok()?;
        Some((id.to_string(), key.chain.clone()))
    }

    /// Checks a chain that is presented to clients for a hostname, or to backends.
    fn certificate(&mut self, of: &str, chain: &[Arc<[u8]>], field: &str, hostname: Option<&str>) {
        for (index, der) in chain.iter().enumerate() {
            let what = match index {
                0 => format!("the certificate of {of}"),
                _ => format!("certificate {} in the chain of {of}", index + 1),
            };
            self.period(&what, der, field);
        }
        let (Some(leaf), Some(hostname)) = (chain.first(), hostname) else {
            return;
        };
        let names = x509::names(leaf).dns;
        if names.iter().any(|name| x509::dns_matches(hostname, name)) {
            return;
        }
        let version = Certificate::read(leaf).map_or(3, |certificate| certificate.version);
        let message = match (names.is_empty(), version) {
            (false, _) => format!(
                "the certificate of {of} is for {}, not for the listener's hostname {hostname}, so clients reject it",
                names.join(", ")
            ),
            (true, 1) => format!(
                "the certificate of {of} has X.509 version 1, which has no DNS names, so most clients reject it for {hostname}; \
                 `openssl req -x509 -addext subjectAltName=DNS:{hostname}` creates one of version 3"
            ),
            (true, _) => format!(
                "the certificate of {of} has no DNS name in subjectAltName, so most clients reject it for {hostname}"
            ),
        };
        self.warn(field, message);
    }

    fn period(&mut self, what: &str, der: &[u8], field: &str) {
        let validity = Certificate::read(der).and_then(|certificate| certificate.validity());
        let Some((start, end)) = validity else {
            return;
        };
        // The text must not change while the state does not, since `run` logs each warning once.
        let message = if self.now > end {
            format!("{what} expired at {}", to_rfc3339(end))
        } else if self.now < start {
            format!("{what} is not valid before {}", to_rfc3339(start))
        } else if end - self.now <= RENEWAL_WINDOW {
            let end = to_rfc3339(end);
            format!("{what} expires within 30 days, at {end}")
        } else {
            return;
        };
        self.warn(field, message);
    }
}
