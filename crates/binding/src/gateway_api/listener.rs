//! Evaluates listeners: supported kinds, references, and conflicts on a port.

use std::collections::BTreeSet;
use std::sync::Arc;

use pointsman_resources::gateway::{
    FrontendTlsValidation, FrontendValidationMode, GatewayTls, Listener, TlsMode,
};
use pointsman_resources::{Kind, Name, ObjectKey};

use crate::bound::{
    ClientValidation, Frontend, FrontendId, FrontendTls, Hostname, Protocol, SecretId,
};
use crate::engine::Reader;
use crate::gateway_api::certificates::{self, CertificateRefError};
use crate::gateway_api::grants;
use crate::status::Condition;

/// A listener of a Gateway or ListenerSet, evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenerView {
    pub id: FrontendId,
    /// The listener as written.
    pub spec: Arc<Listener>,
    /// Protocol; `None` if it is not supported.
    pub protocol: Option<Protocol>,
    pub hostname: Option<Hostname>,
    /// Kinds of routes that may attach.
    pub kinds: Vec<Kind>,
    /// Reason and message if it conflicts with another listener.
    pub conflict: Option<(&'static str, String)>,
    /// Message if its hostname overlaps that of another HTTPS listener on its port.
    pub overlap: Option<String>,
    /// Reason and message if it is not accepted.
    pub refused: Option<(&'static str, String)>,
    /// Reasons and messages about references that do not resolve, in order.
    pub unresolved: Vec<(&'static str, String)>,
    /// Certificates and client validation.
    pub tls: Option<Arc<FrontendTls>>,
    /// True if it has a valid certificate and supported route kinds, as far as it needs them.
    pub can_serve: bool,
    /// True if it does not serve traffic but reserves its port and hostname, so that no other listener gets their requests.
    pub reserves_hostname: bool,
}

impl ListenerView {
    pub fn is_accepted(&self) -> bool {
        self.refused.is_none() && self.conflict.is_none()
    }

    /// Returns whether it serves traffic.
    pub fn is_programmed(&self) -> bool {
        self.is_accepted() && self.can_serve
    }

    /// Returns the frontend of the listener, if it serves traffic or reserves its port and hostname.
    pub fn frontend(&self, client_certificate: Option<&SecretId>) -> Option<Frontend> {
        let closed = match (self.is_programmed(), self.reserves_hostname) {
            (true, _) => None,
            (false, true) => Some(grants::sentence(self.fault()?.1).into()),
            (false, false) => return None,
        };
        let serves = closed.is_none();
        Some(Frontend {
            hostname: self.hostname.clone(),
            tls: self.tls.clone().filter(|_| serves),
            client_certificate: client_certificate.cloned().filter(|_| serves),
            closed,
            ..Frontend::new(self.id.clone(), self.protocol?, self.spec.port)
        })
    }

    /// Returns the reason and message if it does not serve traffic.
    fn fault(&self) -> Option<(&'static str, &str)> {
        let fault = self.conflict.as_ref().or(self.refused.as_ref());
        let (reason, message) = fault.or(self.unresolved.first())?;
        Some((reason, message))
    }

    /// Extends the message about a listener that does not serve traffic with the consequence for clients. The consequence comes first, because the message may
    /// end with YAML.
    fn unserved_message(&self, message: &str) -> String {
        // Without a supported protocol, nothing listens.
        let (true, Some(protocol)) = (self.reserves_hostname, self.protocol) else {
            return message.to_owned();
        };
        let port = self.spec.port;
        let hosts = match &self.hostname {
            Some(hostname) => hostname.to_string(),
            None => format!("hosts without a listener of their own on port {port}"),
        };
        let consequence = match protocol {
            Protocol::Http => format!("requests for {hosts} get 404"),
            Protocol::Tcp => format!("connections to port {port} are closed"),
            Protocol::Udp => format!("datagrams to port {port} are dropped"),
            Protocol::Https | Protocol::Tls(_) => {
                format!("TLS handshakes for {hosts} are rejected")
            }
        };
        format!("{consequence}, and no other listener gets them: {message}")
    }

    /// Returns the conditions. `parent` is the reason and message if the whole Gateway serves no traffic.
    pub fn conditions(&self, parent: Option<(&'static str, &str)>) -> Vec<Condition> {
        let mut all = Vec::new();
        match (&self.conflict, &self.refused) {
            (Some((reason, message)), _) | (None, Some((reason, message))) => {
                all.push(Condition::no("Accepted", reason, message.clone()));
            }
            (None, None) => all.push(Condition::yes("Accepted", "Accepted", "")),
        }
        all.push(match self.unresolved.first() {
            Some((reason, _)) => {
                let messages: Vec<&str> = self.unresolved.iter().map(|(_, m)| m.as_str()).collect();
                Condition::no("ResolvedRefs", reason, grants::join(&messages))
            }
            None => Condition::yes("ResolvedRefs", "ResolvedRefs", ""),
        });
        all.push(if !self.is_programmed() {
            let (why, message) = self.fault().unwrap_or_default();
            // The API defines `PortUnavailable` for `Programmed` only in entries of ListenerSets.
            let in_set = self.id.parent().kind == Kind::ListenerSet;
            let reason = match why {
                why if self.conflict.is_some() => why,
                "PortUnavailable" if in_set => why,
                _ => "Invalid",
            };
            Condition::no("Programmed", reason, self.unserved_message(message))
        } else if let Some((reason, why)) = parent {
            Condition::no("Programmed", reason, why.to_owned())
        } else {
            Condition::yes("Programmed", "Programmed", "")
        });
        if let Some((reason, message)) = &self.conflict {
            all.push(Condition::yes("Conflicted", reason, message.clone()));
        }
        if let Some(message) = &self.overlap {
            let reason = "OverlappingHostnames";
            all.push(Condition::yes(
                "OverlappingTLSConfig",
                reason,
                message.clone(),
            ));
        }
        all
    }
}

/// Evaluates one listener without regard to others.
pub(crate) fn evaluate(
    reader: &Reader<'_>,
    gateway: &Name,
    owner: &ObjectKey,
    gateway_tls: Option<&GatewayTls>,
    spec: &Listener,
) -> ListenerView {
    let id = FrontendId::Listener {
        gateway: gateway.clone(),
        owner: owner.clone(),
        listener: spec.name.as_str().into(),
    };
    let mode = spec.tls.as_ref().map_or(TlsMode::Terminate, |tls| tls.mode);
    let (protocol, supported): (Option<Protocol>, &[Kind]) = match spec.protocol.as_str() {
        "HTTP" => (Some(Protocol::Http), &[Kind::HTTPRoute, Kind::GRPCRoute]),
        "HTTPS" => (Some(Protocol::Https), &[Kind::HTTPRoute, Kind::GRPCRoute]),
        "TLS" => (
            Some(Protocol::Tls(mode.into())),
            match mode {
                // After termination, TCPRoutes get the connections that no TLSRoute matches by SNI.
                TlsMode::Terminate => &[Kind::TLSRoute, Kind::TCPRoute],
                TlsMode::Passthrough => &[Kind::TLSRoute],
            },
        ),
        "TCP" => (Some(Protocol::Tcp), &[Kind::TCPRoute]),
        "UDP" => (Some(Protocol::Udp), &[Kind::UDPRoute]),
        _ => (None, &[]),
    };
    let mut view = ListenerView {
        id,
        spec: Arc::new(spec.clone()),
        protocol,
        hostname: spec
            .hostname
            .as_deref()
            .filter(|h| !h.is_empty())
            .map(Hostname::new),
        kinds: Vec::new(),
        conflict: None,
        overlap: None,
        refused: None,
        unresolved: Vec::new(),
        tls: None,
        can_serve: true,
        reserves_hostname: false,
    };
    if protocol.is_none() {
        let message = format!(
            "protocol {} is not supported; supported protocols: HTTP, HTTPS, TLS, TCP, UDP",
            spec.protocol
        );
        view.refused = Some(("UnsupportedProtocol", message));
    }
    view.set_supported_kinds(supported);
    if spec
        .filters
        .as_ref()
        .is_some_and(|filters| !filters.requests.is_empty())
    {
        let message = "filters on listeners are not supported; move them to routes".to_owned();
        view.refused.get_or_insert(("UnsupportedValue", message));
    }
    if let Some(option) = spec.tls.as_ref().and_then(|tls| tls.options.keys().next()) {
        let message = format!("tls.options `{option}` is not supported; remove it");
        view.refused.get_or_insert(("UnsupportedValue", message));
    }
    let terminates =
        spec.protocol == "HTTPS" || (spec.protocol == "TLS" && mode == TlsMode::Terminate);
    if terminates {
        view.resolve_tls(reader, owner, gateway, gateway_tls);
    }
    view
}

impl ListenerView {
    /// Sets the kinds of routes that may attach: those that the protocol supports and the listener allows.
    fn set_supported_kinds(&mut self, supported: &[Kind]) {
        let wanted = &self.spec.allowed_routes.kinds;
        if wanted.is_empty() {
            self.kinds = supported.to_vec();
            return;
        }
        for kind in wanted {
            match Kind::find(&kind.group, &kind.kind).filter(|kind| supported.contains(kind)) {
                Some(kind) if !self.kinds.contains(&kind) => self.kinds.push(kind),
                Some(_) => {}
                None => {
                    let names: Vec<&str> = supported.iter().map(|kind| kind.name()).collect();
                    let message = format!(
                        "allowedRoutes.kinds: {} can't attach to a listener of protocol {}, which supports {}",
                        kind.kind,
                        self.spec.protocol,
                        if names.is_empty() {
                            "no kind".to_owned()
                        } else {
                            names.join(" and ")
                        },
                    );
                    self.unresolved.push(("InvalidRouteKinds", message));
                    // A listener without supported kinds serves no traffic.
                    self.can_serve = !self.kinds.is_empty();
                }
            }
        }
        self.can_serve = !self.kinds.is_empty();
    }

    fn resolve_tls(
        &mut self,
        reader: &Reader<'_>,
        owner: &ObjectKey,
        gateway: &Name,
        gateway_tls: Option<&GatewayTls>,
    ) {
        let mut found = Vec::new();
        let spec = self.spec.clone();
        let references = spec
            .tls
            .as_ref()
            .map_or(&[][..], |tls| &tls.certificate_refs);
        if references.is_empty() {
            // `InvalidCertificateRef` does not apply, because there is no reference.
            let message = format!("protocol {} requires tls.certificateRefs", spec.protocol);
            self.refused.get_or_insert(("Invalid", message));
        }
        for reference in references {
            match certificates::resolve_certificate(
                reader,
                owner.kind,
                owner.namespace(),
                reference,
            ) {
                Ok(resolved) => {
                    found.push(resolved.id);
                    let retained = resolved.retained.map(|why| ("InvalidCertificateRef", why));
                    self.unresolved.extend(retained);
                }
                Err((error, message)) => {
                    let reason = match error {
                        CertificateRefError::NotPermitted => "RefNotPermitted",
                        CertificateRefError::InvalidKind | CertificateRefError::InvalidContent => {
                            "InvalidCertificateRef"
                        }
                    };
                    self.unresolved.push((reason, message));
                }
            }
        }
        if found.is_empty() {
            self.can_serve = false;
        }
        let mut clients = None;
        if let Some(validation) = client_validation(gateway_tls, self.spec.port) {
            let authorities = self.authorities(reader, gateway, validation);
            if authorities.is_empty() {
                let message = "there is no valid CA certificate to validate clients with";
                self.refused
                    .get_or_insert(("NoValidCACertificate", message.to_owned()));
            }
            clients = Some(ClientValidation {
                authorities,
                mode: validation.mode,
            });
        }
        if self.can_serve {
            self.tls = Some(Arc::new(FrontendTls {
                certificates: found,
                clients,
            }));
        }
    }

    fn authorities(
        &mut self,
        reader: &Reader<'_>,
        gateway: &Name,
        validation: &FrontendTlsValidation,
    ) -> Vec<Arc<[u8]>> {
        let mut all = Vec::new();
        for reference in &validation.ca_certificate_refs {
            let parts = (
                reference.group.as_str(),
                reference.kind.as_str(),
                reference.name.as_str(),
                reference.namespace.as_deref(),
            );
            match certificates::resolve_authorities(
                reader,
                Kind::Gateway,
                &gateway.namespace,
                parts,
            ) {
                Ok(some) => all.extend(some),
                Err((error, message)) => {
                    let reason = match error {
                        CertificateRefError::NotPermitted => "RefNotPermitted",
                        CertificateRefError::InvalidKind => "InvalidCACertificateKind",
                        CertificateRefError::InvalidContent => "InvalidCACertificateRef",
                    };
                    self.unresolved.push((reason, message));
                }
            }
        }
        all
    }
}

/// Returns the client validation of a port: its own setting, or else the Gateway's default.
pub(crate) fn client_validation(
    tls: Option<&GatewayTls>,
    port: u16,
) -> Option<&FrontendTlsValidation> {
    let frontend = tls?.frontend.as_ref()?;
    match frontend.per_port.iter().find(|config| config.port == port) {
        Some(config) => config.tls.validation.as_ref(),
        None => frontend.default.validation.as_ref(),
    }
}

/// Returns whether some port accepts clients without a valid certificate.
pub(crate) fn has_insecure_fallback(tls: Option<&GatewayTls>) -> bool {
    let Some(frontend) = tls.and_then(|tls| tls.frontend.as_ref()) else {
        return false;
    };
    std::iter::once(&frontend.default)
        .chain(frontend.per_port.iter().map(|config| &config.tls))
        .filter_map(|config| config.validation.as_ref())
        .any(|validation| validation.mode == FrontendValidationMode::AllowInsecureFallback)
}

/// Group of protocols that can share a port. Listeners of the same group need different hostnames. Of different groups, only UDP can share its port number
/// with the others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PortGroup {
    Http,
    /// HTTPS and TLS, whose hostnames are distinguished by SNI.
    Sni,
    Tcp,
    Udp,
}

fn port_group(protocol: Protocol) -> PortGroup {
    match protocol {
        Protocol::Http => PortGroup::Http,
        Protocol::Https | Protocol::Tls(_) => PortGroup::Sni,
        Protocol::Tcp => PortGroup::Tcp,
        Protocol::Udp => PortGroup::Udp,
    }
}

/// Returns the reason why two listeners can't share a port, if they conflict.
fn find_conflict(a: &ListenerView, b: &ListenerView) -> Option<&'static str> {
    let (a_group, b_group) = (port_group(a.protocol?), port_group(b.protocol?));
    if a.spec.port != b.spec.port || (a_group == PortGroup::Udp) != (b_group == PortGroup::Udp) {
        None
    } else if a_group != b_group {
        Some("ProtocolConflict")
    } else if matches!(a_group, PortGroup::Tcp | PortGroup::Udp) {
        // TCP and UDP listeners have no hostnames that could differ.
        Some("ListenerConflict")
    } else {
        (a.hostname == b.hostname).then_some("HostnameConflict")
    }
}

/// Resolves conflicts between listeners. `owners` are sorted by precedence: the Gateway, then its ListenerSets, oldest first.
///
/// Between owners, the earlier one wins. Within one owner, no listener has precedence, so all listeners that conflict are rejected; but one that lost to an
/// earlier owner no longer conflicts with its siblings.
pub(crate) fn resolve_conflicts(owners: &mut [&mut Vec<ListenerView>]) {
    let mut claimed: Vec<ListenerView> = Vec::new();
    for listeners in owners.iter_mut() {
        for listener in listeners.iter_mut() {
            listener.conflict = conflict_with(listener, claimed.iter());
        }
        let siblings: Vec<ListenerView> = listeners
            .iter()
            .filter(|l| l.conflict.is_none())
            .cloned()
            .collect();
        for listener in listeners.iter_mut().filter(|l| l.conflict.is_none()) {
            let others = siblings.iter().filter(|other| other.id != listener.id);
            listener.conflict = conflict_with(listener, others);
            // No other listener won the hostname.
            listener.reserves_hostname = matches!(listener.conflict, Some(("HostnameConflict", _)));
        }
        claimed.extend(listeners.iter().filter(|l| l.conflict.is_none()).cloned());
    }
    for listeners in owners.iter_mut() {
        for listener in listeners.iter_mut().filter(|l| l.is_accepted()) {
            listener.overlap = overlap(listener, &claimed);
        }
    }
    reserve_hostnames(owners);
}

/// Determines the listeners that reserve their hostnames although they serve no traffic. "If a Listener is conflicted, its network port should not be
/// configured", so listeners that all lost a hostname reserve it only if another listener has the port.
fn reserve_hostnames(owners: &mut [&mut Vec<ListenerView>]) {
    let port = |listener: &ListenerView| (listener.spec.port, listener.protocol.map(port_group));
    let (mut ports, mut hostnames) = (BTreeSet::new(), BTreeSet::new());
    let all = owners.iter().flat_map(|listeners| listeners.iter());
    for listener in all.filter(|listener| listener.conflict.is_none()) {
        ports.insert(port(listener));
        hostnames.insert((port(listener), listener.hostname.clone()));
    }
    let all = owners.iter_mut().flat_map(|listeners| listeners.iter_mut());
    for listener in all {
        let own = port(listener);
        listener.reserves_hostname = match listener.conflict {
            None => !listener.is_programmed(),
            Some(_) => {
                let is_lost = hostnames.contains(&(own, listener.hostname.clone()));
                listener.reserves_hostname && ports.contains(&own) && !is_lost
            }
        };
    }
}

fn conflict_with<'a>(
    listener: &ListenerView,
    mut others: impl Iterator<Item = &'a ListenerView>,
) -> Option<(&'static str, String)> {
    others.find_map(|other| {
        let reason = find_conflict(listener, other)?;
        Some((reason, conflict_message(reason, listener, other)))
    })
}

