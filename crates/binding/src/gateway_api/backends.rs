//! Resolves backendRefs, and loads backends with their endpoints.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use pointsman_resources::core::{
    Endpoint, Pod, ServicePort, ServiceType, TargetPort, TrafficDistribution,
};
use pointsman_resources::policy::{XBackend, XBackendTlsMode, XBackendType};
use pointsman_resources::refs::BackendObjectReference;
use pointsman_resources::{Kind, ObjectKey};

use crate::bound::{
    Backend, BackendId, BackendProtocol, BackendTls, BoundEndpoint, Endpoints, Fault, FaultReason,
    Transport,
};
use crate::engine::Reader;
use crate::gateway_api::certificates;
use crate::gateway_api::grants::{self, CrossNamespaceReference};
use crate::gateway_api::policy;
use crate::gateway_api::topology;
use crate::kuma;

/// A route that references backends.
#[derive(Clone, Copy)]
pub(crate) struct ReferringRoute<'a> {
    pub kind: Kind,
    pub namespace: &'a str,
    pub cross_namespace: CrossNamespace,
}

/// Treatment of references to other namespaces.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CrossNamespace {
    /// They require a ReferenceGrant.
    RequiresGrant,
    /// They are allowed: routes in the mesh augment Services, they do not expose them (GEP-1426, "Namespace boundaries").
    Allowed,
    /// They are forbidden (the earlier GEP-1426).
    Forbidden,
}

/// Resolves a reference. Checks its kind first, then permission, then existence.
pub(crate) fn resolve(
    reader: &Reader<'_>,
    referrer: ReferringRoute<'_>,
    reference: &BackendObjectReference,
) -> Result<BackendId, Fault> {
    let kind = supported_kind(reference)?;
    let namespace = reference.namespace.as_deref();
    let namespace = namespace.unwrap_or(referrer.namespace);
    if namespace != referrer.namespace {
        check_cross_namespace(reader, referrer, kind, (namespace, reference))?;
    }
    let object = ObjectKey::new(kind, namespace, reference.name.as_str());
    let missing = || fault(FaultReason::BackendNotFound, reader.missing(&object));
    let ports = match kind {
        Kind::Service => {
            let service = reader.service(&object.name).ok_or_else(missing)?;
            if service.spec.kind == ServiceType::ExternalName {
                let message =
                    format!("{object} has type ExternalName, which is not supported as a backend");
                return Err(fault(FaultReason::InvalidKind, message));
            }
            &service.spec.ports
        }
        Kind::ServiceImport => {
            let import = reader.service_import(&object.name).ok_or_else(missing)?;
            &import.spec.ports
        }
        _ => {
            let backend = reader.backend(&object.name).ok_or_else(missing)?;
            return x_backend_id(object, backend, referrer.kind);
        }
    };
    let Some(port) = reference.port else {
        let message = format!("the reference to {object} has no port");
        return Err(fault(FaultReason::BackendNotFound, message));
    };
    let found = find_port(&object, ports, port, referrer.kind)?;
    match missing_trust(reader, referrer.kind, &object, found) {
        Some(why) => Err(why),
        None => Ok(BackendId::new(object, port, Transport::of(referrer.kind))),
    }
}

/// Creates the fault of a reference that does not resolve.
fn fault(reason: FaultReason, message: String) -> Fault {
    Fault {
        status: 500,
        reason,
        message,
    }
}

/// Returns the kind of backend that a reference names.
fn supported_kind(reference: &BackendObjectReference) -> Result<Kind, Fault> {
    let BackendObjectReference {
        group, kind, name, ..
    } = reference;
    match Kind::find(group, kind) {
        Some(kind @ (Kind::Service | Kind::ServiceImport | Kind::XBackend)) => Ok(kind),
        _ => {
            let full = match group.is_empty() {
                true => kind.clone(),
                false => format!("{kind}.{group}"),
            };
            let message = format!(
                "{full} {name} is not a supported backend; supported kinds: Service, ServiceImport.multicluster.x-k8s.io, XBackend.gateway.networking.x-k8s.io"
            );
            Err(fault(FaultReason::InvalidKind, message))
        }
    }
}

