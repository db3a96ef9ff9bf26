//! Kuma's resources, in both of their forms.
//!
//! A Kubernetes object (`apiVersion: kuma.io/v1alpha1`) and a universal document (`type:`, `mesh:`, `name:`) become the same
//! [`MeshObject`]. What the two forms differ in is settled while they are read, and so are the older spellings of MADR 011
//! (`spelling`): nobody below needs to know how a policy was written.
//!
//! # Which object is it
//!
//! On Kubernetes an object is told by its namespace and name; its mesh is a label that can change. A universal document
//! is in no namespace and is told by its mesh and name. [`Name`](crate::Name) and [`ObjectKey`](crate::ObjectKey) have two
//! parts, so a universal document's mesh stands where the namespace does, as `mesh:NAME` ([`scope`]): no namespace can be
//! called so, and documents of both forms live in one folder without meeting. A [`Mesh`] has its name alone in both forms,
//! and so has a MeshGateway on Kubernetes, where it is cluster-scoped.

mod dataplane;
mod filter;
mod gateway;
mod mesh;
mod route;
mod service;
pub(crate) mod spelling;
mod target;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value as Json;

pub use dataplane::{
    DataplaneGateway, DataplaneGatewayType, DataplaneSpec, Inbound, Networking, Outbound,
};
pub(crate) use filter::fraction;
pub use filter::{DataSource, DirectResponse, Filter, RequestMirror, UrlRewrite};
pub use gateway::{
    ListenerProtocol, MeshGatewayConf, MeshGatewayInstanceSpec, MeshGatewayListener,
    MeshGatewaySpec, MeshGatewayTls, MeshGatewayTlsMode, TagSelector,
};
pub use mesh::{Mesh, MeshServicesMode, MeshSpec};
pub use route::{HeaderMatch, HeaderTest, Match, MeshRoute, MeshRouteSpec, Rule, RuleConf, To};
pub use service::{
    Extension, ExternalEndpoint, ExternalMatch, ExternalTls, ExternalVerification,
    MeshExternalServiceSpec, MeshMultiZoneServiceSpec, MeshServicePort, MeshServiceSelector,
    MeshServiceSpec, SanMatch,
};
pub use target::{BackendRef, ProxyType, Tags, TargetKind, TargetRef};

use crate::core::{Secret, TargetPort};
use crate::meta::{Labels, Meta, rfc3339};

/// The mesh of objects that name none.
pub const DEFAULT_MESH: &str = "default";
/// The tag that names the service of an inbound, an outbound or a gateway.
pub const SERVICE_TAG: &str = "kuma.io/service";
/// The tag that names the protocol of an inbound.
pub const PROTOCOL_TAG: &str = "kuma.io/protocol";
/// The tag and label that names a zone.
pub const ZONE_TAG: &str = "kuma.io/zone";
/// The label that names an object's mesh on Kubernetes.
pub const MESH_LABEL: &str = "kuma.io/mesh";
/// The label that names an object as its author did.
pub const DISPLAY_NAME_LABEL: &str = "kuma.io/display-name";
/// The label that says where a policy was made: `global` or `zone`.
pub const ORIGIN_LABEL: &str = "kuma.io/origin";
/// The label that says whose a policy is: `system`, `producer`, `consumer` or `workload-owner`.
pub const POLICY_ROLE_LABEL: &str = "kuma.io/policy-role";
/// The namespace of Kuma itself on Kubernetes: its policies are the operators', and objects of other zones are copied there.
pub const SYSTEM_NAMESPACE: &str = "kuma-system";
/// The label of policies that are tried and not carried out: `shadow`.
pub const EFFECT_LABEL: &str = "kuma.io/effect";
/// The tag and label that names a Kubernetes namespace.
pub const NAMESPACE_TAG: &str = "k8s.kuma.io/namespace";

/// A proxy of the mesh: a sidecar or a gateway.
pub type Dataplane = MeshObject<DataplaneSpec>;
/// A destination within the mesh.
pub type MeshService = MeshObject<MeshServiceSpec>;
/// A destination outside the mesh.
pub type MeshExternalService = MeshObject<MeshExternalServiceSpec>;
/// MeshServices of several zones as one destination.
pub type MeshMultiZoneService = MeshObject<MeshMultiZoneServiceSpec>;
/// The listeners of builtin gateways.
pub type MeshGateway = MeshObject<MeshGatewaySpec>;
/// The wish for a builtin gateway on Kubernetes.
pub type MeshGatewayInstance = MeshObject<MeshGatewayInstanceSpec>;

/// An object of a mesh, in whichever form it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshObject<S> {
    /// Name, labels and age; see [the module](self) for what stands as its namespace.
    pub metadata: Meta,
    /// The mesh.
    pub mesh: Arc<str>,
    /// What it says.
    pub spec: S,
}

impl<S> MeshObject<S> {
    /// The name that its author gave: the label `kuma.io/display-name`, which stays when a zone's object is copied elsewhere.
    pub fn display_name(&self) -> &str {
        display_name(&self.metadata)
    }
}

/// The label `kuma.io/display-name`, or the name.
pub fn display_name(metadata: &Meta) -> &str {
    let label = metadata.labels.get(DISPLAY_NAME_LABEL);
    label.unwrap_or(&metadata.name)
}

/// What stands as the namespace of a universal document of this mesh.
pub fn scope(mesh: &str) -> String {
    format!("{UNIVERSAL}{mesh}")
}

/// What [`scope`] puts before a mesh.
const UNIVERSAL: &str = "mesh:";

/// The Kubernetes namespace of an object; none if it is cluster-scoped or a universal document.
pub fn kubernetes_namespace(metadata: &Meta) -> Option<&str> {
    let namespace = &*metadata.namespace;
    (!namespace.is_empty() && !is_universal(metadata)).then_some(namespace)
}

