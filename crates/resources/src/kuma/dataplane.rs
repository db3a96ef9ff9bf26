//! Proxies of the mesh.

use std::net::IpAddr;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::{BackendRef, MeshObject, PROTOCOL_TAG, SERVICE_TAG, Tags};
use crate::meta::null_as_default;

/// The spec of a Dataplane, as far as routing goes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct DataplaneSpec {
    /// Its addresses and ports.
    #[serde(default)]
    pub networking: Networking,
}

/// The addresses and ports of a Dataplane.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Networking {
    /// The address that others reach it at, or a hostname.
    #[serde(default)]
    pub address: String,
    /// The address that others reach it at, where it differs from its own.
    pub advertised_address: Option<String>,
    /// What it offers.
    #[serde(default, deserialize_with = "null_as_default")]
    pub inbound: Vec<Inbound>,
    /// What it uses.
    #[serde(default, deserialize_with = "null_as_default")]
    pub outbound: Vec<Outbound>,
    /// Set if it is a gateway and no sidecar.
    pub gateway: Option<DataplaneGateway>,
    /// Its traffic is redirected to it, whatever its outbounds say.
    #[serde(default, deserialize_with = "is_set")]
    pub transparent_proxying: bool,
}

impl MeshObject<DataplaneSpec> {
    /// The gateway, if this is a builtin one: its listeners are those of a MeshGateway.
    pub fn builtin_gateway(&self) -> Option<&DataplaneGateway> {
        let gateway = self.spec.networking.gateway.as_ref();
        gateway.filter(|gateway| gateway.kind == DataplaneGatewayType::Builtin)
    }

    /// The address that other proxies reach it at.
    pub fn reachable_address(&self) -> &str {
        let networking = &self.spec.networking;
        let advertised = networking.advertised_address.as_deref();
        advertised.unwrap_or(&networking.address)
    }
}

/// A port that a Dataplane offers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inbound {
    /// Its name.
    pub name: Option<String>,
    /// The port that others reach it at.
    pub port: u16,
    /// The address that others reach it at; the Dataplane's if left out.
    pub address: Option<String>,
    /// The port of the service behind it; the same if left out.
    pub service_port: Option<u16>,
    /// The address of the service behind it.
    pub service_address: Option<String>,
    /// Tags. Empty as of Kuma 3.0, where labels of the Dataplane take their place.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Tags,
    /// Its protocol, where it has no tag for it.
    pub protocol: Option<String>,
    /// Whether it takes traffic; the older form.
    pub health: Option<InboundHealth>,
    /// Whether it takes traffic: `Ready`, `NotReady` or `Ignored`.
    pub state: Option<String>,
}

impl Inbound {
    /// The service that it is a part of.
    pub fn service(&self) -> Option<&str> {
        self.tags.get(SERVICE_TAG).map(String::as_str)
    }

    /// Its protocol; `tcp` if nothing says.
    pub fn protocol(&self) -> &str {
        let tag = self.tags.get(PROTOCOL_TAG).map(String::as_str);
        tag.or(self.protocol.as_deref()).unwrap_or("tcp")
    }

    /// Whether it takes traffic.
    pub fn is_ready(&self) -> bool {
        self.health.is_none_or(|health| health.ready)
            && self.state.as_deref().is_none_or(|state| state == "Ready")
    }
}

/// The health of an inbound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct InboundHealth {
    /// Whether it takes traffic.
    #[serde(default)]
    pub ready: bool,
}

/// A port on which a Dataplane's own application reaches a destination.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outbound {
    /// The address to listen on.
    #[serde(default = "loopback")]
    pub address: IpAddr,
    /// The port to listen on.
    pub port: u16,
    /// The destination by its tags; `kuma.io/service` names it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Tags,
    /// The destination by its service alone: the older form of tags.
    #[serde(rename = "service")]
    pub only_service: Option<String>,
    /// The destination by reference.
    pub backend_ref: Option<BackendRef>,
}

impl Outbound {
    /// The service that its tags name.
    pub fn service(&self) -> Option<&str> {
        let tag = self.tags.get(SERVICE_TAG).or(self.only_service.as_ref());
        tag.map(String::as_str)
    }
}

/// A gateway among the Dataplanes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct DataplaneGateway {
    /// Whose proxy it is.
    #[serde(rename = "type", default)]
    pub kind: DataplaneGatewayType,
    /// What it is.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Tags,
}

/// Whose proxy a gateway is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum DataplaneGatewayType {
    /// Another's, with a sidecar for what it sends.
    #[default]
    Delegated,
    /// The mesh's own.
    Builtin,
}

fn is_set<'de, D: Deserializer<'de>>(d: D) -> Result<bool, D::Error> {
    Option::<IgnoredAny>::deserialize(d).map(|set| set.is_some())
}

fn loopback() -> IpAddr {
    IpAddr::from([127, 0, 0, 1])
}