/// Checks whether a route may reference a backend in another namespace.
fn check_cross_namespace(
    reader: &Reader<'_>,
    referrer: ReferringRoute<'_>,
    kind: Kind,
    (to_namespace, reference): (&str, &BackendObjectReference),
) -> Result<(), Fault> {
    let name = &reference.name;
    if kind == Kind::XBackend {
        let message = format!(
            "XBackend {to_namespace}/{name} is not in the namespace of the route; routes can only reference XBackends in their own namespace"
        );
        return Err(fault(FaultReason::RefNotPermitted, message));
    }
    match referrer.cross_namespace {
        CrossNamespace::Allowed => Ok(()),
        CrossNamespace::Forbidden => {
            let message = format!(
                "{kind} {to_namespace}/{name} is in another namespace, which `binding: Strict` in MeshSettings does not allow"
            );
            Err(fault(FaultReason::RefNotPermitted, message))
        }
        CrossNamespace::RequiresGrant => {
            let reference = CrossNamespaceReference {
                from: referrer.kind,
                namespace: referrer.namespace,
                group: &reference.group,
                kind: &reference.kind,
                to_namespace,
                name,
            };
            match reference.is_permitted(reader) {
                true => Ok(()),
                false => Err(fault(FaultReason::RefNotPermitted, reference.missing())),
            }
        }
    }
}

/// Finds the port of a Service or ServiceImport that a kind of route can use. A port of another transport is another port, though it has the same number.
fn find_port<'p>(
    object: &ObjectKey,
    ports: &'p [ServicePort],
    port: u16,
    kind: Kind,
) -> Result<&'p ServicePort, Fault> {
    let transport = Transport::of(kind);
    let of_number: Vec<&ServicePort> = ports.iter().filter(|p| p.port == port).collect();
    let found = of_number.iter().find(|p| p.protocol == transport.name());
    if let Some(found) = found {
        let app = found.app_protocol.as_deref();
        if supports_protocol(kind, app) {
            return Ok(found);
        }
        let app = app.unwrap_or_default();
        let message = format!(
            "port {port} of {object} has appProtocol {app}, which a {kind} does not support"
        );
        return Err(fault(FaultReason::UnsupportedProtocol, message));
    }
    let known: Vec<String> = ports.iter().map(|p| p.port.to_string()).collect();
    let message = if !of_number.is_empty() {
        format!("port {port} of {object} is not a {transport} port, which a {kind} requires")
    } else if known.is_empty() {
        format!("{object} has no ports")
    } else {
        let known = known.join(", ");
        format!("{object} has no port {port}; its ports are {known}")
    };
    Err(fault(FaultReason::BackendNotFound, message))
}

/// Returns whether a kind of route supports an application protocol. Streams carry any.
fn supports_protocol(kind: Kind, app_protocol: Option<&str>) -> bool {
    !matches!(kind, Kind::HTTPRoute | Kind::GRPCRoute)
        || app_protocol.is_none_or(|app| parse_app_protocol(app).is_some())
}

/// Returns the fault of HTTP requests to a port whose `appProtocol` requires TLS, if no policy defines its trust anchors: neither plain text nor TLS without
/// verification would be safe.
fn missing_trust(
    reader: &Reader<'_>,
    kind: Kind,
    object: &ObjectKey,
    port: &ServicePort,
) -> Option<Fault> {
    let app = port.app_protocol.as_deref().unwrap_or_default();
    let requires_tls = ["https", "kubernetes.io/wss", "wss"];
    let requires_tls = requires_tls
        .iter()
        .any(|known| app.eq_ignore_ascii_case(known));
    let is_http = matches!(kind, Kind::HTTPRoute | Kind::GRPCRoute);
    if !requires_tls
        || !is_http
        || policy::backend_tls(reader, object, port.name.as_deref()).is_some()
    {
        return None;
    }
    let message = format!(
        "port {} of {object} has appProtocol {app}, which requires TLS, but no BackendTLSPolicy targets it",
        port.port
    );
    Some(Fault {
        status: 500,
        reason: FaultReason::UnsupportedProtocol,
        message,
    })
}

