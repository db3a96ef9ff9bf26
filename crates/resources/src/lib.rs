//! Documents to typed resources.
//!
//! The types are written once for all kinds that share them: one parent reference, one backend reference, one route.
//! Nothing here does I/O: text comes in with the name of its file, resources and findings go out.

pub mod core;
pub mod gateway;
pub mod meta;
pub mod policy;
pub mod refs;
pub mod route;

pub use meta::{Age, Kind, Meta, Name, ObjectKey};

/// An object of any kind that Pointsman reads.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each variant is the kind of that name")]
pub enum Resource {
    GatewayClass(gateway::GatewayClass),
    Gateway(gateway::Gateway),
    ListenerSet(gateway::ListenerSet),
    /// Any of the five route kinds.
    Route(route::Route),
    ReferenceGrant(policy::ReferenceGrant),
    BackendTLSPolicy(policy::BackendTLSPolicy),
    XBackend(policy::XBackend),
    XBackendTrafficPolicy(policy::XBackendTrafficPolicy),
    XTelemetryPolicy(policy::XTelemetryPolicy),
    XMesh(policy::XMesh),
    MeshSettings(policy::MeshSettings),
    Service(core::Service),
    ServiceImport(core::ServiceImport),
    EndpointSlice(core::EndpointSlice),
    Namespace(core::Namespace),
    Pod(core::Pod),
    Secret(core::Secret),
    ConfigMap(core::ConfigMap),
    ClusterTrustBundle(core::ClusterTrustBundle),
}

impl Resource {
    /// Reads an object that is valid and defaulted, as the API server serves it.
    pub fn from_value(kind: Kind, value: serde_json::Value) -> Result<Resource, serde_json::Error> {
        use serde_json::from_value as read;
        Ok(match kind {
            Kind::GatewayClass => Resource::GatewayClass(read(value)?),
            Kind::Gateway => Resource::Gateway(read(value)?),
            Kind::ListenerSet => Resource::ListenerSet(read(value)?),
            Kind::HTTPRoute
            | Kind::GRPCRoute
            | Kind::TLSRoute
            | Kind::TCPRoute
            | Kind::UDPRoute => Resource::Route(route::Route {
                kind,
                ..read(value)?
            }),
            Kind::ReferenceGrant => Resource::ReferenceGrant(read(value)?),
            Kind::BackendTLSPolicy => Resource::BackendTLSPolicy(read(value)?),
            Kind::XBackend => Resource::XBackend(read(value)?),
            Kind::XBackendTrafficPolicy => Resource::XBackendTrafficPolicy(read(value)?),
            Kind::XTelemetryPolicy => Resource::XTelemetryPolicy(read(value)?),
            Kind::XMesh => Resource::XMesh(read(value)?),
            Kind::MeshSettings => Resource::MeshSettings(read(value)?),
            Kind::Service => Resource::Service(read(value)?),
            Kind::ServiceImport => Resource::ServiceImport(read(value)?),
            Kind::EndpointSlice => Resource::EndpointSlice(read(value)?),
            Kind::Namespace => Resource::Namespace(read(value)?),
            Kind::Pod => Resource::Pod(read(value)?),
            Kind::Secret => Resource::Secret(read(value)?),
            Kind::ConfigMap => Resource::ConfigMap(read(value)?),
            Kind::ClusterTrustBundle => Resource::ClusterTrustBundle(read(value)?),
        })
    }

    /// The object's kind.
    pub fn kind(&self) -> Kind {
        match self {
            Resource::GatewayClass(_) => Kind::GatewayClass,
            Resource::Gateway(_) => Kind::Gateway,
            Resource::ListenerSet(_) => Kind::ListenerSet,
            Resource::Route(route) => route.kind,
            Resource::ReferenceGrant(_) => Kind::ReferenceGrant,
            Resource::BackendTLSPolicy(_) => Kind::BackendTLSPolicy,
            Resource::XBackend(_) => Kind::XBackend,
            Resource::XBackendTrafficPolicy(_) => Kind::XBackendTrafficPolicy,
            Resource::XTelemetryPolicy(_) => Kind::XTelemetryPolicy,
            Resource::XMesh(_) => Kind::XMesh,
            Resource::MeshSettings(_) => Kind::MeshSettings,
            Resource::Service(_) => Kind::Service,
            Resource::ServiceImport(_) => Kind::ServiceImport,
            Resource::EndpointSlice(_) => Kind::EndpointSlice,
            Resource::Namespace(_) => Kind::Namespace,
            Resource::Pod(_) => Kind::Pod,
            Resource::Secret(_) => Kind::Secret,
            Resource::ConfigMap(_) => Kind::ConfigMap,
            Resource::ClusterTrustBundle(_) => Kind::ClusterTrustBundle,
        }
    }

    /// The object's metadata.
    pub fn meta(&self) -> &Meta {
        match self {
            Resource::GatewayClass(object) => &object.metadata,
            Resource::Gateway(object) => &object.metadata,
            Resource::ListenerSet(object) => &object.metadata,
            Resource::Route(object) => &object.metadata,
            Resource::ReferenceGrant(object) => &object.metadata,
            Resource::BackendTLSPolicy(object) => &object.metadata,
            Resource::XBackend(object) => &object.metadata,
            Resource::XBackendTrafficPolicy(object) => &object.metadata,
            Resource::XTelemetryPolicy(object) => &object.metadata,
            Resource::XMesh(object) => &object.metadata,
            Resource::MeshSettings(object) => &object.metadata,
            Resource::Service(object) => &object.metadata,
            Resource::ServiceImport(object) => &object.metadata,
            Resource::EndpointSlice(object) => &object.metadata,
            Resource::Namespace(object) => &object.metadata,
            Resource::Pod(object) => &object.metadata,
            Resource::Secret(object) => &object.metadata,
            Resource::ConfigMap(object) => &object.metadata,
            Resource::ClusterTrustBundle(object) => &object.metadata,
        }
    }

    /// The object's metadata, to be changed.
    pub fn meta_mut(&mut self) -> &mut Meta {
        match self {
            Resource::GatewayClass(object) => &mut object.metadata,
            Resource::Gateway(object) => &mut object.metadata,
            Resource::ListenerSet(object) => &mut object.metadata,
            Resource::Route(object) => &mut object.metadata,
            Resource::ReferenceGrant(object) => &mut object.metadata,
            Resource::BackendTLSPolicy(object) => &mut object.metadata,
            Resource::XBackend(object) => &mut object.metadata,
            Resource::XBackendTrafficPolicy(object) => &mut object.metadata,
            Resource::XTelemetryPolicy(object) => &mut object.metadata,
            Resource::XMesh(object) => &mut object.metadata,
            Resource::MeshSettings(object) => &mut object.metadata,
            Resource::Service(object) => &mut object.metadata,
            Resource::ServiceImport(object) => &mut object.metadata,
            Resource::EndpointSlice(object) => &mut object.metadata,
            Resource::Namespace(object) => &mut object.metadata,
            Resource::Pod(object) => &mut object.metadata,
            Resource::Secret(object) => &mut object.metadata,
            Resource::ConfigMap(object) => &mut object.metadata,
            Resource::ClusterTrustBundle(object) => &mut object.metadata,
        }
    }

    /// Which object this is.
    pub fn key(&self) -> ObjectKey {
        ObjectKey {
            kind: self.kind(),
            name: self.meta().key(),
        }
    }
}
