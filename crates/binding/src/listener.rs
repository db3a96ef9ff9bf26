//! One listener: what it takes, what it refers to, and whether it clashes with another on its port.

use std::collections::BTreeSet;
use std::sync::Arc;

use pointsman_resources::gateway::{
    FrontendTlsValidation, FrontendValidationMode, GatewayTls, Listener, TlsMode,
};
use pointsman_resources::{Kind, Name, ObjectKey};

use crate::bound::{
    ClientValidation, Frontend, FrontendId, FrontendTls, Hostname, Protocol, SecretId,
};
use crate::certificates::{self, CertificateRefError};
use crate::grants;
use crate::status::Condition;
use crate::store::Reader;

/// A listener of a Gateway or ListenerSet, as it was found to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenerView {
    /// Which frontend it is.
    pub id: FrontendId,
    /// The listener as written.
    pub spec: Arc<Listener>,
    /// What it speaks; none if that is unknown.
    pub protocol: Option<Protocol>,
    /// Its hostname.
    pub hostname: Option<Hostname>,
    /// The kinds of routes that may attach.
    pub kinds: Vec<Kind>,
    /// Whether it clashes with another: the reason, and with which.
    pub conflict: Option<(&'static str, String)>,
    /// Whether it overlaps another HTTPS listener of its port.
    pub overlap: Option<String>,
    /// Why it is not accepted.
    pub refused: Option<(&'static str, String)>,
    /// What could not be resolved, the first first.
    pub unresolved: Vec<(&'static str, String)>,
    /// Certificates and client verification.
    pub tls: Option<Arc<FrontendTls>>,
    /// Whether all that it needs to serve traffic is there.
    pub can_serve: bool,
    /// Whether it keeps its port and hostname from others though it does not serve.
    pub reserves_hostname: bool,
}

impl ListenerView {
    /// Whether it is accepted.
    pub fn is_accepted(&self) -> bool {
        self.refused.is_none() && self.conflict.is_none()
    }

    /// Whether it serves traffic.
    pub fn is_programmed(&self) -> bool {
        self.is_accepted() && self.can_serve
    }

    /// What a client connects to, if it serves traffic or keeps its port and hostname.
    pub fn frontend(&self, client_certificate: Option<&SecretId>) -> Option<Frontend> {
        let closed = match (self.is_programmed(), self.reserves_hostname) {
            (true, _) => None,
            (false, true) => Some(grants::sentence(self.fault()?.1).into()),
            (false, false) => return None,
        };
        let serves = closed.is_none();
        Some(Frontend {
            id: self.id.clone(),
            protocol: self.protocol?,
            port: self.spec.port,
            hostname: self.hostname.clone(),
            tls: self.tls.clone().filter(|_| serves),
            client_certificate: client_certificate.cloned().filter(|_| serves),
            mesh_certificate: None,
            kind: None,
            connection_limit: None,
            cross_mesh: false,
            closed,
        })
    }

    /// Reason why it does not serve, and a message.
    fn fault(&self) -> Option<(&'static str, &str)> {
        let why = self.conflict.as_ref().or(self.refused.as_ref());
        let why = why.or(self.unresolved.first())?;
        Some((why.0, &why.1))
    }

    /// A message on why it does not serve. It begins with what becomes of its clients, as YAML may end it.
    fn unserved_message(&self, why: &str) -> String {
        if !self.reserves_hostname {
            return why.to_owned();
        }
        let port = self.spec.port;
        let hosts = match &self.hostname {
            Some(hostname) => hostname.to_string(),
            None => format!("hosts that no other listener of port {port} names"),
        };
        let fate = match self.protocol {
            Some(Protocol::Http) => format!("requests for {hosts} are answered with 404"),
            Some(Protocol::Tcp) => format!("connections to port {port} are closed"),
            Some(Protocol::Udp) => format!("datagrams to port {port} are dropped"),
            _ => format!("TLS handshakes for {hosts} are refused"),
        };
        format!("{fate}, and no other listener gets them: {why}")
    }

    /// The conditions. `parent` is the reason for which nothing of the whole Gateway is served, and a message.
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
            // Of Programmed, the API has this reason for entries of ListenerSets alone.
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

/// Looks at one listener by itself.
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
                // Of bytes in the clear, a TCPRoute carries those that no TLSRoute takes by SNI.
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
            "protocol {} is not supported; HTTP, HTTPS, TLS, TCP and UDP are",
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
        let message = "filters on listeners are not supported; put them on the routes".to_owned();
        view.refused.get_or_insert(("UnsupportedValue", message));
    }
    if let Some(option) = spec.tls.as_ref().and_then(|tls| tls.options.keys().next()) {
        let message = format!("tls.options `{option}` is not supported; no option is");
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
    /// Which kinds of routes may attach: those that the protocol takes, as far as the listener allows them.
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
                        "allowedRoutes.kinds: {} can't attach to a listener of protocol {}; {} can",
                        kind.kind,
                        self.spec.protocol,
                        if names.is_empty() {
                            "no kind".to_owned()
                        } else {
                            names.join(" and ")
                        },
                    );
                    self.unresolved.push(("InvalidRouteKinds", message));
                    // A listener that lets nothing in serves nothing.
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
            // There is no reference that could be invalid.
            let message = format!("protocol {} needs tls.certificateRefs", spec.protocol);
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
                Err((wrong, message)) => {
                    let reason = match wrong {
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
                let message = "no valid certificate of an authority is left to verify clients with";
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
                Err((wrong, message)) => {
                    let reason = match wrong {
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

/// How clients are verified on a port: its own setting, else the Gateway's default.
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

/// Whether some port lets clients in without a valid certificate.
pub(crate) fn has_insecure_fallback(tls: Option<&GatewayTls>) -> bool {
    let Some(frontend) = tls.and_then(|tls| tls.frontend.as_ref()) else {
        return false;
    };
    std::iter::once(&frontend.default)
        .chain(frontend.per_port.iter().map(|config| &config.tls))
        .filter_map(|config| config.validation.as_ref())
        .any(|validation| validation.mode == FrontendValidationMode::AllowInsecureFallback)
}

/// What shares a port: listeners of one group may, with different hostnames; others may not, except TCP's kin and UDP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PortGroup {
    Http,
    /// HTTPS and TLS tell their hostnames apart by SNI.
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

/// Reason for which two listeners can't both have their port, if there is one.
fn find_conflict(a: &ListenerView, b: &ListenerView) -> Option<&'static str> {
    let (a_group, b_group) = (port_group(a.protocol?), port_group(b.protocol?));
    if a.spec.port != b.spec.port || (a_group == PortGroup::Udp) != (b_group == PortGroup::Udp) {
        None
    } else if a_group != b_group {
        Some("ProtocolConflict")
    } else if matches!(a_group, PortGroup::Tcp | PortGroup::Udp) {
        // They have no hostnames that could differ.
        Some("ListenerConflict")
    } else {
        (a.hostname == b.hostname).then_some("HostnameConflict")
    }
}

/// Marks the listeners that clash. `owners` come in order of precedence: the Gateway, then its ListenerSets, oldest first.
///
/// Between owners the earlier one keeps its port. Within one owner nobody can be preferred, so all that clash lose; but what has
/// lost to an earlier owner is out, and takes none of its siblings with it.
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
            // Nobody has won it.
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

/// Decides which listeners keep their hostnames though they don't serve. "If a Listener is conflicted, its network port should not be
/// configured", so those that have all lost one keep it only where another listener has the port.
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
                "listeners {name} and {other_name} both want {protocol} port {port}, so neither gets it"
            ),
            _ => format!(
                "listeners {name} and {other_name} both want {hostnames} on port {port}, so neither gets it"
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

/// Browsers reuse a connection for every name that its certificate covers, so overlapping HTTPS listeners see requests that
/// are meant for each other (GEP-3567).
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
        format!("its hostname overlaps with listener {}; a request for another listener's host is answered with 421", others.join(", "))
    })
}
