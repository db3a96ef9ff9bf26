//! GatewayClass, Gateway and ListenerSet.
#![allow(
    missing_docs,
    reason = "fields are named and documented as in the Gateway API"
)]

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::meta::{GATEWAY_GROUP, Meta, Name, null_as_default};
use crate::refs::{
    BackendObjectReference, LabelSelector, LocalObjectReference, ObjectReference,
    SecretObjectReference,
};

/// A class of Gateways and the controller that serves it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct GatewayClass {
    pub metadata: Meta,
    pub spec: GatewayClassSpec,
}

/// The spec of a [`GatewayClass`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayClassSpec {
    /// Name of the controller that manages Gateways of this class.
    pub controller_name: String,
    /// Controller-specific configuration of the class.
    pub parameters_ref: Option<ObjectReference>,
}

/// A set of listeners and the addresses they listen on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Gateway {
    pub metadata: Meta,
    pub spec: GatewaySpec,
}

/// The spec of a [`Gateway`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewaySpec {
    pub gateway_class_name: String,
    pub listeners: Vec<Listener>,
    /// Requested addresses.
    #[serde(default, deserialize_with = "null_as_default")]
    pub addresses: Vec<GatewayAddress>,
    /// Metadata and parameters of generated resources.
    pub infrastructure: Option<GatewayInfrastructure>,
    /// Selects the ListenerSets that may attach.
    pub allowed_listeners: Option<AllowedListeners>,
    pub tls: Option<GatewayTls>,
    /// Scope of a default Gateway: `All` or `None`.
    pub default_scope: Option<String>,
}

/// A requested address.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct GatewayAddress {
    /// `IPAddress`, `Hostname`, `NamedAddress` or an implementation-specific type.
    #[serde(rename = "type", default = "ip_address")]
    pub kind: String,
    /// The requested address. If unset, the implementation assigns an address of the type.
    pub value: Option<String>,
    /// Required reachability, such as `Cluster` for addresses that are reachable within the cluster only.
    pub routability: Option<String>,
}

/// Metadata and parameters of the resources generated for a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayInfrastructure {
    /// Labels of generated resources.
    #[serde(default, deserialize_with = "null_as_default")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of generated resources.
    #[serde(default, deserialize_with = "null_as_default")]
    pub annotations: BTreeMap<String, String>,
    /// Controller-specific configuration of this Gateway.
    pub parameters_ref: Option<LocalObjectReference>,
}

/// Selects the ListenerSets that may attach to a Gateway.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct AllowedListeners {
    /// Defaults to no namespace.
    pub namespaces: Option<Namespaces>,
}

/// Selects namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Namespaces {
    pub from: Option<From>,
    /// Used with [`From::Selector`] only.
    pub selector: Option<LabelSelector>,
}

/// Criterion by which namespaces are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum From {
    All,
    /// Namespaces whose labels match the selector.
    Selector,
    /// The namespace of the object itself.
    Same,
    None,
}

/// TLS configuration that applies to a whole Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct GatewayTls {
    /// TLS configuration of connections to backends.
    pub backend: Option<GatewayBackendTls>,
    /// Validation of client certificates.
    pub frontend: Option<FrontendTls>,
}

/// TLS configuration of a Gateway's connections to backends.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayBackendTls {
    /// Client certificate that the Gateway presents.
    pub client_certificate_ref: Option<SecretObjectReference>,
}

/// Validation of client certificates, by port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendTls {
    /// Applies to HTTPS ports without an entry in `per_port`.
    pub default: TlsConfig,
    #[serde(default, deserialize_with = "null_as_default")]
    pub per_port: Vec<TlsPortConfig>,
}

/// Validation of client certificates on one port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TlsPortConfig {
    pub port: u16,
    pub tls: TlsConfig,
}

/// Validation of client certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct TlsConfig {
    /// If unset, no client certificate is requested.
    pub validation: Option<FrontendTlsValidation>,
}

/// Trust anchors and mode of client certificate validation.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendTlsValidation {
    /// Trust anchors for client certificates.
    pub ca_certificate_refs: Vec<ObjectReference>,
    #[serde(default)]
    pub mode: FrontendValidationMode,
}

/// Handling of clients without a valid certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum FrontendValidationMode {
    /// The handshake fails.
    #[default]
    AllowValidOnly,
    /// The connection is accepted.
    AllowInsecureFallback,
}