/// The Kubernetes namespace that an object belongs to. A copy in the system namespace, or in a universal document, names the namespace of the
/// original in the label `k8s.kuma.io/namespace`.
pub fn home_namespace(metadata: &Meta) -> Option<&str> {
    let original = metadata.labels.get(NAMESPACE_TAG);
    match kubernetes_namespace(metadata) {
        Some(SYSTEM_NAMESPACE) => original.or(Some(SYSTEM_NAMESPACE)),
        None if is_universal(metadata) => original,
        own => own,
    }
}

/// Whether this is a universal document of a mesh.
pub fn is_universal(metadata: &Meta) -> bool {
    metadata.namespace.starts_with(UNIVERSAL)
}

impl<'de, S: DeserializeOwned> Deserialize<'de> for MeshObject<S> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let value = Json::deserialize(d)?;
        let is_universal = is_document(&value);
        let (metadata, mesh) = if is_universal {
            universal(&value).map_err(D::Error::custom)?
        } else {
            kubernetes(&value).map_err(D::Error::custom)?
        };
        let spec = match value.get("spec") {
            Some(spec) => S::deserialize(spec),
            // The kinds that are older than policies have their fields at the top of a universal document.
            None if is_universal => S::deserialize(&value),
            None => S::deserialize(Json::Object(Default::default())),
        };
        Ok(MeshObject {
            metadata,
            mesh,
            spec: spec.map_err(D::Error::custom)?,
        })
    }
}

/// Whether an object is written as a universal document.
pub(crate) fn is_document(value: &Json) -> bool {
    value.get("type").is_some() && value.get("apiVersion").is_none()
}

/// What is written in place of a kind that routes traffic and that nobody carries out here: older ones, and what MADR 011 did not take.
pub(crate) fn instead_of(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "TrafficRoute" | "MeshTrafficRoute" => {
            "a MeshHTTPRoute or MeshTCPRoute says how requests or streams go"
        }
        "MeshGatewayRoute" | "MeshGatewayTCPRoute" => {
            "a MeshHTTPRoute or MeshTCPRoute whose targetRef is the MeshGateway says where requests or streams go"
        }
        "HTTPRouteRules" => "the rules stand in a MeshHTTPRoute itself",
        "ExternalService" => "a MeshExternalService says what is outside the mesh",
        "VirtualOutbound" => "a Dataplane's outbounds say what it calls, and where",
        _ => return None,
    })
}

/// The key under which a Secret of Kuma's holds what it holds.
pub const SECRET_KEY: &str = "value";

/// A universal Secret. On Kubernetes it is a Secret too, which holds the same under one key: so it becomes one here.
pub(crate) fn secret(value: &Json) -> Result<Secret, serde_json::Error> {
    let (metadata, _) = universal(value)?;
    let data = value.get("data").and_then(Json::as_str);
    let data = data.map(|data| (SECRET_KEY.to_owned(), data.to_owned()));
    Ok(Secret {
        metadata,
        kind: "system.kuma.io/secret".to_owned(),
        data: data.into_iter().collect(),
        string_data: BTreeMap::new(),
    })
}

fn kubernetes(value: &Json) -> Result<(Meta, Arc<str>), serde_json::Error> {
    let meta = Meta::deserialize(&value["metadata"])?;
    let field = value.get("mesh").and_then(Json::as_str);
    let label = meta.labels.get(MESH_LABEL);
    let annotation = meta.annotations.get(MESH_LABEL);
    let mesh = field
        .or(label)
        .or(annotation)
        .unwrap_or(DEFAULT_MESH)
        .into();
    Ok((meta, mesh))
}

fn universal(value: &Json) -> Result<(Meta, Arc<str>), serde_json::Error> {
    let text = |field: &str| value.get(field).and_then(Json::as_str);
    let name = text("name").ok_or_else(|| serde_json::Error::custom("missing field `name`"))?;
    let labels = value.get("labels").filter(|labels| !labels.is_null());
    let meta = Meta {
        name: name.into(),
        // Only a Mesh has no mesh.
        namespace: text("mesh").map(scope).unwrap_or_default().into(),
        generation: 1,
        labels: labels.map_or(Ok(Labels::default()), Labels::deserialize)?,
        annotations: Labels::default(),
        creation_timestamp: text("creationTime").and_then(rfc3339),
        input_order: 0,
    };
    Ok((meta, text("mesh").unwrap_or(name).into()))
}

/// The parts of a service's name on Kubernetes, `NAME_NAMESPACE_svc_PORT`; a service without ports has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KubernetesService<'n> {
    /// The Service, or the Pods' owner where there is none.
    pub name: &'n str,
    /// Its namespace.
    pub namespace: &'n str,
    /// Its port.
    pub port: Option<u16>,
}

impl<'n> KubernetesService<'n> {
    /// Takes a name apart; none if it has another form.
    pub fn parse(service: &'n str) -> Option<Self> {
        let mut parts = service.split('_');
        let (name, namespace, svc) = (parts.next()?, parts.next()?, parts.next()?);
        let port = match parts.next() {
            // Kubernetes writes ports without zeros in front: another text is another service.
            Some(port) => Some(port.parse().ok().filter(|n: &u16| n.to_string() == port)?),
            None => None,
        };
        let whole = svc == "svc" && parts.next().is_none();
        (whole && !name.is_empty() && !namespace.is_empty()).then_some(KubernetesService {
            name,
            namespace,
            port,
        })
    }
}

impl std::fmt::Display for KubernetesService<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}_{}_svc", self.name, self.namespace)?;
        match self.port {
            Some(port) => write!(f, "_{port}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
