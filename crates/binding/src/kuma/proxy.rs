//! Proxies of the mesh: Dataplanes, and the Pods and MeshGatewayInstances that Kuma turns into Dataplanes on Kubernetes.

use std::net::SocketAddr;
use std::sync::Arc;

use pointsman_resources::core::{Pod, Service};
use pointsman_resources::kuma::{
    DEFAULT_MESH, Dataplane, KubernetesService, MESH_LABEL, MeshGatewayInstance, NAMESPACE_TAG,
    PROTOCOL_TAG, ProxyType, SERVICE_TAG, Tags, ZONE_TAG, home_namespace,
};
use pointsman_resources::{Kind, Meta, NamespaceName, ObjectKey, Resource};

use super::backend;
use super::cross_mesh::MESH_TAG;
use crate::bound::{BackendId, Tags as Subset, Transport};
use crate::engine::Reader;

/// Label that enables sidecar injection for a namespace or a Pod.
pub(crate) const INJECTION_LABEL: &str = "kuma.io/sidecar-injection";

/// A proxy of a mesh.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MeshProxy {
    /// The Dataplane, Pod or MeshGatewayInstance.
    pub key: ObjectKey,
    pub metadata: Meta,
    pub mesh: Arc<str>,
    /// Kubernetes namespace.
    pub namespace: Option<Arc<str>>,
    /// Tags of each inbound, or of the gateway.
    pub tag_sets: Vec<Tags>,
    /// Address and destination of each outbound.
    pub outbounds: Vec<(SocketAddr, BackendId)>,
    pub unresolved: Vec<UnresolvedOutbound>,
    /// `transparentProxying`, which Pointsman does not support.
    pub is_transparent: bool,
    /// True if it may call every destination of the mesh, like a Pod, whose traffic is captured.
    pub is_unrestricted: bool,
    /// Gateway, whether builtin or delegated, or sidecar.
    pub kind: ProxyType,
}

/// An outbound whose `backendRef` does not resolve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnresolvedOutbound {
    /// The Dataplane.
    pub dataplane: ObjectKey,
    /// Index in `networking.outbound`.
    pub index: usize,
    /// Address of the outbound.
    pub listen: SocketAddr,
    /// Name of the destination, if the reference has one.
    pub name: Option<String>,
    /// Human-readable reason.
    pub reason: String,
}

impl MeshProxy {
    /// Returns whether the proxy is in a zone, by its label `kuma.io/zone`. Without the label it counts as being in every zone.
    pub fn is_in_zone(&self, zone: &str) -> bool {
        let own = self.metadata.labels.get(ZONE_TAG);
        own.is_none_or(|own| own == zone)
    }
}

/// Reads a proxy. Returns `None` if the object does not exist or is not a proxy.
pub(crate) fn resolve_proxy(reader: &Reader<'_>, key: &ObjectKey) -> Option<MeshProxy> {
    match reader.object(key)? {
        Resource::Dataplane(dataplane) => Some(from_dataplane(reader, key, dataplane)),
        Resource::MeshGatewayInstance(instance) => Some(from_instance(key, instance)),
        Resource::Pod(pod) => from_pod(reader, key, pod),
        _ => None,
    }
}

/// Returns the id of the service that a `kuma.io/service` tag names.
pub(crate) fn tagged_service(mesh: &str, service: &str, tags: Subset) -> BackendId {
    let object = ObjectKey::new(Kind::MeshService, NamespaceName::of_mesh(mesh), service);
    BackendId {
        tags,
        ..BackendId::new(object, 0, Transport::Tcp)
    }
}

fn from_dataplane(reader: &Reader<'_>, key: &ObjectKey, dataplane: &Dataplane) -> MeshProxy {
    let networking = &dataplane.spec.networking;
    let gateway = networking.gateway.iter().map(|gateway| &gateway.tags);
    let inbounds = networking.inbound.iter().map(|inbound| &inbound.tags);
    let (mut outbounds, mut unresolved) = (Vec::new(), Vec::new());
    for (index, outbound) in networking.outbound.iter().enumerate() {
        let listen = SocketAddr::new(outbound.address, outbound.port);
        let destination = match (&outbound.backend_ref, outbound.service()) {
            (Some(reference), _) => {
                let namespace = home_namespace(&dataplane.metadata);
                match backend::resolve(reader, &dataplane.mesh, namespace, reference) {
                    Ok(destination) => destination,
                    Err(fault) => {
                        unresolved.push(UnresolvedOutbound {
                            dataplane: key.clone(),
                            index,
                            listen,
                            name: reference.target.name.clone(),
                            reason: fault.message,
                        });
                        continue;
                    }
                }
            }
            (None, Some(service)) => {
                let more = outbound.tags.iter();
                let more = more.filter(|(name, _)| *name != SERVICE_TAG);
                let more = more.map(|(name, value)| (name.as_str(), value.as_str()));
                // The tag `kuma.io/mesh` selects a cross-mesh listener of another mesh.
                let mesh = outbound.tags.get(MESH_TAG);
                let mesh = mesh.map_or(&*dataplane.mesh, String::as_str);
                tagged_service(mesh, service, more.collect())
            }
            (None, None) => continue,
        };
        outbounds.push((listen, destination));
    }
    MeshProxy {
        key: key.clone(),
        metadata: dataplane.metadata.clone(),
        mesh: dataplane.mesh.clone(),
        namespace: home_namespace(&dataplane.metadata).map(Arc::from),
        tag_sets: inbounds.chain(gateway).cloned().collect(),
        outbounds,
        unresolved,
        is_transparent: networking.transparent_proxying,
        is_unrestricted: false,
        kind: match networking.gateway {
            Some(_) => ProxyType::Gateway,
            None => ProxyType::Sidecar,
        },
    }
}

