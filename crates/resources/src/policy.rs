//! Policies and the experimental kinds: ReferenceGrant, BackendTLSPolicy, XBackend, XBackendTrafficPolicy,
//! XTelemetryPolicy, XMesh, and our own MeshSettings.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::gateway::Namespaces;
use crate::meta::{Meta, null_as_default};
use crate::refs::{
    BackendObjectReference, LocalObjectReference, ObjectReference, PolicyTargetReference,
    SecretObjectReference,
};
use crate::route::{Fraction, Header, SessionPersistence};

/// Lets objects of other namespaces refer to objects of this one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ReferenceGrant {
    /// Name and age.
    pub metadata: Meta,
    /// What is granted.
    pub spec: ReferenceGrantSpec,
}

/// The spec of a [`ReferenceGrant`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ReferenceGrantSpec {
    /// Who may refer.
    pub from: Vec<GrantFrom>,
    /// To what.
    pub to: Vec<GrantTo>,
}

/// Who may refer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct GrantFrom {
    /// The API group of the referrer.
    pub group: String,
    /// The kind of the referrer.
    pub kind: String,
    /// The namespace of the referrer.
    pub namespace: String,
}

/// What may be referred to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct GrantTo {
    /// The API group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The name; all of that kind if left out.
    pub name: Option<String>,
}

/// Says that backends are spoken to over TLS, and whom to trust.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct BackendTLSPolicy {
    /// Name and age.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: BackendTLSPolicySpec,
}

/// The spec of a [`BackendTLSPolicy`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendTLSPolicySpec {
    /// The Services it applies to.
    pub target_refs: Vec<PolicyTargetReference>,
    /// Whom to trust.
    pub validation: BackendTlsValidation,
    /// Settings of some implementation.
    #[serde(default, deserialize_with = "null_as_default")]
    pub options: BTreeMap<String, String>,
}

/// How a backend's certificate is verified.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendTlsValidation {
    /// Who must have signed it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub ca_certificate_refs: Vec<LocalObjectReference>,
    /// `System`, or what some implementation defines.
    #[serde(rename = "wellKnownCACertificates")]
    pub well_known_ca_certificates: Option<String>,
    /// The SNI, and the name on the certificate unless `subjectAltNames` is set.
    pub hostname: String,
    /// Names of which the certificate must carry one.
    #[serde(default, deserialize_with = "null_as_default")]
    pub subject_alt_names: Vec<SubjectAltName>,
}

/// A name that a certificate may carry.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct SubjectAltName {
    /// `Hostname` or `URI`.
    #[serde(rename = "type")]
    pub kind: String,
    /// A DNS name, perhaps with a wildcard.
    pub hostname: Option<String>,
    /// A URI, such as a SPIFFE identity.
    pub uri: Option<String>,
}

/// A backend that is not a Service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct XBackend {
    /// Name and age.
    pub metadata: Meta,
    /// What it is.
    pub spec: XBackendSpec,
}

/// The spec of an [`XBackend`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XBackendSpec {
    /// `ExternalHostname` or `EndpointSelector`.
    #[serde(rename = "type")]
    pub kind: XBackendType,
    /// A name outside the cluster.
    pub external_hostname: Option<ExternalHostname>,
    /// Pods of the same namespace.
    pub endpoint_selector: Option<EndpointSelector>,
    /// The port.
    pub port: XBackendPort,
    /// The protocol spoken.
    pub protocol: Option<String>,
    /// Whether TLS is spoken, and whom to trust.
    #[serde(default)]
    pub tls: XBackendTls,
    /// Whether a client stays with its endpoint.
    pub session_persistence: Option<SessionPersistence>,
}

/// What an [`XBackend`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "named as in the API")]
pub enum XBackendType {
    ExternalHostname,
    EndpointSelector,
}

/// A name outside the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ExternalHostname {
    /// The DNS name.
    pub hostname: String,
}

/// Pods of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSelector {
    /// Their labels.
    pub match_labels: BTreeMap<String, String>,
}

/// A port by number.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct XBackendPort {
    /// The number.
    pub number: Option<u16>,
}

/// TLS towards an [`XBackend`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XBackendTls {
    /// `None`, `ServerOnly` or `ClientAndServer`.
    pub mode: XBackendTlsMode,
    /// Whom to trust.
    pub validation: Option<BackendTlsValidation>,
    /// The certificate to present.
    pub client_certificate_ref: Option<SecretObjectReference>,
}

/// Who shows a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "named as in the API")]
pub enum XBackendTlsMode {
    #[default]
    None,
    ServerOnly,
    ClientAndServer,
}

/// How much may be tried again towards a backend.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct XBackendTrafficPolicy {
    /// Name and age.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: XBackendTrafficPolicySpec,
}

