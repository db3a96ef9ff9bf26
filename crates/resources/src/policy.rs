//! Policies and experimental kinds: ReferenceGrant, BackendTLSPolicy, XBackend, XBackendTrafficPolicy, XTelemetryPolicy, XMesh, and
//! Pointsman's MeshSettings.
#![allow(
    missing_docs,
    reason = "fields are named and documented as in the Gateway API"
)]

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::gateway::Namespaces;
use crate::meta::{Meta, null_as_default};
use crate::refs::{
    BackendObjectReference, LocalObjectReference, ObjectReference, PolicyTargetReference,
    SecretObjectReference,
};
use crate::route::{Fraction, Header, SessionPersistence};

/// Permits references from other namespaces to objects in this one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ReferenceGrant {
    pub metadata: Meta,
    pub spec: ReferenceGrantSpec,
}

/// The spec of a [`ReferenceGrant`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ReferenceGrantSpec {
    pub from: Vec<GrantFrom>,
    pub to: Vec<GrantTo>,
}

/// A kind in a namespace that is permitted to make references.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct GrantFrom {
    pub group: String,
    pub kind: String,
    pub namespace: String,
}

/// A kind, or a single object, that may be referenced.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct GrantTo {
    pub group: String,
    pub kind: String,
    /// Permits references to all objects of the kind if unset.
    pub name: Option<String>,
}

/// Configures TLS for connections to backends.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct BackendTLSPolicy {
    pub metadata: Meta,
    pub spec: BackendTLSPolicySpec,
}

/// The spec of a [`BackendTLSPolicy`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendTLSPolicySpec {
    pub target_refs: Vec<PolicyTargetReference>,
    pub validation: BackendTlsValidation,
    /// Implementation-specific options.
    #[serde(default, deserialize_with = "null_as_default")]
    pub options: BTreeMap<String, String>,
}

/// Validation of a backend's certificate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendTlsValidation {
    /// Trust anchors for the backend's certificate.
    #[serde(default, deserialize_with = "null_as_default")]
    pub ca_certificate_refs: Vec<LocalObjectReference>,
    /// `System` or an implementation-specific value.
    #[serde(rename = "wellKnownCACertificates")]
    pub well_known_ca_certificates: Option<String>,
    /// Server name (SNI) to send. The certificate must match it unless `subjectAltNames` is set.
    pub hostname: String,
    /// Alternative names, one of which the certificate must match.
    #[serde(default, deserialize_with = "null_as_default")]
    pub subject_alt_names: Vec<SubjectAltName>,
}

/// A subject alternative name to match against a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct SubjectAltName {
    /// `Hostname` or `URI`.
    #[serde(rename = "type")]
    pub kind: String,
    /// A DNS name that may begin with a wildcard label.
    pub hostname: Option<String>,
    /// A URI, such as a SPIFFE ID.
    pub uri: Option<String>,
}

/// A backend other than a Service: an external hostname or a selection of Pods.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct XBackend {
    pub metadata: Meta,
    pub spec: XBackendSpec,
}

/// The spec of an [`XBackend`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XBackendSpec {
    #[serde(rename = "type")]
    pub kind: XBackendType,
    pub external_hostname: Option<ExternalHostname>,
    pub endpoint_selector: Option<EndpointSelector>,
    pub port: XBackendPort,
    /// Application protocol, such as `HTTP2`.
    pub protocol: Option<String>,
    #[serde(default)]
    pub tls: XBackendTls,
    pub session_persistence: Option<SessionPersistence>,
}

/// Type of an [`XBackend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum XBackendType {
    ExternalHostname,
    EndpointSelector,
}

/// A DNS name outside the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ExternalHostname {
    pub hostname: String,
}

/// Selects Pods in the XBackend's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSelector {
    pub match_labels: BTreeMap<String, String>,
}

/// The port of an [`XBackend`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct XBackendPort {
    pub number: Option<u16>,
}

/// TLS configuration of connections to an [`XBackend`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XBackendTls {
    pub mode: XBackendTlsMode,
    pub validation: Option<BackendTlsValidation>,
    /// Client certificate to present.
    pub client_certificate_ref: Option<SecretObjectReference>,
}

/// TLS mode of connections to an [`XBackend`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum XBackendTlsMode {
    #[default]
    None,
    /// Only the server presents a certificate.
    ServerOnly,
    /// Mutual TLS.
    ClientAndServer,
}

/// Limits retries and configures session persistence for backends.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct XBackendTrafficPolicy {
    pub metadata: Meta,
    pub spec: XBackendTrafficPolicySpec,
}

/// The spec of an [`XBackendTrafficPolicy`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XBackendTrafficPolicySpec {
    pub target_refs: Vec<LocalObjectReference>,
    pub retry_constraint: Option<RetryConstraint>,
    pub session_persistence: Option<SessionPersistence>,
}

