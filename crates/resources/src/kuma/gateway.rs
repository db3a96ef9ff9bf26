//! MeshGateway and MeshGatewayInstance.
#![allow(missing_docs, reason = "fields are named and documented as in Kuma")]

use serde::Deserialize;

use super::{DataSource, Tags};
use crate::meta::null_as_default;

/// The spec of a MeshGateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct MeshGatewaySpec {
    /// Alternatives, one of which must match the Dataplane of a builtin gateway.
    #[serde(default, deserialize_with = "null_as_default")]
    pub selectors: Vec<TagSelector>,
    /// Tags added to all listeners.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Tags,
    #[serde(default, deserialize_with = "null_as_default")]
    pub conf: MeshGatewayConf,
}

/// Selects Dataplanes by tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct TagSelector {
    /// Required tags. The value `*` matches any value.
    #[serde(rename = "match", default, deserialize_with = "null_as_default")]
    pub tags: Tags,
}

/// The listeners of a MeshGateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct MeshGatewayConf {
    #[serde(default, deserialize_with = "null_as_default")]
    pub listeners: Vec<MeshGatewayListener>,
}

/// A listener of a MeshGateway.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshGatewayListener {
    /// An empty hostname and `*` match all hostnames.
    #[serde(default, deserialize_with = "null_as_default")]
    pub hostname: String,
    pub port: u16,
    pub protocol: ListenerProtocol,
    /// Required for the protocols HTTPS and TLS.
    pub tls: Option<MeshGatewayTls>,
    /// Tags added to those of the gateway.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Tags,
    /// True if the listener serves proxies of other meshes.
    #[serde(default, deserialize_with = "null_as_default")]
    pub cross_mesh: bool,
    #[serde(default, deserialize_with = "null_as_default")]
    pub resources: ListenerResources,
}

impl MeshGatewayListener {
    /// Returns the hostname, or `None` if the listener matches all hostnames.
    pub fn hostname(&self) -> Option<&str> {
        Some(&*self.hostname).filter(|name| !matches!(*name, "" | "*"))
    }
}

/// Protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
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

/// TLS configuration of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct MeshGatewayTls {
    #[serde(default)]
    pub mode: MeshGatewayTlsMode,
    /// PEM-encoded certificates with their keys: a single one, or one RSA and one ECDSA certificate.
    #[serde(default, deserialize_with = "null_as_default")]
    pub certificates: Vec<DataSource>,
}

/// Handling of TLS by a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum MeshGatewayTlsMode {
    /// The gateway terminates TLS.
    #[default]
    Terminate,
    /// TLS is passed through to the backend.
    Passthrough,
}

/// Resource limits of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerResources {
    /// Maximum number of concurrent connections.
    pub connection_limit: Option<u32>,
}

/// The spec of a MeshGatewayInstance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshGatewayInstanceSpec {
    /// Tags of the gateway's Dataplanes.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Tags,
    /// Number of Dataplanes.
    #[serde(default = "one")]
    pub replicas: u32,
    /// Type of the gateway's Service.
    #[serde(default = "load_balancer")]
    pub service_type: String,
}

fn one() -> u32 {
    1
}

fn load_balancer() -> String {
    "LoadBalancer".to_owned()
}
