//! Resolves backend references in a mesh, and the endpoints of its services.
//!
//! A service has three forms: the tag `kuma.io/service` of Dataplanes (a [`BackendId`] with port 0), a MeshService, and on Kubernetes the Service from
//! which both are derived.

use std::net::{IpAddr, SocketAddr};

use pointsman_resources::core::{Pod, ServicePort, TargetPort};
use pointsman_resources::kuma::{
    BackendRef, Dataplane, Inbound, KubernetesService, MeshService, MeshServicePort, PROTOCOL_TAG,
    Tags, TargetKind,
};
use pointsman_resources::{Kind, NamespaceName, ObjectKey};

use super::cross_mesh;
use super::external;
use super::proxy::{pod_tags, resolve_proxy, tagged_service};
use super::selection::{has_labels, has_tags, label};
use crate::bound::{
    Backend, BackendId, BackendProtocol, BoundEndpoint, Endpoints, Fault, FaultReason,
    Tags as Subset, Transport,
};
use crate::engine::Reader;
use crate::gateway_api::backends::is_ready;

/// A port of a destination.
pub(crate) struct DestinationPort {
    pub number: u16,
    name: Option<String>,
    /// `appProtocol` in lower case.
    pub protocol: Option<String>,
}

impl DestinationPort {
    /// Returns the name by which a `sectionName` selects the port.
    pub fn section_name(&self) -> String {
        self.name.clone().unwrap_or(self.number.to_string())
    }
}