/// A listener of a Gateway or a ListenerSet.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    /// Unique within the Gateway or ListenerSet.
    pub name: String,
    /// Matches all hostnames if unset.
    pub hostname: Option<String>,
    pub port: u16,
    /// `HTTP`, `HTTPS`, `TLS`, `TCP`, `UDP` or an implementation-specific protocol.
    pub protocol: String,
    pub tls: Option<ListenerTls>,
    #[serde(default)]
    pub allowed_routes: AllowedRoutes,
    /// Filters that run before a request is routed.
    pub filters: Option<ListenerFilters>,
}

/// TLS configuration of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerTls {
    #[serde(default)]
    pub mode: TlsMode,
    /// Server certificates.
    #[serde(default, deserialize_with = "null_as_default")]
    pub certificate_refs: Vec<SecretObjectReference>,
    /// Implementation-specific options.
    #[serde(default, deserialize_with = "null_as_default")]
    pub options: BTreeMap<String, String>,
}

/// Handling of TLS by a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum TlsMode {
    /// The Gateway terminates TLS.
    #[default]
    Terminate,
    /// TLS is passed through to the backend.
    Passthrough,
}

/// Namespaces and kinds of the routes that may attach to a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct AllowedRoutes {
    /// Defaults to the listener's own namespace.
    pub namespaces: Option<Namespaces>,
    /// If empty, all kinds that are compatible with the listener's protocol.
    #[serde(default, deserialize_with = "null_as_default")]
    pub kinds: Vec<RouteGroupKind>,
}

/// A route kind and its API group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct RouteGroupKind {
    #[serde(default = "gateway_group")]
    pub group: String,
    pub kind: String,
}

/// Filters that a listener applies before routing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ListenerFilters {
    /// Request filters, in the order in which they run.
    #[serde(default, deserialize_with = "null_as_default")]
    pub requests: Vec<ListenerFilter>,
}

/// A filter of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerFilter {
    /// `ExternalAuth` or `ExtensionRef`.
    #[serde(rename = "type")]
    pub kind: String,
    pub external_auth: Option<ExternalAuth>,
    /// An implementation-specific filter.
    pub extension_ref: Option<LocalObjectReference>,
}

/// Authorizes each request by calling an external service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalAuth {
    /// `HTTP` or `GRPC`.
    pub protocol: String,
    /// The authorization service.
    pub backend_ref: BackendObjectReference,
    /// Set if the protocol is `GRPC`.
    pub grpc: Option<GrpcAuth>,
    /// Set if the protocol is `HTTP`.
    pub http: Option<HttpAuth>,
    /// If unset, the request body is not sent to the authorization service.
    pub forward_body: Option<ForwardBody>,
}

/// Settings of external authorization over gRPC (Envoy's `ext_authz`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrpcAuth {
    /// Request headers sent to the authorization service; all headers if empty.
    #[serde(default, deserialize_with = "null_as_default")]
    pub allowed_headers: Vec<String>,
}

/// Settings of external authorization over HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpAuth {
    /// Prefix added to the request's path.
    pub path: Option<String>,
    /// Request headers sent to the authorization service in addition to those that are always sent.
    #[serde(default, deserialize_with = "null_as_default")]
    pub allowed_headers: Vec<String>,
    /// Headers of the authorization response that are copied to the request.
    #[serde(default, deserialize_with = "null_as_default")]
    pub allowed_response_headers: Vec<String>,
}

/// Forwarding of request bodies to the authorization service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForwardBody {
    /// Size limit in bytes: larger bodies are not forwarded. 0 forwards no body.
    #[serde(default)]
    pub max_size: u32,
}

/// Additional listeners of a Gateway.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ListenerSet {
    pub metadata: Meta,
    pub spec: ListenerSetSpec,
}

impl ListenerSet {
    /// Returns the namespace and name of the parent Gateway.
    pub fn gateway(&self) -> Name {
        let parent = &self.spec.parent_ref;
        let own = &*self.metadata.namespace;
        Name::new(parent.namespace.as_deref().unwrap_or(own), &*parent.name)
    }
}

/// The spec of a [`ListenerSet`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerSetSpec {
    pub parent_ref: ParentGatewayReference,
    pub listeners: Vec<Listener>,
}

/// Reference to the Gateway that a ListenerSet attaches to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ParentGatewayReference {
    #[serde(default = "gateway_group")]
    pub group: String,
    #[serde(default = "gateway_kind")]
    pub kind: String,
    pub name: String,
    /// Defaults to the ListenerSet's own namespace.
    pub namespace: Option<String>,
}

fn gateway_group() -> String {
    GATEWAY_GROUP.to_owned()
}

fn gateway_kind() -> String {
    "Gateway".to_owned()
}

fn ip_address() -> String {
    "IPAddress".to_owned()
}
