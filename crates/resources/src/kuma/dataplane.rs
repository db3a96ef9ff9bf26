//! Dataplane.
#![allow(missing_docs, reason = "fields are named and documented as in Kuma")]

use std::net::IpAddr;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::{BackendRef, MeshObject, PROTOCOL_TAG, SERVICE_TAG, Tags};
use crate::meta::null_as_default;

/// The spec of a Dataplane, reduced to the fields that routing uses.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct DataplaneSpec {
    #[serde(default)]
    pub networking: Networking,
}

/// The addresses and ports of a Dataplane.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Networking {
    /// IP address or hostname of the proxy.
    #[serde(default)]
    pub address: String,
    /// Address at which other proxies reach this one, if it differs from `address`.
    pub advertised_address: Option<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub inbound: Vec<Inbound>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub outbound: Vec<Outbound>,
    /// Set if the proxy is a gateway instead of a sidecar.
    pub gateway: Option<DataplaneGateway>,
    /// True if outbound traffic is redirected to the proxy transparently.
    #[serde(default, deserialize_with = "is_set")]
    pub transparent_proxying: bool,
}

impl MeshObject<DataplaneSpec> {
    /// Returns the gateway if it is a builtin one, whose listeners are defined by a MeshGateway.
    pub fn builtin_gateway(&self) -> Option<&DataplaneGateway> {
        let gateway = self.spec.networking.gateway.as_ref();
        gateway.filter(|gateway| gateway.kind == DataplaneGatewayType::Builtin)
    }

    /// Returns the address at which other proxies reach this one.
    pub fn reachable_address(&self) -> &str {
        let networking = &self.spec.networking;
        let advertised = networking.advertised_address.as_deref();
        advertised.unwrap_or(&networking.address)
    }
}

/// A port on which a Dataplane receives traffic for its application.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inbound {
    pub name: Option<String>,
    pub port: u16,
    /// Defaults to the address of the Dataplane.
    pub address: Option<String>,
    /// Port of the application; defaults to `port`.
    pub service_port: Option<u16>,
    /// Address of the application.
    pub service_address: Option<String>,
    /// Empty as of Kuma 3.0, which uses labels of the Dataplane instead.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Tags,
    /// Used if there is no tag `kuma.io/protocol`.
    pub protocol: Option<String>,
    /// Readiness, in the form that precedes `state`.
    pub health: Option<InboundHealth>,
    /// Readiness: `Ready`, `NotReady` or `Ignored`.
    pub state: Option<String>,
}

impl Inbound {
    /// Returns the value of the tag `kuma.io/service`.
    pub fn service(&self) -> Option<&str> {
        self.tags.get(SERVICE_TAG).map(String::as_str)
    }

    /// Returns the protocol, which defaults to `tcp`.
    pub fn protocol(&self) -> &str {
        let tag = self.tags.get(PROTOCOL_TAG).map(String::as_str);
        tag.or(self.protocol.as_deref()).unwrap_or("tcp")
    }

    /// Returns whether the inbound is ready to receive traffic.
    pub fn is_ready(&self) -> bool {
        self.health.is_none_or(|health| health.ready)
            && self.state.as_deref().is_none_or(|state| state == "Ready")
    }
}

/// Readiness of an inbound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct InboundHealth {
    #[serde(default)]
    pub ready: bool,
}

/// A local port through which a Dataplane's application reaches a destination.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outbound {
    #[serde(default = "loopback")]
    pub address: IpAddr,
    pub port: u16,
    /// Tags of the destination, with its name in `kuma.io/service`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Tags,
    /// Name of the destination, in the form that precedes `tags`.
    #[serde(rename = "service")]
    pub only_service: Option<String>,
    /// Reference to the destination.
    pub backend_ref: Option<BackendRef>,
}

impl Outbound {
    /// Returns the name of the destination service, from `tags` or `service`.
    pub fn service(&self) -> Option<&str> {
        let tag = self.tags.get(SERVICE_TAG).or(self.only_service.as_ref());
        tag.map(String::as_str)
    }
}

/// Gateway settings of a Dataplane.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct DataplaneGateway {
    #[serde(rename = "type", default)]
    pub kind: DataplaneGatewayType,
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Tags,
}

/// Type of a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum DataplaneGatewayType {
    /// A third-party gateway with a sidecar that handles its outbound traffic.
    #[default]
    Delegated,
    /// A gateway run by the mesh itself.
    Builtin,
}

fn is_set<'de, D: Deserializer<'de>>(d: D) -> Result<bool, D::Error> {
    Option::<IgnoredAny>::deserialize(d).map(|set| set.is_some())
}

fn loopback() -> IpAddr {
    IpAddr::from([127, 0, 0, 1])
}