/// Returns the ports of a destination object; empty if it does not exist.
pub(crate) fn ports(reader: &Reader<'_>, object: &ObjectKey) -> Vec<DestinationPort> {
    let of = |ports: &[MeshServicePort]| {
        let port = |port: &MeshServicePort| DestinationPort {
            number: port.port,
            name: port.name.clone(),
            protocol: Some(port.app_protocol.to_ascii_lowercase()),
        };
        ports.iter().map(port).collect()
    };
    let name = &object.name;
    match object.kind {
        Kind::MeshService => reader
            .mesh_service(name)
            .map_or(Vec::new(), |service| of(&service.spec.ports)),
        Kind::MeshMultiZoneService => reader
            .mesh_multi_zone_service(name)
            .map_or(Vec::new(), |service| of(&service.spec.ports)),
        Kind::MeshExternalService => reader
            .mesh_external_service(name)
            .into_iter()
            .map(|service| DestinationPort {
                number: service.spec.matched.port,
                name: None,
                protocol: Some(service.spec.matched.protocol.clone()),
            })
            .collect(),
        Kind::Service => {
            let Some(service) = reader.service(name) else {
                return Vec::new();
            };
            let ports = service.spec.ports.iter();
            let streams = ports.filter(|port| port.protocol == "TCP");
            let port = |port: &ServicePort| DestinationPort {
                number: port.port,
                name: port.name.clone(),
                protocol: service.kuma_protocol(port).map(str::to_ascii_lowercase),
            };
            streams.map(port).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the protocol of a destination, or `None` if nothing declares one. That of a tagged service is the one that all of its inbounds support.
pub(crate) fn protocol(reader: &Reader<'_>, id: &BackendId) -> Option<String> {
    if id.port != 0 {
        let ports = ports(reader, &id.object);
        return ports
            .into_iter()
            .find(|port| port.number == id.port)?
            .protocol;
    }
    if cross_mesh::is_cross_mesh(id) {
        return cross_mesh::protocol(reader, id).map(str::to_owned);
    }
    let inbounds = inbounds_of(reader, id)
        .map(|(_, inbound)| inbound.tags.get(PROTOCOL_TAG).or(inbound.protocol.as_ref()));
    let declared: Vec<Option<String>> = inbounds
        .map(|protocol| protocol.map(|protocol| protocol.to_ascii_lowercase()))
        .collect();
    if declared.iter().all(Option::is_none) {
        return None;
    }
    let protocols = declared
        .iter()
        .map(|protocol| protocol.as_deref().unwrap_or("tcp"));
    protocols.reduce(common_protocol).map(str::to_owned)
}

/// Returns the most specific protocol that covers two others: gRPC is HTTP/2, and all are TCP.
fn common_protocol<'p>(a: &'p str, b: &'p str) -> &'p str {
    match (a, b) {
        (a, b) if a == b => a,
        ("grpc", "http2") | ("http2", "grpc") => "http2",
        _ => "tcp",
    }
}

/// Returns whether a protocol is HTTP or runs over it.
pub(crate) fn is_http(protocol: Option<&str>) -> bool {
    matches!(protocol, Some("http" | "http2" | "grpc"))
}

/// Resolves a backend reference of a policy or an outbound.
pub(crate) fn resolve(
    reader: &Reader<'_>,
    mesh: &str,
    namespace: Option<&str>,
    reference: &BackendRef,
) -> Result<BackendId, Fault> {
    let target = &reference.target;
    let tags = target.tags.iter();
    let tags: Subset = tags.map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let section = target.section_name.as_deref();
    if target.tags.contains_key(cross_mesh::MESH_TAG) {
        let message =
            "a crossMesh listener can't be a backend; call it through an outbound of a Dataplane";
        return Err(fault(FaultReason::InvalidKind, message.to_owned()));
    }
    let found = match target.kind {
        TargetKind::MeshService | TargetKind::MeshServiceSubset
            if reference.port.is_none() && section.is_none() && target.labels.is_empty() =>
        {
            let name = target.name.as_deref().unwrap_or_default();
            let namespace = target.namespace.as_deref().or(namespace);
            resolve_by_name(reader, mesh, namespace, name)
        }
        TargetKind::MeshService | TargetKind::MeshServiceSubset => {
            let kinds = [Kind::MeshService, Kind::Service];
            resolve_by_port(reader, mesh, namespace, reference, &kinds)
        }
        TargetKind::MeshExternalService => resolve_by_port(
            reader,
            mesh,
            namespace,
            reference,
            &[Kind::MeshExternalService],
        ),
        TargetKind::MeshMultiZoneService => resolve_by_port(
            reader,
            mesh,
            namespace,
            reference,
            &[Kind::MeshMultiZoneService],
        ),
        other => Err(fault(
            FaultReason::InvalidKind,
            format!("a {} can't be a backend", other.name()),
        )),
    };
    found.map(|id| BackendId { tags, ..id })
}

fn fault(reason: FaultReason, message: String) -> Fault {
    Fault {
        status: 500,
        reason,
        message,
    }
}

/// Resolves a name without a port: a value of `kuma.io/service`, or an object with a single port.
fn resolve_by_name(
    reader: &Reader<'_>,
    mesh: &str,
    namespace: Option<&str>,
    name: &str,
) -> Result<BackendId, Fault> {
    let tag = tagged_service(mesh, name, Subset::default());
    if inbounds_of(reader, &tag).next().is_some() {
        return Ok(tag);
    }
    if let Some(service) = KubernetesService::parse(name) {
        let object = ObjectKey::new(Kind::Service, service.namespace, service.name);
        let found = ports(reader, &object);
        let port = found
            .iter()
            .find(|port| service.port.is_none_or(|wanted| wanted == port.number));
        if let Some(port) = port {
            return Ok(BackendId::new(object, port.number, Transport::Tcp));
        }
    }
    // A reference to a MeshService or Service with a single port may omit the port.
    let mut several = None;
    for object in candidates(mesh, namespace, name, &[Kind::MeshService, Kind::Service]) {
        match &ports(reader, &object)[..] {
            [] => {}
            [only] => return Ok(BackendId::new(object, only.number, Transport::Tcp)),
            ports => {
                let numbers: Vec<String> =
                    ports.iter().map(|port| port.number.to_string()).collect();
                let numbers = numbers.join(", ");
                several.get_or_insert(format!(
                    "{object} has ports {numbers}; set `port` to one of them"
                ));
            }
        }
    }
    let message = several.unwrap_or_else(|| {
        format!("mesh {mesh} has neither a MeshService {name} nor a Dataplane with the tag kuma.io/service: {name}")
    });
    Err(fault(FaultReason::BackendNotFound, message))
}

/// Returns the objects that a name may refer to.
fn candidates(mesh: &str, namespace: Option<&str>, name: &str, kinds: &[Kind]) -> Vec<ObjectKey> {
    let universal = NamespaceName::of_mesh(mesh);
    let scopes = namespace.into_iter().chain([&*universal]);
    scopes
        .flat_map(|scope| kinds.iter().map(move |kind| (scope, *kind)))
        .map(|(scope, kind)| ObjectKey::new(kind, scope, name))
        .collect()
}

/// Resolves a port of an object that is referenced by name or labels.
fn resolve_by_port(
    reader: &Reader<'_>,
    mesh: &str,
    namespace: Option<&str>,
    reference: &BackendRef,
    kinds: &[Kind],
) -> Result<BackendId, Fault> {
    let target = &reference.target;
    let namespace = target.namespace.as_deref().or(namespace);
    let section = target.section_name.as_deref();
    let mut candidates = match target.name.as_deref() {
        Some(name) => candidates(mesh, namespace, name, kinds),
        None => reader
            .destinations(mesh)
            .filter(|object| kinds.contains(&object.kind()))
            .filter(|object| has_labels(object.meta(), &target.labels))
            .map(|object| object.key())
            .collect(),
    };
    candidates.sort_by_key(|key| (key.kind == Kind::Service, key.clone()));
    let what = match target.name.as_deref() {
        Some(name) => {
            let namespace = namespace.map(|namespace| format!("{namespace}/"));
            let namespace = namespace.unwrap_or_default();
            format!("{} {namespace}{name}", target.kind.name())
        }
        None => format!("{} with labels {:?}", target.kind.name(), target.labels),
    };
    let mut known: Vec<String> = Vec::new();
    let rejected = candidates.iter().find(|object| reader.is_rejected(object));
    let rejected = rejected.map(|object| reader.missing(object));
    for object in candidates {
        let found = ports(reader, &object);
        known.extend(found.iter().map(|port| match &port.name {
            Some(name) => format!("{} ({name})", port.number),
            None => port.number.to_string(),
        }));
        let port = found.iter().find(|port| {
            reference.port.is_none_or(|wanted| wanted == port.number)
                && section.is_none_or(|wanted| wanted == port.section_name())
        });
        if let Some(port) = port {
            return Ok(BackendId::new(object, port.number, Transport::Tcp));
        }
    }
    let wanted = match (reference.port, section) {
        (Some(port), _) => format!("port {port}"),
        (None, section) => format!("port named `{}`", section.unwrap_or_default()),
    };
    let message = match known.is_empty() {
        true => rejected.unwrap_or_else(|| format!("mesh {mesh} has no {what}")),
        false => format!("{what} has no {wanted}; its ports are {}", known.join(", ")),
    };
    Err(fault(FaultReason::BackendNotFound, message))
}

/// Returns the inbounds of a tagged service, with their Dataplanes.
fn inbounds_of<'a>(
    reader: &Reader<'a>,
    id: &BackendId,
) -> impl Iterator<Item = (&'a Dataplane, &'a Inbound)> + use<'a> {
    let mesh = id.object.namespace().mesh().unwrap_or_default();
    let service = id.object.name.name.clone();
    let dataplanes = reader.dataplanes_of(mesh, &service);
    dataplanes.flat_map(move |dataplane| {
        let inbounds = dataplane.spec.networking.inbound.iter();
        let service = service.clone();
        inbounds
            .filter(move |inbound| inbound.service() == Some(&service))
            .map(move |inbound| (dataplane, inbound))
    })
}

/// Returns whether a tagged service has an inbound or listener, ready or not.
pub(crate) fn is_offered(reader: &Reader<'_>, id: &BackendId) -> bool {
    match cross_mesh::is_cross_mesh(id) {
        true => cross_mesh::protocol(reader, id).is_some(),
        false => inbounds_of(reader, id).any(|(_, inbound)| is_in_subset(&inbound.tags, &id.tags)),
    }
}

/// Returns a backend of a mesh with its endpoints, or `None` if its object does not exist.
pub(crate) fn view(reader: &Reader<'_>, id: &BackendId) -> Option<(Backend, Endpoints)> {
    let endpoints = match id.object.kind {
        Kind::MeshService if cross_mesh::is_cross_mesh(id) => {
            return Some(cross_mesh::backend(reader, id));
        }
        Kind::MeshService if id.port == 0 => tagged_endpoints(reader, id),
        Kind::MeshService => {
            let service = reader.mesh_service(&id.object.name)?;
            mesh_service_endpoints(reader, service, id.port, &id.tags)
        }
        Kind::MeshMultiZoneService => {
            let service = reader.mesh_multi_zone_service(&id.object.name)?;
            let wanted = &service.spec.selector.mesh_service.match_labels;
            let parts = reader.mesh_services(&service.mesh);
            let parts = parts.filter(|part| has_labels(&part.metadata, wanted));
            let all =
                parts.flat_map(|part| mesh_service_endpoints(reader, part, id.port, &id.tags));
            all.collect()
        }
        Kind::MeshExternalService => {
            let service = reader.mesh_external_service(&id.object.name)?;
            return external::view(reader, service, id);
        }
        _ => return None,
    };
    let protocol = backend_protocol(protocol(reader, id).as_deref());
    Some(backend_at(id, endpoints, protocol))
}

/// Returns whether the endpoints of a backend are listeners of Pointsman itself.
pub(crate) fn is_own_listener(reader: &Reader<'_>, id: &BackendId) -> bool {
    cross_mesh::is_cross_mesh(id) && cross_mesh::is_placed(reader, id)
}

/// Converts an `appProtocol` or `kuma.io/protocol`.
pub(super) fn backend_protocol(protocol: Option<&str>) -> BackendProtocol {
    match protocol {
        None => BackendProtocol::Unspecified,
        Some("http") => BackendProtocol::Http1,
        Some("http2") => BackendProtocol::Http2,
        Some("grpc") => BackendProtocol::Grpc,
        Some(_) => BackendProtocol::Tcp,
    }
}

/// An IP address or DNS name, and a port.
pub(super) type HostPort = (String, u16);

pub(super) fn backend_at(
    id: &BackendId,
    hosts: Vec<HostPort>,
    protocol: BackendProtocol,
) -> (Backend, Endpoints) {
    let address = |(host, port): &HostPort| {
        let ip = host.parse::<IpAddr>().ok()?;
        Some(BoundEndpoint::ready(SocketAddr::new(ip, *port)))
    };
    let mut addresses: Vec<BoundEndpoint> = hosts.iter().filter_map(address).collect();
    addresses.sort();
    addresses.dedup();
    let endpoints = match hosts.first() {
        // Endpoints are either addresses or one DNS name; addresses take precedence.
        Some((host, port)) if addresses.is_empty() => Endpoints::Dns(host.as_str().into(), *port),
        _ => Endpoints::Addresses(addresses),
    };
    let backend = Backend {
        id: id.clone(),
        protocol,
        tls: None,
        retry_budget: None,
    };
    (backend, endpoints)
}

fn tagged_endpoints(reader: &Reader<'_>, id: &BackendId) -> Vec<HostPort> {
    inbounds_of(reader, id)
        .filter(|(_, inbound)| inbound.is_ready() && is_in_subset(&inbound.tags, &id.tags))
        .map(|(dataplane, inbound)| inbound_address(dataplane, inbound))
        .collect()
}

fn is_in_subset(tags: &Tags, subset: &Subset) -> bool {
    let wanted = subset.iter().map(|(k, v)| (k.to_owned(), v.to_owned()));
    has_tags(tags, &wanted.collect())
}

fn inbound_address(dataplane: &Dataplane, inbound: &Inbound) -> HostPort {
    let address = inbound.address.as_deref();
    let address = address.unwrap_or(dataplane.reachable_address());
    (address.to_owned(), inbound.port)
}

/// Returns the endpoints of a MeshService's port: the inbounds that its selector selects.
fn mesh_service_endpoints(
    reader: &Reader<'_>,
    service: &MeshService,
    port: u16,
    tags: &Subset,
) -> Vec<HostPort> {
    let mut ports = service.spec.ports.iter();
    let Some(port) = ports.find(|known| known.port == port) else {
        return Vec::new();
    };
    let selector = &service.spec.selector;
    let chosen = |dataplane: &Dataplane, inbound: &Inbound| {
        let labels = selector.dataplane_labels.as_ref();
        let names = selector.dataplane_ref.as_ref();
        let by_tags = selector.dataplane_tags.as_ref();
        match (by_tags, names, labels) {
            (Some(tags), ..) => has_tags(&inbound.tags, tags),
            (None, Some(reference), _) => reference.name == *dataplane.metadata.name,
            (None, None, Some(labels)) => {
                labels.matches_by(|name| label(&dataplane.metadata, name)) == Ok(true)
            }
            (None, None, None) => false,
        }
    };
    let at_port = |inbound: &Inbound| match &port.target_port {
        Some(TargetPort::Number(number)) => inbound.port == *number,
        Some(TargetPort::Name(name)) => inbound.name.as_deref() == Some(name),
        None => inbound.port == port.port,
    };
    let same_namespace = |dataplane: &Dataplane| {
        dataplane.metadata.namespace.kubernetes() == service.metadata.namespace.kubernetes()
    };
    let mut endpoints = Vec::new();
    for dataplane in reader
        .dataplanes(&service.mesh)
        .filter(|d| same_namespace(d))
    {
        for inbound in &dataplane.spec.networking.inbound {
            let fits = inbound.is_ready() && at_port(inbound) && is_in_subset(&inbound.tags, tags);
            if fits && chosen(dataplane, inbound) {
                endpoints.push(inbound_address(dataplane, inbound));
            }
        }
    }
    endpoints.extend(pod_inbounds(reader, service, port, tags));
    endpoints
}

/// Returns the inbounds of Pods that a MeshService selects, for manifests without the Dataplanes that Kuma generates from Pods.
fn pod_inbounds(
    reader: &Reader<'_>,
    service: &MeshService,
    port: &MeshServicePort,
    subset: &Subset,
) -> Vec<HostPort> {
    let Some(namespace) = service.metadata.namespace.kubernetes() else {
        return Vec::new();
    };
    let selector = &service.spec.selector;
    let inbound = |pod: &Pod| {
        let metadata = &pod.metadata;
        let key = ObjectKey::new(Kind::Pod, namespace, &*metadata.name);
        let proxy = resolve_proxy(reader, &key).filter(|proxy| proxy.mesh == service.mesh)?;
        let has = |tags: &Tags| proxy.tag_sets.iter().any(|own| has_tags(own, tags));
        let is_chosen = if let Some(tags) = &selector.dataplane_tags {
            has(tags)
        } else if let Some(reference) = &selector.dataplane_ref {
            reference.name == *metadata.name
        } else {
            let labels = selector.dataplane_labels.as_ref()?;
            labels.matches_by(|name| label(metadata, name)) == Ok(true)
        };
        let is_in_subset = proxy.tag_sets.iter().any(|own| is_in_subset(own, subset));
        let number = match &port.target_port {
            Some(TargetPort::Number(number)) => *number,
            Some(TargetPort::Name(name)) => pod.port(name, Transport::Tcp.name())?,
            None => port.port,
        };
        let address = pod.status.pod_ip.clone()?;
        (is_chosen && is_in_subset).then_some((address, number))
    };
    let pods = reader.pods(namespace).filter(|pod| is_ready(pod));
    pods.filter_map(inbound).collect()
}

/// Returns the `appProtocol` of a port, or else the protocol that Kuma's annotations on its Service declare.
pub(crate) fn app_protocol<'a>(
    reader: &Reader<'a>,
    object: &ObjectKey,
    port: &'a ServicePort,
) -> Option<&'a str> {
    let own = port.app_protocol.as_deref();
    let is_service = object.kind == Kind::Service;
    own.or_else(|| {
        reader
            .service(&object.name)
            .filter(|_| is_service)?
            .kuma_protocol(port)
    })
}

/// Removes endpoints of a Service whose Pods lack the tags of a backend.
pub(crate) fn retain_tagged(
    reader: &Reader<'_>,
    id: &BackendId,
    port: &ServicePort,
    endpoints: &mut Vec<BoundEndpoint>,
) {
    let named = KubernetesService {
        name: &id.object.name.name,
        namespace: id.object.namespace(),
        port: Some(port.port),
    };
    let protocol = app_protocol(reader, &id.object, port).unwrap_or("tcp");
    let fitting: Vec<IpAddr> = reader
        .pods(id.object.namespace())
        .filter(|pod| is_in_subset(&pod_tags(pod, &named, protocol), &id.tags))
        .filter_map(|pod| pod.status.pod_ip.as_deref()?.parse().ok())
        .collect();
    endpoints.retain(|endpoint| fitting.contains(&endpoint.address.ip()));
}