/// The spec of an [`XBackendTrafficPolicy`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XBackendTrafficPolicySpec {
    /// The backends it applies to.
    pub target_refs: Vec<LocalObjectReference>,
    /// The budget for retries.
    pub retry_constraint: Option<RetryConstraint>,
    /// Whether a client stays with its endpoint.
    pub session_persistence: Option<SessionPersistence>,
}

/// A budget for retries.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RetryConstraint {
    /// Of all requests.
    #[serde(default)]
    pub budget: RetryBudget,
    /// What is always allowed.
    #[serde(default)]
    pub min_retry_rate: RequestRate,
}

/// A part of all requests over some time.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RetryBudget {
    /// So many of a hundred
    pub percent: u32,
    /// over this time.
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

/// A number over some time.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RequestRate {
    /// So many
    pub count: u32,
    /// in this time.
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

/// How a Gateway's traffic is traced.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct XTelemetryPolicy {
    /// Name and age.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: XTelemetryPolicySpec,
}

/// The spec of an [`XTelemetryPolicy`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XTelemetryPolicySpec {
    /// The Gateways it applies to.
    pub target_refs: Vec<LocalObjectReference>,
    /// Traces.
    pub tracing: Tracing,
}

/// Traces. Everything but the mode is set with `Enabled` only.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tracing {
    /// `Enabled`, `Disabled` or `ImplementationDefault`.
    #[serde(default = "implementation_default")]
    pub mode: String,
    /// Where they are sent.
    pub provider: Option<TracingProvider>,
    /// Of how many requests.
    pub sampling_rate: Option<Fraction>,
    /// Whether the client's own decision counts.
    pub parent_based_sampling: Option<ParentBasedSampling>,
    /// The name under which the Gateway appears.
    pub service_name: Option<String>,
    /// The name of its spans.
    pub span_name: Option<String>,
    /// What spans carry beside the usual.
    #[serde(default, deserialize_with = "null_as_default")]
    pub attributes: Vec<SpanAttribute>,
}

/// Where traces are sent.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TracingProvider {
    /// The collector.
    pub backend_ref: BackendObjectReference,
    /// Headers that are sent to it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub headers: Vec<Header>,
}

/// Whether the client's own decision to trace counts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentBasedSampling {
    /// `Enabled`, `Disabled` or `ImplementationDefault`.
    #[serde(default = "implementation_default")]
    pub mode: String,
    /// Of how many requests that the client traces; all if left out.
    pub sampling_rate: Option<Fraction>,
}

/// Something that spans carry.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpanAttribute {
    /// Its name in the span.
    pub name: String,
    /// `Header`, `Literal` or `Attribute`: which of the following is set.
    pub source_type: String,
    /// The value of this request header.
    pub header_name: Option<String>,
    /// This value.
    pub literal_value: Option<String>,
    /// The value of this attribute of the request.
    pub attribute_key: Option<String>,
}

/// A mesh and the controller that serves it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct XMesh {
    /// Name and age.
    pub metadata: Meta,
    /// What is wanted.
    pub spec: XMeshSpec,
}

/// The spec of an [`XMesh`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct XMeshSpec {
    /// The controller that serves this mesh.
    pub controller_name: String,
    /// Settings of the mesh.
    pub parameters_ref: Option<ObjectReference>,
}

/// The operator's word on the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct MeshSettings {
    /// Name and age.
    pub metadata: Meta,
    /// What is wanted.
    #[serde(default)]
    pub spec: MeshSettingsSpec,
}

/// The spec of [`MeshSettings`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshSettingsSpec {
    /// Who may attach routes to Services.
    #[serde(default, deserialize_with = "null_as_default")]
    pub allowed_routes: MeshAllowedRoutes,
    /// Whether routes of one group merge.
    #[serde(default)]
    pub binding: MeshBinding,
    /// Whether backendRefs to other namespaces need a ReferenceGrant.
    #[serde(default)]
    pub reference_grants: MeshReferenceGrants,
}

/// Who may attach routes to Services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct MeshAllowedRoutes {
    /// Routes in their Service's own namespace.
    pub producers: Option<MeshRouteScope>,
    /// Routes in other namespaces.
    pub consumers: Option<MeshRouteScope>,
}

/// The namespaces of some routes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct MeshRouteScope {
    /// All if left out.
    pub namespaces: Option<Namespaces>,
}

/// Whether routes of one group merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum MeshBinding {
    /// They do (GEP-1426, the later text).
    #[default]
    Merge,
    /// One route of a kind per Service and namespace (the earlier text).
    Strict,
}

/// Whether backendRefs to other namespaces need a ReferenceGrant in the mesh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum MeshReferenceGrants {
    /// They don't.
    #[default]
    Ignored,
    /// They do.
    Required,
}

fn implementation_default() -> String {
    "ImplementationDefault".to_owned()
}
