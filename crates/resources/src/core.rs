//! Core Kubernetes kinds. They have only the fields in use, because Pods and EndpointSlices account for most of a cluster's memory.
#![allow(
    missing_docs,
    reason = "fields are named and documented as in the Kubernetes API"
)]

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::meta::{Meta, null_as_default};

/// A Kubernetes Service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Service {
    pub metadata: Meta,
    #[serde(default)]
    pub spec: ServiceSpec,
}

/// The spec of a [`Service`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceSpec {
    #[serde(rename = "type", default)]
    pub kind: ServiceType,
    /// The virtual address. `None` marks a headless Service.
    #[serde(rename = "clusterIP")]
    pub cluster_ip: Option<String>,
    /// The virtual addresses of both IP families, including `cluster_ip`.
    #[serde(rename = "clusterIPs", default, deserialize_with = "null_as_default")]
    pub cluster_ips: Vec<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub ports: Vec<ServicePort>,
    /// Labels of the Pods that back the Service.
    #[serde(default, deserialize_with = "null_as_default")]
    pub selector: BTreeMap<String, String>,
    /// DNS name that a Service of type ExternalName resolves to.
    pub external_name: Option<String>,
    /// See [`ServiceSpec::traffic_distribution`]. An API server may allow values that are unknown here.
    #[serde(rename = "trafficDistribution")]
    distribution: Option<String>,
}

/// Preference for endpoints near the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrafficDistribution {
    /// Endpoints in the same zone.
    PreferSameZone,
    /// Endpoints on the same node, then those in the same zone.
    PreferSameNode,
}

impl Service {
    /// Returns the protocol that Kuma assigns to a port: `appProtocol` or, if unset, the annotation `PORT.service.kuma.io/protocol`.
    pub fn kuma_protocol<'s>(&'s self, port: &'s ServicePort) -> Option<&'s str> {
        let annotation = format!("{}.service.kuma.io/protocol", port.port);
        let app_protocol = port.app_protocol.as_deref();
        app_protocol.or_else(|| self.metadata.annotations.get(&annotation))
    }
}

impl ServiceSpec {
    /// Returns the preferred endpoints; `None` if all are equal.
    pub fn traffic_distribution(&self) -> Option<TrafficDistribution> {
        match self.distribution.as_deref()? {
            // `PreferClose` is the older name.
            "PreferSameZone" | "PreferClose" => Some(TrafficDistribution::PreferSameZone),
            "PreferSameNode" => Some(TrafficDistribution::PreferSameNode),
            _ => None,
        }
    }

    /// Returns whether the Service is headless, that is, declared without a virtual address.
    pub fn is_headless(&self) -> bool {
        self.cluster_ip.as_deref() == Some("None")
    }
}

/// Service type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum ServiceType {
    #[default]
    ClusterIP,
    NodePort,
    LoadBalancer,
    ExternalName,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// Required if the Service has several ports.
    pub name: Option<String>,
    pub port: u16,
    /// Transport protocol: `TCP`, `UDP` or `SCTP`.
    #[serde(default = "tcp")]
    pub protocol: String,
    /// Application protocol, such as `http` or `kubernetes.io/h2c`.
    pub app_protocol: Option<String>,
    /// Port of the endpoints; defaults to `port`.
    pub target_port: Option<TargetPort>,
}

/// A port of the endpoints, by number or name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum TargetPort {
    Number(u16),
    Name(String),
}

/// A Service exported by another cluster (Multi-Cluster Services API).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ServiceImport {
    pub metadata: Meta,
    #[serde(default)]
    pub spec: ServiceImportSpec,
}

/// The spec of a [`ServiceImport`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ServiceImportSpec {
    /// `ClusterSetIP` or `Headless`.
    #[serde(rename = "type", default = "cluster_set_ip")]
    pub kind: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub ips: Vec<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub ports: Vec<ServicePort>,
}

