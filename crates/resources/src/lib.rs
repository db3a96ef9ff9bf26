//! Typed resources, and the parser and validator that produce them from YAML and JSON manifests.
//!
//! Kinds share types as the APIs do: there is one parent reference, one backend reference, one route. The crate does no I/O: the caller
//! passes the contents of each file and its name, and receives resources and findings.

use std::sync::Arc;

pub mod core;
mod document;
mod finding;
pub mod gateway;
pub mod kuma;
pub mod meta;
pub mod parameters;
pub mod policy;
pub mod read;
pub mod refs;
pub mod route;
mod schema;
pub mod served;
pub mod text;

pub use document::{Position, to_yaml};
pub use finding::{Finding, Severity};
pub use meta::{Age, Kind, Meta, Name, NamespaceName, ObjectKey};
pub use schema::validate::closest;

/// Generates [`Resource`] from the kinds that have a type of their own. Route kinds share a type and are listed by hand.
macro_rules! resources {
    ($($kind:ident: $module:ident),* $(,)?) => {
        /// An object of any kind that Pointsman reads. Cheap to clone.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each variant is the kind of that name")]
        pub enum Resource {
            /// HTTPRoute, GRPCRoute, TLSRoute, TCPRoute or UDPRoute.
            Route(Arc<route::Route>),
            /// MeshHTTPRoute, MeshTCPRoute or MeshGatewayHTTPRoute.
            MeshRoute(Arc<kuma::MeshRoute>),
            $($kind(Arc<$module::$kind>),)*
        }

        impl Resource {
            /// Deserializes an object that is valid and has its defaults filled in, as the API server serves it.
            pub fn from_json(kind: Kind, value: &serde_json::Value) -> Result<Resource, serde_json::Error> {
                use serde::Deserialize;
                Ok(match kind {
                    Kind::HTTPRoute | Kind::GRPCRoute | Kind::TLSRoute | Kind::TCPRoute | Kind::UDPRoute => {
                        Resource::Route(Arc::new(route::Route { kind, ..route::Route::deserialize(value)? }))
                    }
                    Kind::MeshHTTPRoute | Kind::MeshTCPRoute | Kind::MeshGatewayHTTPRoute => {
                        Resource::MeshRoute(Arc::new(kuma::MeshRoute::from_json(kind, value)?))
                    }
                    Kind::Secret if kuma::is_universal_document(value) => {
                        Resource::Secret(Arc::new(kuma::secret(value)?))
                    }
                    $(Kind::$kind => Resource::$kind(Arc::new($module::$kind::deserialize(value)?)),)*
                })
            }

            /// Returns the object's kind.
            pub fn kind(&self) -> Kind {
                match self {
                    Resource::Route(route) => route.kind,
                    Resource::MeshRoute(route) => route.kind,
                    $(Resource::$kind(_) => Kind::$kind,)*
                }
            }

            /// Returns the object's metadata.
            pub fn meta(&self) -> &Meta {
                match self {
                    Resource::Route(object) => &object.metadata,
                    Resource::MeshRoute(object) => &object.metadata,
                    $(Resource::$kind(object) => &object.metadata,)*
                }
            }

            /// Returns the object's metadata for modification. Clones the object if it is shared.
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
    GatewayParameters: parameters,
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
    /// Returns the kind, namespace and name of the object.
    pub fn key(&self) -> ObjectKey {
        ObjectKey {
            kind: self.kind(),
            name: self.meta().key(),
        }
    }
}