fn conflict_message(reason: &str, listener: &ListenerView, other: &ListenerView) -> String {
    let (owner, port) = (other.id.parent(), other.spec.port);
    let (name, other_name) = (&listener.spec.name, &other.spec.name);
    let (protocol, other_protocol) = (&listener.spec.protocol, &other.spec.protocol);
    let hostnames = match &listener.hostname {
        Some(hostname) => format!("hostname {hostname}"),
        None => "all hostnames".to_owned(),
    };
    if owner == listener.id.parent() {
        return match reason {
            "ProtocolConflict" => format!(
                "listeners {name} ({protocol}) and {other_name} ({other_protocol}) can't share port {port}, so neither gets it"
            ),
            "ListenerConflict" => format!(
                "listeners {name} and {other_name} both request {protocol} port {port}, so neither gets it"
            ),
            _ => format!(
                "listeners {name} and {other_name} both request {hostnames} on port {port}, so neither gets it"
            ),
        };
    }
    match reason {
        "ProtocolConflict" => format!(
            "listener {other_name} of {owner} already uses port {port} with protocol {other_protocol}"
        ),
        "ListenerConflict" => {
            format!("listener {other_name} of {owner} already has {protocol} port {port}")
        }
        _ => format!("listener {other_name} of {owner} already has {hostnames} on port {port}"),
    }
}

/// Describes the HTTPS listeners on the same port whose hostnames overlap. Browsers reuse a connection for every name that its certificate covers, so such
/// listeners receive each other's requests (GEP-3567).
fn overlap(listener: &ListenerView, all: &[ListenerView]) -> Option<String> {
    let hostname = |l: &ListenerView| l.hostname.clone();
    let is_https = |l: &ListenerView| l.protocol == Some(Protocol::Https);
    if !is_https(listener) {
        return None;
    }
    let others: Vec<&str> = all
        .iter()
        .filter(|other| other.id != listener.id && is_https(other) && other.is_accepted())
        .filter(|other| other.spec.port == listener.spec.port)
        .filter(|other| match (hostname(listener), hostname(other)) {
            (Some(a), Some(b)) => a.intersects(&b),
            _ => true,
        })
        .map(|other| other.spec.name.as_str())
        .collect();
    (!others.is_empty()).then(|| {
        format!(
            "the hostname overlaps with listener {}; requests for another listener's host get 421",
            others.join(", ")
        )
    })
}