/// "its service tag = `<name>_<ns>_svc`"
fn from_instance(key: &ObjectKey, instance: &MeshGatewayInstance) -> MeshProxy {
    let service = KubernetesService {
        name: &instance.metadata.name,
        namespace: &instance.metadata.namespace,
        port: None,
    };
    let mut tags = instance.spec.tags.clone();
    tags.entry(SERVICE_TAG.to_owned())
        .or_insert(service.to_string());
    let namespace = instance.metadata.namespace.clone();
    tags.insert(NAMESPACE_TAG.to_owned(), namespace.to_string());
    MeshProxy {
        key: key.clone(),
        metadata: instance.metadata.clone(),
        mesh: instance.mesh.clone(),
        namespace: Some(namespace.into()),
        tag_sets: vec![tags],
        outbounds: Vec::new(),
        unresolved: Vec::new(),
        is_transparent: false,
        is_unrestricted: false,
        kind: ProxyType::Gateway,
    }
}

/// Reads a Pod with sidecar injection, unless the Dataplane that Kuma generated for it exists too.
fn from_pod(reader: &Reader<'_>, key: &ObjectKey, pod: &Pod) -> Option<MeshProxy> {
    let namespace = &pod.metadata.namespace;
    let around = reader.namespace_labels(namespace);
    let label = |name: &str| pod.metadata.labels.get(name).or(around.get(name));
    if !matches!(label(INJECTION_LABEL), Some("enabled" | "true")) {
        return None;
    }
    if reader.dataplane(&key.name).is_some() {
        return None;
    }
    let mut tag_sets: Vec<Tags> = Vec::new();
    for service in reader.services(namespace) {
        let selector = &service.spec.selector;
        let mut wanted = selector.iter();
        let selected = wanted.all(|(name, value)| pod.metadata.labels.get(name) == Some(value));
        if selected && !selector.is_empty() {
            tag_sets.extend(inbounds(pod, service));
        }
    }
    if tag_sets.is_empty() {
        let (name, namespace) = (&*pod.metadata.name, &**namespace);
        let service = KubernetesService {
            name,
            namespace,
            port: None,
        };
        tag_sets.push(pod_tags(pod, &service, "tcp"));
    }
    Some(MeshProxy {
        key: key.clone(),
        metadata: pod.metadata.clone(),
        mesh: label(MESH_LABEL).unwrap_or(DEFAULT_MESH).into(),
        namespace: Some(namespace.clone().into()),
        tag_sets,
        outbounds: Vec::new(),
        unresolved: Vec::new(),
        is_transparent: false,
        is_unrestricted: true,
        kind: ProxyType::Sidecar,
    })
}

/// "one inbound per matching Service port"
fn inbounds<'s>(pod: &'s Pod, service: &'s Service) -> impl Iterator<Item = Tags> + use<'s> {
    let ports = service.spec.ports.iter();
    let streams = ports.filter(|port| port.protocol == Transport::Tcp.name());
    streams.map(|port| {
        let named = KubernetesService {
            name: &service.metadata.name,
            namespace: &service.metadata.namespace,
            port: Some(port.port),
        };
        let protocol = service.kuma_protocol(port).unwrap_or("tcp");
        let mut tags = pod_tags(pod, &named, protocol);
        let more = [
            (
                "k8s.kuma.io/service-name",
                service.metadata.name.to_string(),
            ),
            ("k8s.kuma.io/service-port", port.port.to_string()),
        ];
        tags.extend(more.map(|(name, value)| (name.to_owned(), value)));
        tags
    })
}

/// Returns the tags of a Pod's inbound: "all Pod labels (except keys containing `kuma.io/` and empty values)", and those that Kuma adds.
pub(crate) fn pod_tags(pod: &Pod, service: &KubernetesService<'_>, protocol: &str) -> Tags {
    let labels = pod.metadata.labels.iter();
    let labels = labels.filter(|(name, value)| !name.contains("kuma.io/") && !value.is_empty());
    let own = [
        (SERVICE_TAG, service.to_string()),
        (PROTOCOL_TAG, protocol.to_owned()),
        (NAMESPACE_TAG, pod.metadata.namespace.to_string()),
    ];
    labels
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .chain(own.map(|(name, value)| (name.to_owned(), value)))
        .collect()
}
