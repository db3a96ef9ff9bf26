//! Kubernetes' own kinds, with only the fields that are used: a cluster's Pods and EndpointSlices are the bulk of memory.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::meta::{Meta, null_as_default};

/// A name for a set of endpoints, and usually a virtual address.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Service {
    /// Name and age.
    pub metadata: Meta,
    /// What it is.
    #[serde(default)]
    pub spec: ServiceSpec,
}

/// The spec of a [`Service`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceSpec {
    /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
    #[serde(rename = "type", default)]
    pub kind: ServiceType,
    /// The virtual address, or `None`.
    #[serde(rename = "clusterIP")]
    pub cluster_ip: Option<String>,
    /// All virtual addresses.
    #[serde(rename = "clusterIPs", default, deserialize_with = "null_as_default")]
    pub cluster_ips: Vec<String>,
    /// The ports.
    #[serde(default, deserialize_with = "null_as_default")]
    pub ports: Vec<ServicePort>,
    /// The Pods behind it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub selector: BTreeMap<String, String>,
    /// The name that it stands for, of type ExternalName.
    pub external_name: Option<String>,
}

impl Service {
    /// The protocol of a port as Kuma has it: `appProtocol`, or the annotation `PORT.service.kuma.io/protocol`; none if neither says.
    pub fn kuma_protocol<'s>(&'s self, port: &'s ServicePort) -> Option<&'s str> {
        let annotation = format!("{}.service.kuma.io/protocol", port.port);
        let said = port.app_protocol.as_deref();
        said.or_else(|| self.metadata.annotations.get(&annotation))
    }
}

impl ServiceSpec {
    /// Whether it has no virtual address on purpose.
    pub fn is_headless(&self) -> bool {
        self.cluster_ip.as_deref() == Some("None")
    }
}

/// How a Service is published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "named as in the API")]
pub enum ServiceType {
    #[default]
    ClusterIP,
    NodePort,
    LoadBalancer,
    ExternalName,
}

/// One port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// Its name; may be left out where there is one port.
    pub name: Option<String>,
    /// Its number.
    pub port: u16,
    /// `TCP`, `UDP` or `SCTP`.
    #[serde(default = "tcp")]
    pub protocol: String,
    /// The application's protocol.
    pub app_protocol: Option<String>,
    /// The port of the endpoints, by number or name; the same number if left out.
    pub target_port: Option<TargetPort>,
}

/// A port of the endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum TargetPort {
    /// By number.
    Number(u16),
    /// By name.
    Name(String),
}

/// A Service of another cluster.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ServiceImport {
    /// Name and age.
    pub metadata: Meta,
    /// What it is.
    #[serde(default)]
    pub spec: ServiceImportSpec,
}

/// The spec of a [`ServiceImport`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ServiceImportSpec {
    /// `ClusterSetIP` or `Headless`.
    #[serde(rename = "type", default = "cluster_set_ip")]
    pub kind: String,
    /// The virtual addresses.
    #[serde(default, deserialize_with = "null_as_default")]
    pub ips: Vec<String>,
    /// The ports.
    #[serde(default, deserialize_with = "null_as_default")]
    pub ports: Vec<ServicePort>,
}

/// Some endpoints of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSlice {
    /// Name and age; the label `kubernetes.io/service-name` names the Service.
    pub metadata: Meta,
    /// `IPv4`, `IPv6` or `FQDN`.
    #[serde(default)]
    pub address_type: String,
    /// The endpoints.
    #[serde(default, deserialize_with = "null_as_default")]
    pub endpoints: Vec<Endpoint>,
    /// Their ports.
    #[serde(default, deserialize_with = "null_as_default")]
    pub ports: Vec<EndpointPort>,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// Its addresses; the first one is used.
    #[serde(default, deserialize_with = "null_as_default")]
    pub addresses: Vec<String>,
    /// Whether it can be used.
    #[serde(default, deserialize_with = "null_as_default")]
    pub conditions: EndpointConditions,
}

/// Whether an endpoint can be used. Unknown is yes, for `ready` and `serving`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "named as in the API")]
pub struct EndpointConditions {
    pub ready: Option<bool>,
    pub serving: Option<bool>,
    pub terminating: Option<bool>,
}