/// Like [`missing_trust`], for the port of a mesh parent itself.
pub(crate) fn missing_trust_for_parent(
    reader: &Reader<'_>,
    kind: Kind,
    id: &BackendId,
) -> Option<Fault> {
    let name = &id.object.name;
    let ports = match id.object.kind {
        Kind::Service => &reader.service(name)?.spec.ports,
        Kind::ServiceImport => &reader.service_import(name)?.spec.ports,
        _ => return None,
    };
    let transport = id.transport.name();
    let port = ports
        .iter()
        .find(|port| port.port == id.port && port.protocol == transport)?;
    missing_trust(reader, kind, &id.object, port)
}

/// Parses an `appProtocol` that HTTP routes support; `None` for any other.
fn parse_app_protocol(app_protocol: &str) -> Option<BackendProtocol> {
    Some(match app_protocol.to_ascii_lowercase().as_str() {
        "" => BackendProtocol::Unspecified,
        "http" | "https" => BackendProtocol::Http1,
        "kubernetes.io/h2c" | "h2c" | "http2" => BackendProtocol::Http2,
        "grpc" | "grpc-web" => BackendProtocol::Grpc,
        "kubernetes.io/ws" | "kubernetes.io/wss" | "ws" | "wss" => BackendProtocol::WebSocket,
        _ => return None,
    })
}

fn x_backend_id(object: ObjectKey, backend: &XBackend, from: Kind) -> Result<BackendId, Fault> {
    let fault = |reason, message| {
        Err(Fault {
            status: 500,
            reason,
            message,
        })
    };
    if let Some(why) = x_backend_unsupported(backend) {
        return fault(FaultReason::UnsupportedProtocol, format!("{object}: {why}"));
    }
    let transport = Transport::of(from);
    let is_stream = backend.spec.protocol.as_deref() == Some("TCP");
    let wants_http = matches!(from, Kind::HTTPRoute | Kind::GRPCRoute);
    if transport == Transport::Udp || (is_stream && wants_http) {
        let message = format!("{object} has protocol TCP, which a {from} does not support");
        return fault(FaultReason::UnsupportedProtocol, message);
    }
    match backend.spec.port.number {
        Some(port) => Ok(BackendId::new(object, port, transport)),
        None => fault(
            FaultReason::BackendNotFound,
            format!("{object} has no port number"),
        ),
    }
}

/// Returns the reason why an XBackend is not supported, if so.
pub(crate) fn x_backend_unsupported(backend: &XBackend) -> Option<String> {
    if backend.spec.protocol.as_deref() == Some("MCP") {
        return Some("protocol MCP is not supported".to_owned());
    }
    backend
        .spec
        .session_persistence
        .is_some()
        .then(|| "sessionPersistence is not supported".to_owned())
}

/// Loads a backend with its endpoints. Returns `None` if its object or port does not exist.
pub(crate) fn load(reader: &Reader<'_>, id: &BackendId) -> Option<(Backend, Endpoints)> {
    match id.object.kind {
        Kind::Service => {
            let spec = &reader.service(&id.object.name)?.spec;
            let distribution = spec.traffic_distribution();
            from_ports(reader, id, &spec.ports, distribution)
        }
        Kind::ServiceImport => {
            let import = reader.service_import(&id.object.name)?;
            from_ports(reader, id, &import.spec.ports, None)
        }
        Kind::XBackend => Some(from_x_backend(reader, id, reader.backend(&id.object.name)?)),
        _ => kuma::backend::view(reader, id),
    }
}

