//! Documents to typed resources.
//!
//! The types are written once for all kinds that share them: one parent reference, one backend reference, one route.
//! Nothing here does I/O: text comes in with the name of its file, resources and findings go out.

use std::sync::Arc;

pub mod core;
mod document;
mod finding;
pub mod gateway;
pub mod kuma;
pub mod meta;
pub mod policy;
pub mod read;
pub mod refs;
pub mod route;
mod schema;

pub use document::Position;
pub use finding::{Finding, Severity};
pub use meta::{Age, Kind, Meta, Name, ObjectKey};
pub use schema::validate::closest;

/// Writes what is the same for every kind that has a type of its own; routes share one and stand apart.
macro_rules! resources {
    ($($kind:ident: $module:ident),* $(,)?) => {
        /// An object of any kind that Pointsman reads. Cheap to clone.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each variant is the kind of that name")]
        pub enum Resource {
            /// Any of the Gateway API's five route kinds.
            Route(Arc<route::Route>),
            /// Any of Kuma's three route kinds.
            MeshRoute(Arc<kuma::MeshRoute>),
            $($kind(Arc<$module::$kind>),)*
        }

        impl Resource {
            /// Reads an object that is valid and defaulted, as the API server serves it.
            pub fn from_json(kind: Kind, value: &serde_json::Value) -> Result<Resource, serde_json::Error> {
                use serde::Deserialize;
                Ok(match kind {
                    Kind::HTTPRoute | Kind::GRPCRoute | Kind::TLSRoute | Kind::TCPRoute | Kind::UDPRoute => {
                        Resource::Route(Arc::new(route::Route { kind, ..route::Route::deserialize(value)? }))
                    }
                    Kind::MeshHTTPRoute | Kind::MeshTCPRoute | Kind::MeshGatewayHTTPRoute => {
                        Resource::MeshRoute(Arc::new(kuma::MeshRoute::read(kind, value)?))
                    }
                    Kind::Secret if kuma::is_document(value) => {
                        Resource::Secret(Arc::new(kuma::secret(value)?))
                    }
                    $(Kind::$kind => Resource::$kind(Arc::new($module::$kind::deserialize(value)?)),)*
                })
            }

            /// The object's kind.
            pub fn kind(&self) -> Kind {
                match self {
                    Resource::Route(route) => route.kind,
                    Resource::MeshRoute(route) => route.kind,
                    $(Resource::$kind(_) => Kind::$kind,)*
                }
            }

            /// The object's metadata.
            pub fn meta(&self) -> &Meta {
                match self {
                    Resource::Route(object) => &object.metadata,
                    Resource::MeshRoute(object) => &object.metadata,
                    $(Resource::$kind(object) => &object.metadata,)*
                }
            }

            /// The object's metadata, to be changed.
            pub fn meta_mut(&mut self) -> &mut Meta {
                match self {
                    Resource::Route(object) => &mut Arc::make_mut(object).metadata,
                    Resource::MeshRoute(object) => &mut Arc::make_mut(object).metadata,
                    $(Resource::$kind(object) => &mut Arc::make_mut(object).metadata,)*
                }
            }
        }
    };
}

resources! {
    GatewayClass: gateway,
    Gateway: gateway,
    ListenerSet: gateway,
    ReferenceGrant: policy,
    BackendTLSPolicy: policy,
    XBackend: policy,
    XBackendTrafficPolicy: policy,
    XTelemetryPolicy: policy,
    XMesh: policy,
    MeshSettings: policy,
    Mesh: kuma,
    Dataplane: kuma,
    MeshService: kuma,
    MeshExternalService: kuma,
    MeshMultiZoneService: kuma,
    MeshGateway: kuma,
    MeshGatewayInstance: kuma,
    Service: core,
    ServiceImport: core,
    EndpointSlice: core,
    Namespace: core,
    Pod: core,
    Secret: core,
    ConfigMap: core,
    ClusterTrustBundle: core,
}

impl Resource {
    /// Which object this is.
    pub fn key(&self) -> ObjectKey {
        ObjectKey {
            kind: self.kind(),
            name: self.meta().key(),
        }
    }
}
