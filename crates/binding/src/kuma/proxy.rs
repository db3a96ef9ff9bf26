//! Proxies of the mesh: Dataplanes as they are written, and the Pods and MeshGatewayInstances that become some on Kubernetes.

use std::net::SocketAddr;
use std::sync::Arc;

use pointsman_resources::core::{Pod, Service};
use pointsman_resources::kuma::{
    DEFAULT_MESH, Dataplane, KubernetesService, MESH_LABEL, MeshGatewayInstance, NAMESPACE_TAG,
    PROTOCOL_TAG, ProxyType, SERVICE_TAG, Tags, ZONE_TAG, home_namespace, scope,
};
use pointsman_resources::{Kind, Meta, ObjectKey, Resource};

use super::backend;
use super::cross_mesh::MESH_TAG;
use crate::bound::{BackendId, Tags as Subset, Transport};
use crate::store::Reader;

/// The label that lets proxies into the Pods of a namespace, or into one Pod.
pub(crate) const INJECTION_LABEL: &str = "kuma.io/sidecar-injection";

/// A proxy of a mesh.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MeshProxy {
    /// What it is written as.
    pub key: ObjectKey,
    /// The name, labels and age of that.
    pub metadata: Meta,
    /// The mesh.
    pub mesh: Arc<str>,
    /// Its namespace on Kubernetes.
    pub namespace: Option<Arc<str>>,
    /// The tags of each inbound; of a gateway its own.
    pub tag_sets: Vec<Tags>,
    /// What it is told to call, and where it finds it.
    pub outbounds: Vec<(SocketAddr, BackendId)>,
    /// Outbounds whose `backendRef` does not resolve.
    pub unresolved: Vec<UnresolvedOutbound>,
    /// Its traffic is redirected to it (`transparentProxying`), which nothing does here.
    pub is_transparent: bool,
    /// Whether it may call everything in the mesh: a Pod, whose traffic is captured.
    pub is_unrestricted: bool,
    /// Whether it is a gateway, be it another's, and no sidecar.
    pub kind: ProxyType,
}

/// An outbound whose `backendRef` does not resolve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnresolvedOutbound {
    /// The Dataplane.
    pub dataplane: ObjectKey,
    /// Its index in `networking.outbound`.
    pub index: usize,
    /// The address and port that it names.
    pub listen: SocketAddr,
    /// The name of the destination, if the reference has one.
    pub name: Option<String>,
    /// The reason, for people.
    pub reason: String,
}

impl MeshProxy {
    /// Returns whether it is in a zone: its label `kuma.io/zone` names its own. One without the label may be in any.
    pub fn is_in_zone(&self, zone: &str) -> bool {
        let own = self.metadata.labels.get(ZONE_TAG);
        own.is_none_or(|own| own == zone)
    }
}

/// Looks at a proxy. None if there is none of this name.
pub(crate) fn resolve_proxy(reader: &Reader<'_>, key: &ObjectKey) -> Option<MeshProxy> {
    match reader.object(key)? {
        Resource::Dataplane(dataplane) => Some(from_dataplane(reader, key, dataplane)),
        Resource::MeshGatewayInstance(instance) => Some(from_instance(key, instance)),
        Resource::Pod(pod) => from_pod(reader, key, pod),
        _ => None,
    }
}

/// The service that a tag names, as a destination or a backend.
pub(crate) fn tagged_service(mesh: &str, service: &str, tags: Subset) -> BackendId {
    let object = ObjectKey::new(Kind::MeshService, scope(mesh), service);
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
                // A gateway's listener for all meshes is found by its mesh's name.
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
        namespace: Some(namespace),
        tag_sets: vec![tags],
        outbounds: Vec::new(),
        unresolved: Vec::new(),
        is_transparent: false,
        is_unrestricted: false,
        kind: ProxyType::Gateway,
    }
}

/// A Pod that is let into the mesh, unless the Dataplane that was made of it is there too.
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
        namespace: Some(namespace.clone()),
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

/// "all Pod labels (except keys containing `kuma.io/` and empty values)", and what Kuma adds.
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