/// Returns whether the endpoints of a backend are listeners of Pointsman itself.
pub(crate) fn is_own_listener(reader: &Reader<'_>, id: &BackendId) -> bool {
    kuma::backend::is_own_listener(reader, id)
}

fn from_ports(
    reader: &Reader<'_>,
    id: &BackendId,
    ports: &[ServicePort],
    distribution: Option<TrafficDistribution>,
) -> Option<(Backend, Endpoints)> {
    let transport = id.transport.name();
    let port = ports
        .iter()
        .find(|port| port.port == id.port && port.protocol == transport)?;
    let name = port.name.as_deref().unwrap_or_default();
    let mut endpoints: Vec<BoundEndpoint> = Vec::new();
    if reader.slices(&id.object).next().is_none() {
        endpoints = pod_endpoints(reader, id, port);
    }
    for slice in reader.slices(&id.object) {
        let numbers = slice
            .ports
            .iter()
            .filter(|p| p.name == name && p.protocol == transport)
            .filter_map(|p| p.port);
        for number in numbers {
            let bound = |endpoint| bound_endpoint(endpoint, number, distribution);
            endpoints.extend(slice.endpoints.iter().filter_map(bound));
        }
    }
    endpoints.sort();
    endpoints.dedup_by_key(|endpoint| endpoint.address);
    if !id.tags.is_empty() {
        kuma::backend::retain_tagged(reader, id, port, &mut endpoints);
    }
    let app = kuma::backend::app_protocol(reader, &id.object, port).unwrap_or_default();
    let protocol = match id.transport {
        Transport::Udp => BackendProtocol::Udp,
        Transport::Tcp => parse_app_protocol(app).unwrap_or(BackendProtocol::Tcp),
    };
    let backend = Backend {
        id: id.clone(),
        protocol,
        tls: policy::backend_tls(reader, &id.object, port.name.as_deref()),
        retry_budget: policy::retry_budget(reader, &id.object),
    };
    Some((backend, Endpoints::Addresses(endpoints)))
}

/// Returns an endpoint of a slice if it is ready or terminating and serving.
fn bound_endpoint(
    endpoint: &Endpoint,
    port: u16,
    distribution: Option<TrafficDistribution>,
) -> Option<BoundEndpoint> {
    let conditions = endpoint.conditions;
    let ready = conditions.ready != Some(false);
    let serving = conditions.serving != Some(false);
    let terminating = conditions.terminating == Some(true);
    let ip = endpoint.addresses.first()?.parse::<IpAddr>().ok()?;
    (ready || terminating && serving).then(|| BoundEndpoint {
        address: SocketAddr::new(ip, port),
        terminating: !ready,
        hints: topology::hints(endpoint, distribution),
    })
}

/// Derives endpoints from Pods, for manifests without the EndpointSlices that a cluster would generate.
fn pod_endpoints(reader: &Reader<'_>, id: &BackendId, port: &ServicePort) -> Vec<BoundEndpoint> {
    let Some(service) = reader.service(&id.object.name) else {
        return Vec::new();
    };
    let selector = &service.spec.selector;
    if selector.is_empty() {
        return Vec::new();
    }
    // Pods may define different numbers for a named port.
    let number = |pod: &Pod| match &port.target_port {
        Some(TargetPort::Number(number)) => Some(*number),
        Some(TargetPort::Name(name)) => pod.port(name, id.transport.name()),
        None => Some(port.port),
    };
    ready_pod_endpoints(reader, id, number, |pod| {
        let mut wanted = selector.iter();
        wanted.all(|(key, value)| pod.metadata.labels.get(key) == Some(value.as_str()))
    })
}