/// One port of the endpoints of a slice.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointPort {
    /// The name of the Service's port.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// The number.
    pub port: Option<u16>,
    /// `TCP`, `UDP` or `SCTP`.
    #[serde(default = "tcp")]
    pub protocol: String,
    /// The application's protocol.
    pub app_protocol: Option<String>,
}

/// A namespace and its labels.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Namespace {
    /// Name and labels.
    pub metadata: Meta,
}

/// A Pod, as far as its place in the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Pod {
    /// Name and labels.
    pub metadata: Meta,
    /// The ports of its containers that have a name.
    #[serde(rename = "spec", default, deserialize_with = "named_ports")]
    pub ports: Box<[NamedPort]>,
    /// Its state.
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: PodStatus,
}

impl Pod {
    /// The number of the port of this name and protocol.
    pub fn port(&self, name: &str, protocol: &str) -> Option<u16> {
        let mut ports = self.ports.iter();
        let found = ports.find(|port| port.name == name && port.protocol == protocol);
        found.map(|port| port.number)
    }
}

/// A port of a container that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPort {
    /// The name.
    pub name: String,
    /// The number.
    pub number: u16,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
}

/// Reads the named ports of a Pod's spec: those of its containers, then of its sidecars, which are init containers that keep running.
fn named_ports<'de, D: Deserializer<'de>>(d: D) -> Result<Box<[NamedPort]>, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        #[serde(default, deserialize_with = "null_as_default")]
        containers: Vec<Container>,
        #[serde(default, deserialize_with = "null_as_default")]
        init_containers: Vec<Container>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Container {
        #[serde(default, deserialize_with = "null_as_default")]
        ports: Vec<Port>,
        restart_policy: Option<String>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Port {
        name: Option<String>,
        container_port: u16,
        #[serde(default = "tcp")]
        protocol: String,
    }
    let spec = Option::<Spec>::deserialize(d)?.unwrap_or_default();
    let sidecars = spec.init_containers.into_iter();
    let sidecars = sidecars.filter(|one| one.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.into_iter().chain(sidecars);
    let ports = ports.flat_map(|container| container.ports);
    let named = ports.filter_map(|port| {
        Some(NamedPort {
            name: port.name?,
            number: port.container_port,
            protocol: port.protocol,
        })
    });
    Ok(named.collect())
}

/// The state of a [`Pod`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    /// Its address.
    #[serde(rename = "podIP")]
    pub pod_ip: Option<String>,
    /// `Pending`, `Running`, `Succeeded`, `Failed`.
    pub phase: Option<String>,
    /// Its conditions; `Ready` is used.
    #[serde(default, deserialize_with = "null_as_default")]
    pub conditions: Vec<PodCondition>,
}

/// A condition of a [`Pod`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PodCondition {
    /// Which one.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
}

/// A Secret. Data is decoded when it is read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Secret {
    /// Name and age.
    pub metadata: Meta,
    /// `kubernetes.io/tls` and so on.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// The data, base64.
    #[serde(default, deserialize_with = "null_as_default")]
    pub data: BTreeMap<String, String>,
    /// The data, as text; wins over `data`.
    #[serde(rename = "stringData", default, deserialize_with = "null_as_default")]
    pub string_data: BTreeMap<String, String>,
}

/// A ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ConfigMap {
    /// Name and age.
    pub metadata: Meta,
    /// The data.
    #[serde(default, deserialize_with = "null_as_default")]
    pub data: BTreeMap<String, String>,
}

/// Certificates that a cluster trusts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ClusterTrustBundle {
    /// Name and age.
    pub metadata: Meta,
    /// What it holds.
    pub spec: ClusterTrustBundleSpec,
}

/// The spec of a [`ClusterTrustBundle`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTrustBundleSpec {
    /// PEM certificates.
    #[serde(default)]
    pub trust_bundle: String,
}

fn tcp() -> String {
    "TCP".to_owned()
}

fn cluster_set_ip() -> String {
    "ClusterSetIP".to_owned()
}