/// Limits retries to a share of all requests.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RetryConstraint {
    #[serde(default)]
    pub budget: RetryBudget,
    /// Rate of retries that is permitted regardless of the budget.
    #[serde(default)]
    pub min_retry_rate: RequestRate,
}

/// Maximum share of requests that may be retries, measured over an interval.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RetryBudget {
    pub percent: u32,
    /// Duration such as `10s`.
    pub interval: String,
}

impl Default for RetryBudget {
    fn default() -> Self {
        RetryBudget {
            percent: 20,
            interval: "10s".to_owned(),
        }
    }
}

/// A number of requests per interval.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RequestRate {
    pub count: u32,
    /// Duration such as `1s`.
    pub interval: String,
}

impl Default for RequestRate {
    fn default() -> Self {
        RequestRate {
            count: 10,
            interval: "1s".to_owned(),
        }
    }
}

/// Configures tracing of a Gateway's traffic.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct XTelemetryPolicy {
    pub metadata: Meta,
    pub spec: XTelemetryPolicySpec,
}

/// The spec of an [`XTelemetryPolicy`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XTelemetryPolicySpec {
    pub target_refs: Vec<LocalObjectReference>,
    pub tracing: Tracing,
}

/// Tracing configuration. All other fields are unset unless the mode is `Enabled`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tracing {
    /// `Enabled`, `Disabled` or `ImplementationDefault`.
    #[serde(default = "implementation_default")]
    pub mode: String,
    /// Destination of the spans.
    pub provider: Option<TracingProvider>,
    /// Share of requests that start a new trace.
    pub sampling_rate: Option<Fraction>,
    /// Handling of the client's sampling decision.
    pub parent_based_sampling: Option<ParentBasedSampling>,
    /// Service name of the Gateway's spans.
    pub service_name: Option<String>,
    pub span_name: Option<String>,
    /// Additional span attributes.
    #[serde(default, deserialize_with = "null_as_default")]
    pub attributes: Vec<SpanAttribute>,
}

/// Destination of the spans.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TracingProvider {
    /// Trace collector.
    pub backend_ref: BackendObjectReference,
    /// Headers of the requests to the collector.
    #[serde(default, deserialize_with = "null_as_default")]
    pub headers: Vec<Header>,
}

/// Handling of the client's sampling decision.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentBasedSampling {
    /// `Enabled`, `Disabled` or `ImplementationDefault`.
    #[serde(default = "implementation_default")]
    pub mode: String,
    /// Share of the requests sampled by the client that are traced; defaults to all.
    pub sampling_rate: Option<Fraction>,
}

/// An additional span attribute.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpanAttribute {
    pub name: String,
    /// `Header`, `Literal` or `Attribute`. Selects the one field below that is set.
    pub source_type: String,
    /// Request header whose value is recorded.
    pub header_name: Option<String>,
    pub literal_value: Option<String>,
    /// Request attribute whose value is recorded.
    pub attribute_key: Option<String>,
}

/// A mesh and the controller that manages it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct XMesh {
    pub metadata: Meta,
    pub spec: XMeshSpec,
}

/// The spec of an [`XMesh`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XMeshSpec {
    /// Name of the controller that manages the mesh.
    pub controller_name: String,
    /// Reference to the configuration of the mesh, for example a [`MeshSettings`].
    pub parameters_ref: Option<ObjectReference>,
}

/// Mesh-wide settings of the cluster operator.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct MeshSettings {
    pub metadata: Meta,
    #[serde(default)]
    pub spec: MeshSettingsSpec,
}

/// The spec of [`MeshSettings`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshSettingsSpec {
    #[serde(default, deserialize_with = "null_as_default")]
    pub allowed_routes: MeshAllowedRoutes,
    #[serde(default)]
    pub binding: MeshBinding,
    #[serde(default)]
    pub reference_grants: MeshReferenceGrants,
}

/// Namespaces whose routes may attach to Services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct MeshAllowedRoutes {
    /// Restricts routes in the namespace of their parent Service.
    pub producers: Option<MeshRouteScope>,
    /// Restricts routes in other namespaces.
    pub consumers: Option<MeshRouteScope>,
}

/// Selects the namespaces that routes may be in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct MeshRouteScope {
    /// Defaults to all namespaces.
    pub namespaces: Option<Namespaces>,
}

/// Handling of several routes for one Service and namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum MeshBinding {
    /// Routes merge (later version of GEP-1426).
    #[default]
    Merge,
    /// At most one route of each kind per Service and route namespace (earlier version of GEP-1426).
    Strict,
}

/// Handling of cross-namespace backendRefs of mesh routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum MeshReferenceGrants {
    /// No ReferenceGrant is required.
    #[default]
    Ignored,
    /// A ReferenceGrant is required.
    Required,
}

fn implementation_default() -> String {
    "ImplementationDefault".to_owned()
}
