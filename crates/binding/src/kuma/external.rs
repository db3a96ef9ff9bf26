//! MeshExternalServices as backends: TLS, the Host header of requests, and unsupported extensions.

use std::net::IpAddr;
use std::sync::Arc;

use pointsman_resources::Kind;
use pointsman_resources::kuma::{Extension, ExternalVerification, MeshExternalService, SanMatch};

use super::backend::{HostPort, backend_at, backend_protocol};
use crate::bound::{
    Backend, BackendId, BackendTls, CertifiedKey, Endpoints, Fault, FaultReason, PeerName,
    SecretId, Trust,
};
use crate::engine::Reader;
use crate::gateway_api::certificates;
use crate::status::Condition;

/// Returns the fault of requests to a MeshExternalService that requires one of Kuma's plugins, which Pointsman does not run.
pub(crate) fn unsupported(reader: &Reader<'_>, id: &BackendId) -> Option<Fault> {
    if id.object.kind != Kind::MeshExternalService {
        return None;
    }
    let service = reader.mesh_external_service(&id.object.name)?;
    let extension = service.spec.extension.as_ref()?;
    let message = format!("{}: {}", id.object, no_extension(extension));
    Some(Fault::new(500, FaultReason::UnsupportedValue, message))
}

fn no_extension(extension: &Extension) -> String {
    let kind = &extension.kind;
    format!("spec.extension of type `{kind}` is not supported; requests get 500")
}

/// Returns the conditions of a MeshExternalService.
pub(crate) fn conditions(service: &MeshExternalService) -> Vec<Condition> {
    vec![match &service.spec.extension {
        Some(extension) => Condition::no("Accepted", "UnsupportedValue", no_extension(extension)),
        None => Condition::yes("Accepted", "Accepted", ""),
    }]
}

/// Converts a MeshExternalService to a backend.
pub(super) fn view(
    reader: &Reader<'_>,
    service: &MeshExternalService,
    id: &BackendId,
) -> Option<(Backend, Endpoints)> {
    let spec = &service.spec;
    let port = |port: Option<u16>| port.unwrap_or(spec.matched.port);
    let endpoints = spec.endpoints.iter();
    let endpoints: Vec<HostPort> = endpoints
        .map(|endpoint| (endpoint.address.clone(), port(endpoint.port)))
        .collect();
    let tls = spec.tls.as_ref().filter(|tls| tls.enabled);
    let host = endpoints.first().map(|(host, _)| host.clone());
    let tls = tls.zip(host).map(|(tls, host)| {
        backend_tls(reader, service, &tls.verification, host)
            .map(Arc::new)
            .map_err(|message| Fault {
                status: 502,
                reason: FaultReason::InvalidCertificateRef,
                message: format!("{id}: {message}"),
            })
    });
    let protocol = backend_protocol(Some(&spec.matched.protocol));
    let (mut backend, endpoints) = backend_at(id, endpoints, protocol);
    backend.tls = tls;
    Some((backend, endpoints))
}

/// Returns the TLS settings for connections to a MeshExternalService.
fn backend_tls(
    reader: &Reader<'_>,
    service: &MeshExternalService,
    verification: &ExternalVerification,
    host: String,
) -> Result<BackendTls, String> {
    let trust = match &verification.ca_cert {
        None => Trust::System,
        Some(source) => {
            let pem = certificates::read_source(reader, &service.mesh, source)?;
            let trusted = certificates::trust_anchors(&pem);
            Trust::Authorities(trusted.map_err(|why| format!("caCert {why}"))?)
        }
    };
    let client_certificate = match client_certificate(reader, service) {
        Some(found) => {
            found?;
            Some(SecretId::ExternalService(service.metadata.key()))
        }
        None => None,
    };
    let names = verification.subject_alt_names.iter();
    let names = names.map(|name| match name.kind {
        SanMatch::Prefix => PeerName::Prefix(name.value.clone()),
        SanMatch::Exact if name.value.contains("://") => PeerName::Uri(name.value.clone()),
        SanMatch::Exact => PeerName::Hostname(name.value.clone()),
    });
    Ok(BackendTls {
        hostname: verification.server_name.as_deref().unwrap_or(&host).into(),
        trust,
        names: names.collect(),
        client_certificate,
        of_mesh: false,
    })
}

/// Loads the client certificate of a MeshExternalService, if it names one.
pub(crate) fn client_certificate(
    reader: &Reader<'_>,
    service: &MeshExternalService,
) -> Option<Result<CertifiedKey, String>> {
    let verification = &service.spec.tls.as_ref()?.verification;
    let certificate = verification.client_cert.as_ref()?;
    let key = verification.client_key.as_ref()?;
    let bytes = |source| certificates::read_source(reader, &service.mesh, source);
    let parts = bytes(certificate).and_then(|certificate| Ok((certificate, bytes(key)?)));
    Some(parts.and_then(|(certificate, key)| {
        certificates::from_parts(("clientCert", &certificate), ("clientKey", &key))
    }))
}

/// Returns the Host header of requests to a MeshExternalService: the DNS name of its first endpoint, or `None` if an endpoint is an IP address.
pub(crate) fn hostname(reader: &Reader<'_>, id: &BackendId) -> Option<String> {
    if id.object.kind != Kind::MeshExternalService {
        return None;
    }
    let endpoints = &reader
        .mesh_external_service(&id.object.name)?
        .spec
        .endpoints;
    let first = endpoints.first()?;
    let is_address = |host: &str| host.parse::<IpAddr>().is_ok();
    let none = !endpoints
        .iter()
        .any(|endpoint| is_address(&endpoint.address));
    none.then(|| first.address.clone())
}
