//! The JSON output of `explain`. Fields that do not apply are omitted.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::precedence::Criterion;

/// The explanation of a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The frontend that receives the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frontend: Option<FrontendRef>,
    /// Human-readable reason for the selection of the frontend.
    pub why: String,
    /// The kind of result.
    pub outcome: Outcome,
    /// Status of a local reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<ReplyStatus>,
    /// gRPC status of a local reply to a gRPC call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc_status: Option<u16>,
    /// Human-readable reason for a local reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The matching rule. `None` for a mesh port without routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleRef>,
    /// The request that the backend receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<ReceivedRequest>,
    /// The local reply, or the changes to the backend's response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<ExplainedResponse>,
    /// The backends.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<BackendShare>,
    /// The mirrors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mirrors: Vec<MirrorShare>,
    /// The timeouts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
    /// The other rules, in order of precedence.
    pub candidates: Vec<Candidate>,
}

/// Reference to a frontend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendRef {
    /// `Gateway`, `ListenerSet`, `Service` or `ServiceImport`.
    pub kind: &'static str,
    /// Namespace of the parent.
    pub namespace: String,
    /// Name of the parent.
    pub name: String,
    /// Name of the listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section: Option<String>,
    /// The port.
    pub port: u16,
    /// The Gateway of a ListenerSet, as `namespace/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Namespace of the clients that a mesh frontend is for; all clients if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

/// The kind of result for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The request is forwarded.
    Forward,
    /// The response is a redirect.
    Redirect,
    /// Pointsman sends a local reply.
    Respond,
    /// No frontend receives the request.
    NoFrontend,
    /// No rule matches.
    NoRoute,
}

/// Status of a local reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyStatus {
    /// An HTTP status.
    Http(u16),
    /// The stream is reset.
    Reset,
}

impl Serialize for ReplyStatus {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            ReplyStatus::Http(status) => serializer.serialize_u16(*status),
            ReplyStatus::Reset => serializer.serialize_str("reset"),
        }
    }
}

/// Reference to a rule and one of its matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleRef {
    /// The route's kind.
    pub kind: &'static str,
    /// The route's namespace.
    pub namespace: String,
    /// The route's name.
    pub name: String,
    /// Index of the `to` entry, for policies of Kuma.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<usize>,
    /// Index of the rule in the route or in the `to` entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<usize>,
    /// Name of the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule_name: Option<String>,
    /// Index of the match in the rule.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    pub matched: Option<usize>,
    /// Kuma policies that the rule was merged from, in order of precedence; on Kubernetes with their namespaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<String>,
}

/// A request as a backend receives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReceivedRequest {
    /// The method.
    pub method: String,
    /// The URL.
    pub url: String,
    /// All headers. Values on several lines are joined by `,`.
    pub headers: BTreeMap<String, String>,
}

/// A response, or changes to one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExplainedResponse {
    /// Status of a local reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Headers that are set or added.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Headers that are removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// Body of a local reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

/// A backend with its share of the traffic.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendShare {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Tags of the selected endpoints.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Share of the requests, from 0 to 1.
    pub share: f64,
    /// Addresses that get traffic.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<String>,
    /// Status of the local reply if the backend can't be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<ReplyStatus>,
    /// gRPC status of that reply for a gRPC call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc_status: Option<u16>,
    /// Reason why the backend can't be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The request that it receives, if its own filters make it differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<ReceivedRequest>,
    /// The changes to its response, if its own filters make them differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<ExplainedResponse>,
}

/// A mirror with its share of the traffic.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MirrorShare {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Tags of the selected endpoints.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Share of the requests that are mirrored, from 0 to 1.
    pub share: f64,
    /// Host of the mirrored requests, if it differs from the original.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Reason why it gets no requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Timeouts of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// For all attempts together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// For one attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_request: Option<String>,
}

/// A rule that was not selected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// The rule.
    #[serde(flatten)]
    pub rule: RuleRef,
    /// The first criterion that decided against it.
    pub lost_on: Criterion,

    /// Human-readable explanation.
    pub detail: String,
}

/// A route that was not allowed to attach, or lost as a whole to another kind, as reported by the binder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedCandidate {
    /// The route.
    pub route: pointsman_resources::ObjectKey,
    /// Index of the policy's `to` entry.
    pub to: Option<usize>,
    /// Index, name and number of matches of each rule.
    pub rules: Vec<(usize, Option<String>, usize)>,
    /// [`Criterion::Refused`], or [`Criterion::Kind`] for a route that lost to one of another kind.
    pub lost_on: Criterion,
    /// Human-readable explanation.
    pub detail: String,
}
