//! Builtin gateways: their listeners, and the wish for one on Kubernetes.

use serde::Deserialize;

use super::{DataSource, Tags};
use crate::meta::null_as_default;

/// The spec of a MeshGateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct MeshGatewaySpec {
    /// The builtin gateways that it is for; any one of these suffices.
    #[serde(default, deserialize_with = "null_as_default")]
    pub selectors: Vec<TagSelector>,
    /// Tags of all listeners.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Tags,
    /// The listeners.
    #[serde(default, deserialize_with = "null_as_default")]
    pub conf: MeshGatewayConf,
}

/// Selects gateways by tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct TagSelector {
    /// Tags that must be there; the value `*` is any.
    #[serde(rename = "match", default, deserialize_with = "null_as_default")]
    pub tags: Tags,
}

/// What a MeshGateway listens on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct MeshGatewayConf {
    /// The listeners.
    #[serde(default, deserialize_with = "null_as_default")]
    pub listeners: Vec<MeshGatewayListener>,
}

/// One listener of a MeshGateway.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshGatewayListener {
    /// The hostname that it serves; all if left out, empty or `*`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub hostname: String,
    /// The port.
    pub port: u16,
    /// The protocol.
    pub protocol: ListenerProtocol,
    /// TLS, for HTTPS and TLS.
    pub tls: Option<MeshGatewayTls>,
    /// What it is, beside the tags of the gateway.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Tags,
    /// Whether it is for the proxies of other meshes.
    #[serde(default, deserialize_with = "null_as_default")]
    pub cross_mesh: bool,
    /// What it may use.
    #[serde(default, deserialize_with = "null_as_default")]
    pub resources: ListenerResources,
}

impl MeshGatewayListener {
    /// The hostname that it serves, none if all.
    pub fn hostname(&self) -> Option<&str> {
        Some(&*self.hostname).filter(|name| !matches!(*name, "" | "*"))
    }
}

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[allow(missing_docs, reason = "named as in Kuma")]
pub enum ListenerProtocol {
    #[serde(rename = "HTTP")]
    Http,
    #[serde(rename = "HTTPS")]
    Https,
    #[serde(rename = "TCP")]
    Tcp,
    #[serde(rename = "TLS")]
    Tls,
}

/// TLS of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct MeshGatewayTls {
    /// Where TLS ends.
    #[serde(default)]
    pub mode: MeshGatewayTlsMode,
    /// Its certificates, each with its key as PEM: one, or one RSA and one ECDSA.
    #[serde(default, deserialize_with = "null_as_default")]
    pub certificates: Vec<DataSource>,
}

/// Where TLS ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum MeshGatewayTlsMode {
    /// At the gateway.
    #[default]
    Terminate,
    /// At the backend.
    Passthrough,
}

/// What a listener may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerResources {
    /// How many connections at once.
    pub connection_limit: Option<u32>,
}

/// The spec of a MeshGatewayInstance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshGatewayInstanceSpec {
    /// The tags of the gateway's Dataplanes.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Tags,
    /// How many Dataplanes.
    #[serde(default = "one")]
    pub replicas: u32,
    /// The type of its Service.
    #[serde(default = "load_balancer")]
    pub service_type: String,
}

fn one() -> u32 {
    1
}

fn load_balancer() -> String {
    "LoadBalancer".to_owned()
}
