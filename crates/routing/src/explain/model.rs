//! What `explain` answers, in the shape that tools read. Fields that don't apply are left out.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::precedence::Criterion;

/// What becomes of a request, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// What the client connects to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frontend: Option<FrontendRef>,
    /// Why that one, for people.
    pub why: String,
    /// What happens.
    pub outcome: Outcome,
    /// What the client gets when Pointsman answers itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// The same, for a gRPC call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc_status: Option<u16>,
    /// Why Pointsman answers itself, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The rule that takes the request. None in the mesh where no route governs the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleRef>,
    /// What the backend receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Received>,
    /// The answer, or the changes to the backend's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<Response>,
    /// Where it goes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<BackendShare>,
    /// Where copies go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mirrors: Vec<MirrorShare>,
    /// How long it may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
    /// Every other rule that might have been.
    pub candidates: Vec<Candidate>,
}

/// A frontend, for people and tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FrontendRef {
    /// `Gateway`, `ListenerSet`, `Service` or `ServiceImport`.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section: Option<String>,
    /// The port.
    pub port: u16,
    /// The Gateway of a ListenerSet, as `namespace/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// The namespace of the clients that a mesh frontend is for; all if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It is forwarded.
    Forward,
    /// It is answered with a redirect.
    Redirect,
    /// Pointsman answers itself.
    Respond,
    /// Nobody listens.
    NoFrontend,
    /// No rule takes it.
    NoRoute,
}

/// What a client gets from Pointsman itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// An HTTP status.
    Http(u16),
    /// The stream is cut.
    Reset,
}

impl Serialize for Status {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Status::Http(status) => serializer.serialize_u16(*status),
            Status::Reset => serializer.serialize_str("reset"),
        }
    }
}

/// A rule, and which of its matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleRef {
    /// The route's kind.
    pub kind: &'static str,
    /// The route's namespace.
    pub namespace: String,
    /// The route's name.
    pub name: String,
    /// Of a policy of Kuma's, the place of the `to` that the rule is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<usize>,
    /// The rule's place in the route, or in that `to`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<usize>,
    /// The rule's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule_name: Option<String>,
    /// The match's place in the rule.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    pub matched: Option<usize>,
    /// The policies of Kuma that it was merged from, strongest first: a name, on Kubernetes with its namespace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<String>,
}

/// A request as a backend receives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Received {
    /// The method.
    pub method: String,
    /// The URL.
    pub url: String,
    /// Every header; values on several lines are joined by `,`.
    pub headers: BTreeMap<String, String>,
}

/// An answer, or changes to one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Response {
    /// The status, where Pointsman answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Headers that are set or added.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Headers that are taken away.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// The body, where Pointsman answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

/// A backend and its part of the traffic.
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
    /// The tags that its endpoints have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Its part of the whole.
    pub share: f64,
    /// Its addresses that take traffic.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<String>,
    /// What its share is answered with when it can't be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// The same, for a gRPC call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc_status: Option<u16>,
    /// Why it can't be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What it receives, where its own filters make that differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Received>,
    /// The changes to its response, where its own filters make that differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<Response>,
}

/// A mirror and its part of the traffic.
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
    /// The tags that its endpoints have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Of how many requests it gets a copy.
    pub share: f64,
    /// Host of the copies, where it is not that of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Why it gets none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How long a request may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// All tries together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// One try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_request: Option<String>,
}

/// A rule that did not take the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// Which one.
    #[serde(flatten)]
    pub rule: RuleRef,
    /// The first criterion that it lost on.
    pub lost_on: Criterion,
    /// For people.
    pub detail: String,
}

/// A route that was not let in, or lost as a whole; the binder knows these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedCandidate {
    /// The route.
    pub route: pointsman_resources::ObjectKey,
    /// The place of the one of a policy's `to` that is meant.
    pub to: Option<usize>,
    /// The rules that are meant: the place and name of each, and how many matches it has.
    pub rules: Vec<(usize, Option<String>, usize)>,
    /// [`Criterion::Refused`], or [`Criterion::Kind`] for a route that lost to one of another kind.
    pub lost_on: Criterion,
    /// For people.
    pub detail: String,
}
