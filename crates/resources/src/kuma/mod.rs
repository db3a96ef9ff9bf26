//! Kuma's resources, as Kubernetes objects and as universal documents.
//!
//! A Kubernetes object (`apiVersion: kuma.io/v1alpha1`) and a universal document (`type:`, `mesh:`, `name:`) are read into the same
//! [`MeshObject`]. The reader resolves the differences between the two forms and the older syntax of MADR 011 (`spelling`), so that other
//! modules do not depend on the form in which a policy was written.
//!
//! # Identity of objects
//!
//! On Kubernetes, an object is identified by its namespace and name; its mesh is a label that can change. A universal document has no
//! namespace and is identified by its mesh and name. [`Name`](crate::Name) therefore holds the mesh of a universal document in place of the
//! namespace, as `mesh:NAME` ([`NamespaceName`]). The colon, which no namespace can contain, keeps documents of the two forms apart if one folder
//! holds both. A [`Mesh`] is identified only by its name in both forms, and so is a MeshGateway on Kubernetes, where it is cluster-scoped.

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
use crate::meta::{Labels, Meta, NamespaceName, rfc3339};

/// The mesh of objects that do not specify one.
pub const DEFAULT_MESH: &str = "default";
/// Tag with the service of an inbound, an outbound or a gateway.
pub const SERVICE_TAG: &str = "kuma.io/service";
/// Tag with the protocol of an inbound.
pub const PROTOCOL_TAG: &str = "kuma.io/protocol";
/// Tag and label with the zone.
pub const ZONE_TAG: &str = "kuma.io/zone";
/// Label with the mesh of a Kubernetes object.
pub const MESH_LABEL: &str = "kuma.io/mesh";
/// Label with the original name of an object, which copies in other zones keep.
pub const DISPLAY_NAME_LABEL: &str = "kuma.io/display-name";
/// Label with the origin of a policy: `global` or `zone`.
pub const ORIGIN_LABEL: &str = "kuma.io/origin";
/// Label with the role of a policy: `system`, `producer`, `consumer` or `workload-owner`.
pub const POLICY_ROLE_LABEL: &str = "kuma.io/policy-role";
/// The namespace of Kuma itself on Kubernetes. It holds the operators' policies and the copies of other zones' objects.
pub const SYSTEM_NAMESPACE: &str = "kuma-system";
/// Label with the effect of a policy. The value `shadow` marks a policy that is evaluated and not applied.
pub const EFFECT_LABEL: &str = "kuma.io/effect";
/// Tag and label with the Kubernetes namespace.
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
/// A request for a builtin gateway on Kubernetes.
pub type MeshGatewayInstance = MeshObject<MeshGatewayInstanceSpec>;

/// An object of a mesh, read from either form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshObject<S> {
    /// Metadata. For its namespace, see [the module](self).
    pub metadata: Meta,
    /// Name of the object's mesh.
    pub mesh: Arc<str>,
    /// Spec of the kind.
    pub spec: S,
}

impl<S> MeshObject<S> {
    /// Returns the label `kuma.io/display-name` or, if unset, the name.
    pub fn display_name(&self) -> &str {
        display_name(&self.metadata)
    }
}

/// Returns the label `kuma.io/display-name` or, if unset, the name.
pub fn display_name(metadata: &Meta) -> &str {
    let label = metadata.labels.get(DISPLAY_NAME_LABEL);
    label.unwrap_or(&metadata.name)
}

/// Returns the Kubernetes namespace that an object originates from. Copies in the system namespace and universal documents have it in the
/// label `k8s.kuma.io/namespace`.
pub fn home_namespace(metadata: &Meta) -> Option<&str> {
    let original = metadata.labels.get(NAMESPACE_TAG);
    match metadata.namespace.kubernetes() {
        Some(SYSTEM_NAMESPACE) => original.or(Some(SYSTEM_NAMESPACE)),
        None if is_universal(metadata) => original,
        own => own,
    }
}

/// Returns whether the object is a universal document of a mesh.
pub fn is_universal(metadata: &Meta) -> bool {
    metadata.namespace.mesh().is_some()
}

impl<'de, S: DeserializeOwned> Deserialize<'de> for MeshObject<S> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let value = Json::deserialize(d)?;
        let is_universal = is_universal_document(&value);
        let (metadata, mesh) = if is_universal {
            universal(&value).map_err(D::Error::custom)?
        } else {
            kubernetes(&value).map_err(D::Error::custom)?
        };
        let spec = match value.get("spec") {
            Some(spec) => S::deserialize(spec),
            // Kinds that predate policies have the fields of the spec at the top level of a universal document.
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

/// Returns whether an object is written as a universal document.
pub(crate) fn is_universal_document(value: &Json) -> bool {
    value.get("type").is_some() && value.get("apiVersion").is_none()
}

/// Returns the replacement for an unsupported kind that routes traffic: an older kind of Kuma's, or an alternative that MADR 011 rejected.
pub(crate) fn replacement_for(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "TrafficRoute" | "MeshTrafficRoute" => "use a MeshHTTPRoute or MeshTCPRoute instead",
        "MeshGatewayRoute" | "MeshGatewayTCPRoute" => {
            "use a MeshHTTPRoute or MeshTCPRoute whose targetRef is the MeshGateway instead"
        }
        "HTTPRouteRules" => "define the rules in a MeshHTTPRoute instead",
        "ExternalService" => "use a MeshExternalService instead",
        "VirtualOutbound" => "define outbounds in the Dataplane instead",
        _ => return None,
    })
}

/// The key of the data in a Secret of Kuma's.
pub const SECRET_KEY: &str = "value";

/// Converts a universal Secret to the Secret that represents it on Kubernetes, with the data under one key.
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
        // Only a Mesh does not belong to a mesh.
        namespace: text("mesh").map(NamespaceName::of_mesh).unwrap_or_default(),
        generation: 1,
        labels: labels.map_or(Ok(Labels::default()), Labels::deserialize)?,
        annotations: Labels::default(),
        uid: None,
        creation_timestamp: text("creationTime").and_then(rfc3339),
        input_order: 0,
    };
    Ok((meta, text("mesh").unwrap_or(name).into()))
}

/// The parts of a Kuma service name on Kubernetes, `NAME_NAMESPACE_svc_PORT`. Services without ports omit `_PORT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KubernetesService<'n> {
    /// Name of the Service, or of the Pods' owner if there is no Service.
    pub name: &'n str,
    /// Namespace of the Service.
    pub namespace: &'n str,
    /// Port of the Service.
    pub port: Option<u16>,
}

impl<'n> KubernetesService<'n> {
    /// Parses a service name, or returns `None` if it has another form.
    pub fn parse(service: &'n str) -> Option<Self> {
        let mut parts = service.split('_');
        let (name, namespace, svc) = (parts.next()?, parts.next()?, parts.next()?);
        let port = match parts.next() {
            // Ports have no leading zeros in these names; `03001` is part of another service's name.
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