/// Returns the endpoints of the selected ready Pods in a backend's namespace. Pods without the port are skipped.
fn ready_pod_endpoints(
    reader: &Reader<'_>,
    id: &BackendId,
    port: impl Fn(&Pod) -> Option<u16>,
    selected: impl Fn(&Pod) -> bool,
) -> Vec<BoundEndpoint> {
    let mut found: Vec<BoundEndpoint> = reader
        .pods(id.object.namespace())
        .filter(|pod| selected(pod) && is_ready(pod))
        .filter_map(|pod| {
            let ip = pod.status.pod_ip.as_deref()?.parse::<IpAddr>().ok()?;
            Some(SocketAddr::new(ip, port(pod)?))
        })
        .map(BoundEndpoint::ready)
        .collect();
    found.sort();
    found
}

fn from_x_backend(reader: &Reader<'_>, id: &BackendId, backend: &XBackend) -> (Backend, Endpoints) {
    let spec = &backend.spec;
    let endpoints = match (spec.kind, &spec.external_hostname, &spec.endpoint_selector) {
        (XBackendType::ExternalHostname, Some(name), _) => {
            Endpoints::Dns(name.hostname.as_str().into(), id.port)
        }
        (XBackendType::EndpointSelector, _, Some(selector)) => {
            let wanted = &selector.match_labels;
            let selected = |pod: &Pod| {
                wanted
                    .iter()
                    .all(|(key, value)| pod.metadata.labels.get(key) == Some(value.as_str()))
            };
            let found = ready_pod_endpoints(reader, id, |_| Some(id.port), selected);
            Endpoints::Addresses(found)
        }
        _ => Endpoints::Addresses(Vec::new()),
    };
    let protocol = match spec.protocol.as_deref() {
        Some("HTTP11") => BackendProtocol::Http1,
        Some("HTTP2" | "H2C") => BackendProtocol::Http2,
        Some("GRPC") => BackendProtocol::Grpc,
        Some("WSS") => BackendProtocol::WebSocket,
        Some("TCP") => BackendProtocol::Tcp,
        _ => BackendProtocol::Unspecified,
    };
    let backend = Backend {
        id: id.clone(),
        protocol,
        tls: x_backend_tls(reader, backend),
        retry_budget: policy::retry_budget(reader, &id.object),
    };
    (backend, endpoints)
}

/// Returns whether a Pod is ready: by its condition, or by its phase in manifests without conditions.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    match pod
        .status
        .conditions
        .iter()
        .find(|condition| condition.kind == "Ready")
    {
        Some(condition) => condition.status == "True",
        None => !matches!(
            pod.status.phase.as_deref(),
            Some("Pending" | "Succeeded" | "Failed")
        ),
    }
}

/// Returns the TLS settings of an XBackend, or the fault if they are invalid.
pub(crate) fn x_backend_tls(
    reader: &Reader<'_>,
    backend: &XBackend,
) -> Option<Result<Arc<BackendTls>, Fault>> {
    let tls = &backend.spec.tls;
    let validation = tls
        .validation
        .as_ref()
        .filter(|_| tls.mode != XBackendTlsMode::None)?;
    let namespace = &backend.metadata.namespace;
    let (found, problems) = policy::resolve_trust(reader, Kind::XBackend, namespace, validation);
    let fault = |reason, message| {
        Some(Err(Fault {
            status: 502,
            reason,
            message,
        }))
    };
    let Some(trust) = found else {
        let message = problems
            .into_iter()
            .map(|(_, message)| message)
            .collect::<Vec<_>>();
        return fault(FaultReason::NoValidCACertificate, grants::join(&message));
    };
    let mut client_certificate = None;
    if let Some(reference) = &tls.client_certificate_ref {
        match certificates::resolve_certificate(reader, Kind::XBackend, namespace, reference) {
            Ok(resolved) => client_certificate = Some(resolved.id),
            Err((_, message)) => return fault(FaultReason::InvalidClientCertificateRef, message),
        }
    }
    Some(Ok(Arc::new(BackendTls {
        hostname: validation.hostname.as_str().into(),
        trust,
        names: policy::peer_names(&validation.subject_alt_names),
        client_certificate,
        of_mesh: false,
    })))
}
