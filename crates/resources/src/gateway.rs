//! GatewayClass, Gateway and ListenerSet.

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
    /// Name and age.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: GatewayClassSpec,
}

/// The spec of a [`GatewayClass`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayClassSpec {
    /// The controller that serves this class.
    pub controller_name: String,
    /// Settings of the class.
    pub parameters_ref: Option<ObjectReference>,
}

/// A set of listeners, and what may attach to them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Gateway {
    /// Name and age.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: GatewaySpec,
}

/// The spec of a [`Gateway`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewaySpec {
    /// The class that this Gateway belongs to.
    pub gateway_class_name: String,
    /// The listeners.
    pub listeners: Vec<Listener>,
    /// The addresses asked for.
    #[serde(default, deserialize_with = "null_as_default")]
    pub addresses: Vec<GatewayAddress>,
    /// What is generated for this Gateway.
    pub infrastructure: Option<GatewayInfrastructure>,
    /// The namespaces whose ListenerSets may attach.
    pub allowed_listeners: Option<AllowedListeners>,
    /// TLS for all listeners and for backends.
    pub tls: Option<GatewayTls>,
    /// Whether routes that use default Gateways attach here.
    pub default_scope: Option<String>,
}

/// An address that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct GatewayAddress {
    /// `IPAddress`, `Hostname`, or a type of some implementation.
    #[serde(rename = "type", default = "ip_address")]
    pub kind: String,
    /// The address; any address of the type if left out.
    pub value: Option<String>,
    /// From where it must be reachable.
    pub routability: Option<String>,
}

/// What is generated for a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayInfrastructure {
    /// Labels on everything that is generated.
    #[serde(default, deserialize_with = "null_as_default")]
    pub labels: BTreeMap<String, String>,
    /// Annotations on everything that is generated.
    #[serde(default, deserialize_with = "null_as_default")]
    pub annotations: BTreeMap<String, String>,
    /// Settings of this Gateway.
    pub parameters_ref: Option<LocalObjectReference>,
}

/// Which ListenerSets may attach to a Gateway.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct AllowedListeners {
    /// The namespaces they may be in; none if left out.
    pub namespaces: Option<Namespaces>,
}

/// A choice of namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Namespaces {
    /// `All`, `Selector`, `Same` or `None`.
    pub from: Option<From>,
    /// Which ones, with `Selector`.
    pub selector: Option<LabelSelector>,
}

/// How namespaces are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum From {
    /// Every namespace.
    All,
    /// Those that a label selector selects.
    Selector,
    /// The one that the object itself is in.
    Same,
    /// No namespace.
    None,
}

/// TLS settings of a whole Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct GatewayTls {
    /// Towards backends.
    pub backend: Option<GatewayBackendTls>,
    /// Towards clients.
    pub frontend: Option<FrontendTls>,
}

/// How a Gateway shows itself to backends.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayBackendTls {
    /// The certificate that the Gateway presents.
    pub client_certificate_ref: Option<SecretObjectReference>,
}

/// How clients are verified.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendTls {
    /// On every HTTPS port that has no settings of its own.
    pub default: TlsConfig,
    /// On single ports.
    #[serde(default, deserialize_with = "null_as_default")]
    pub per_port: Vec<TlsPortConfig>,
}

/// Settings for one port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TlsPortConfig {
    /// The port.
    pub port: u16,
    /// Its settings.
    pub tls: TlsConfig,
}

/// How clients are verified on some port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct TlsConfig {
    /// Certificates that clients must or may show.
    pub validation: Option<FrontendTlsValidation>,
}

/// Which client certificates are accepted.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendTlsValidation {
    /// Who must have signed them.
    pub ca_certificate_refs: Vec<ObjectReference>,
    /// `AllowValidOnly` or `AllowInsecureFallback`.
    #[serde(default)]
    pub mode: FrontendValidationMode,
}

/// What happens to a client without a valid certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum FrontendValidationMode {
    /// It is refused.
    #[default]
    AllowValidOnly,
    /// It is let in.
    AllowInsecureFallback,
}