/// A subset of a Service's endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSlice {
    /// The label `kubernetes.io/service-name` names the Service.
    pub metadata: Meta,
    /// `IPv4`, `IPv6` or `FQDN`.
    #[serde(default)]
    pub address_type: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub endpoints: Vec<Endpoint>,
    /// Ports of all endpoints of the slice.
    #[serde(default, deserialize_with = "null_as_default")]
    pub ports: Vec<EndpointPort>,
}

/// An endpoint of an [`EndpointSlice`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// Equivalent addresses; only the first is used.
    #[serde(default, deserialize_with = "null_as_default")]
    pub addresses: Vec<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub conditions: EndpointConditions,
    pub node_name: Option<String>,
    pub zone: Option<String>,
    pub hints: Option<Box<EndpointHints>>,
}

/// Nodes and zones by which an endpoint should be consumed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointHints {
    #[serde(default, deserialize_with = "null_as_default")]
    pub for_zones: Vec<TopologyName>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub for_nodes: Vec<TopologyName>,
}

/// Name of a node or zone.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TopologyName {
    #[serde(default)]
    pub name: String,
}

/// Conditions of an endpoint. A missing `ready` or `serving` means true, a missing `terminating` false.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct EndpointConditions {
    pub ready: Option<bool>,
    pub serving: Option<bool>,
    pub terminating: Option<bool>,
}

/// A port of the endpoints of a slice.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointPort {
    /// Name of the Service port.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    pub port: Option<u16>,
    /// Transport protocol: `TCP`, `UDP` or `SCTP`.
    #[serde(default = "tcp")]
    pub protocol: String,
    /// Application protocol, such as `http` or `kubernetes.io/h2c`.
    pub app_protocol: Option<String>,
}

/// A Kubernetes namespace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Namespace {
    pub metadata: Meta,
}

/// A Pod, reduced to its addresses, named ports and readiness.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Pod {
    pub metadata: Meta,
    /// Named container ports.
    #[serde(rename = "spec", default, deserialize_with = "named_ports")]
    pub ports: Box<[NamedPort]>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: PodStatus,
}

impl Pod {
    /// Returns the number of the port with this name and protocol.
    pub fn port(&self, name: &str, protocol: &str) -> Option<u16> {
        let mut ports = self.ports.iter();
        let found = ports.find(|port| port.name == name && port.protocol == protocol);
        found.map(|port| port.number)
    }
}

/// A named container port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPort {
    pub name: String,
    pub number: u16,
    /// Transport protocol: `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
}

/// Collects the named ports of a Pod's containers and of its sidecars, which are init containers with `restartPolicy: Always`.
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
    let sidecars =
        sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
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

/// The status of a [`Pod`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    #[serde(rename = "podIP")]
    pub pod_ip: Option<String>,
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: Option<String>,
    /// Only the condition `Ready` is used.
    #[serde(default, deserialize_with = "null_as_default")]
    pub conditions: Vec<PodCondition>,
}

/// A condition of a [`Pod`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PodCondition {
    /// Condition type, such as `Ready`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
}

/// A Secret. Its data stays base64-encoded until it is used.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Secret {
    pub metadata: Meta,
    /// Secret type, such as `kubernetes.io/tls`.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// Base64-encoded values.
    #[serde(default, deserialize_with = "null_as_default")]
    pub data: BTreeMap<String, String>,
    /// Values as plain text; they take precedence over `data`.
    #[serde(rename = "stringData", default, deserialize_with = "null_as_default")]
    pub string_data: BTreeMap<String, String>,
}

/// A Kubernetes ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ConfigMap {
    pub metadata: Meta,
    #[serde(default, deserialize_with = "null_as_default")]
    pub data: BTreeMap<String, String>,
}

/// A set of CA certificates published to the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ClusterTrustBundle {
    pub metadata: Meta,
    pub spec: ClusterTrustBundleSpec,
}

/// The spec of a [`ClusterTrustBundle`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTrustBundleSpec {
    /// PEM-encoded CA certificates.
    #[serde(default)]
    pub trust_bundle: String,
}

fn tcp() -> String {
    "TCP".to_owned()
}

fn cluster_set_ip() -> String {
    "ClusterSetIP".to_owned()
}