/// One port that is listened on, in a Gateway or a ListenerSet.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    /// Unique among its siblings.
    pub name: String,
    /// The hostname served; all if left out.
    pub hostname: Option<String>,
    /// The port.
    pub port: u16,
    /// `HTTP`, `HTTPS`, `TLS`, `TCP`, `UDP`, or what some implementation defines.
    pub protocol: String,
    /// Certificates and mode.
    pub tls: Option<ListenerTls>,
    /// Which routes may attach.
    #[serde(default)]
    pub allowed_routes: AllowedRoutes,
    /// What happens to a request before it is routed.
    pub filters: Option<ListenerFilters>,
}

/// Certificates and mode of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerTls {
    /// Who ends the TLS session.
    #[serde(default)]
    pub mode: TlsMode,
    /// The server's certificates.
    #[serde(default, deserialize_with = "null_as_default")]
    pub certificate_refs: Vec<SecretObjectReference>,
    /// Settings of some implementation.
    #[serde(default, deserialize_with = "null_as_default")]
    pub options: BTreeMap<String, String>,
}

/// Who ends the TLS session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum TlsMode {
    /// The Gateway.
    #[default]
    Terminate,
    /// The backend.
    Passthrough,
}

/// Which routes may attach to a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct AllowedRoutes {
    /// The namespaces they may be in; the listener's own if left out.
    pub namespaces: Option<Namespaces>,
    /// The kinds they may have; all that the protocol takes if empty.
    #[serde(default, deserialize_with = "null_as_default")]
    pub kinds: Vec<RouteGroupKind>,
}

/// A kind of route.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct RouteGroupKind {
    /// The API group.
    #[serde(default = "gateway_group")]
    pub group: String,
    /// The kind.
    pub kind: String,
}

/// What happens to a request before it is routed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ListenerFilters {
    /// The filters, in order.
    #[serde(default, deserialize_with = "null_as_default")]
    pub requests: Vec<ListenerFilter>,
}

/// One filter of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerFilter {
    /// `ExternalAuth` or `ExtensionRef`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Asks another service whether the request may pass.
    pub external_auth: Option<ExternalAuth>,
    /// A filter of some implementation.
    pub extension_ref: Option<LocalObjectReference>,
}

/// Asks another service whether a request may pass.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalAuth {
    /// `HTTP` or `GRPC`.
    pub protocol: String,
    /// The service that is asked.
    pub backend_ref: BackendObjectReference,
    /// What it is asked over gRPC; set if that is the protocol.
    pub grpc: Option<GrpcAuth>,
    /// What it is asked over HTTP; set if that is the protocol.
    pub http: Option<HttpAuth>,
    /// Whether it sees the body.
    pub forward_body: Option<ForwardBody>,
}

/// What a service is asked over gRPC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrpcAuth {
    /// The request's headers that it sees; all if empty.
    #[serde(default, deserialize_with = "null_as_default")]
    pub allowed_headers: Vec<String>,
}

/// What a service is asked over HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpAuth {
    /// What stands before the request's path.
    pub path: Option<String>,
    /// The request's headers that it sees, beside those it always sees.
    #[serde(default, deserialize_with = "null_as_default")]
    pub allowed_headers: Vec<String>,
    /// The headers of its answer that the backend sees.
    #[serde(default, deserialize_with = "null_as_default")]
    pub allowed_response_headers: Vec<String>,
}

/// How much of a body is shown to the service that is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForwardBody {
    /// So many bytes; a larger body is not shown. Nothing is shown if this is 0 or left out.
    #[serde(default)]
    pub max_size: u32,
}

/// Listeners that are added to a Gateway from outside it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ListenerSet {
    /// Name and age.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: ListenerSetSpec,
}

impl ListenerSet {
    /// The name of the Gateway that it asks to be added to.
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
    /// The Gateway that the listeners are added to.
    pub parent_ref: ParentGatewayReference,
    /// The listeners.
    pub listeners: Vec<Listener>,
}

/// The Gateway that a ListenerSet belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ParentGatewayReference {
    /// The API group.
    #[serde(default = "gateway_group")]
    pub group: String,
    /// The kind.
    #[serde(default = "gateway_kind")]
    pub kind: String,
    /// The name.
    pub name: String,
    /// The namespace; the ListenerSet's own if left out.
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
