//! Statuses of objects, and merging them with the `.status` on the API server.
//!
//! A [`Status`] is a pure function of the binder's inputs and contains no times. [`Status::merge`] merges it with an existing `.status`: entries of other
//! controllers and conditions of unknown types are kept, and a condition whose status is unchanged keeps its transition time.

pub(crate) mod certificate_warnings;
mod compute;
pub mod effect;
mod merge;
pub(crate) mod warnings;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

pub use effect::IN_EFFECT;
use pointsman_resources::refs::ParentReference;
use pointsman_resources::{Kind, ObjectKey};

use crate::endpoint_policy::refused::ENDPOINTS_REFUSED;

/// A condition, without its times and observed generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type, such as `Accepted` or `ResolvedRefs`.
    pub kind: &'static str,
    /// Its status.
    pub status: ConditionStatus,
    /// Machine-readable reason.
    pub reason: &'static str,
    /// Human-readable message.
    pub message: Cow<'static, str>,
}

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It is not known whether it holds.
    Unknown,
}

impl fmt::Display for ConditionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        })
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        match holds {
            true => ConditionStatus::True,
            false => ConditionStatus::False,
        }
    }
}

impl Condition {
    /// Creates a condition.
    pub fn new(
        kind: &'static str,
        status: impl Into<ConditionStatus>,
        reason: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Condition {
            kind,
            status: status.into(),
            reason,
            message: message.into(),
        }
    }

    /// Creates a condition with status `True`.
    pub fn yes(
        kind: &'static str,
        reason: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Condition::new(kind, true, reason, message)
    }

    /// Creates a condition with status `False`.
    pub fn no(
        kind: &'static str,
        reason: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Condition::new(kind, false, reason, message)
    }

    /// Returns whether the status is `True`.
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }

    /// Returns whether the condition reports a problem: something is rejected, unresolved or not in effect.
    pub fn is_problem(&self) -> bool {
        match self.kind {
            "Conflicted" | "PartiallyInvalid" | ENDPOINTS_REFUSED => self.is_true(),
            "OverlappingTLSConfig" | "InsecureFrontendValidationMode" => false,
            // Without proxies, nothing is wrong with the object.
            IN_EFFECT => self.status == ConditionStatus::False,
            _ => !self.is_true() || self.reason == "ListenersNotValid",
        }
    }
}

/// Status of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Observed generation.
    pub generation: i64,
    /// Name of the controller that reports it.
    pub controller: Arc<str>,
    /// Content, by kind of object.
    pub body: StatusBody,
}

/// Content of a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusBody {
    /// Status of a GatewayClass or an XMesh.
    Class {
        /// Conditions.
        conditions: Vec<Condition>,
        /// Supported features, sorted.
        features: Arc<[&'static str]>,
    },
    /// Status of a Gateway or a ListenerSet.
    Gateway {
        /// Conditions.
        conditions: Vec<Condition>,
        /// Type and value of each address; empty for a ListenerSet.
        addresses: Vec<(String, String)>,
        /// Listeners.
        listeners: Vec<ListenerStatus>,
        /// Number of attached ListenerSets; `None` unless a Gateway allows them.
        attached_listener_sets: Option<usize>,
    },
    /// Status of a route, with an entry for each parent.
    Route(Vec<ParentStatus>),
    /// Status of a policy, with an entry for each ancestor.
    Policy(Vec<AncestorStatus>),
    /// Status of an XBackend, with an entry for each ancestor.
    Backend(Vec<AncestorStatus>),
    /// Status of one of Kuma's policies.
    Mesh {
        /// Conditions.
        conditions: Vec<Condition>,
        /// Traffic to which the policy applies.
        reaches: Vec<PolicyReach>,
    },
}

/// A target to which a Kuma policy applies, with the proxies that call or serve it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyReach {
    /// A destination or a MeshGateway.
    pub to: String,
    /// The proxies, in groups that are shared between policies.
    pub proxies: Vec<Arc<[ObjectKey]>>,
}

impl PolicyReach {
    /// Returns the proxies in order.
    pub fn proxies(&self) -> BTreeSet<&ObjectKey> {
        self.proxies.iter().flat_map(|group| group.iter()).collect()
    }
}

/// Status of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerStatus {
    /// Name of the listener.
    pub name: String,
    /// Kinds of routes that may attach.
    pub supported_kinds: Vec<Kind>,
    /// Number of attached routes.
    pub attached_routes: usize,
    /// Conditions.
    pub conditions: Vec<Condition>,
}

/// Status of a route with respect to one of its parents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentStatus {
    /// The parent reference as written.
    pub parent: Arc<ParentReference>,
    /// Conditions.
    pub conditions: Vec<Condition>,
}

/// Status of a policy with respect to one ancestor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AncestorStatus {
    /// The ancestor.
    pub ancestor: ObjectKey,
    /// Conditions.
    pub conditions: Vec<Condition>,
}

impl Status {
    /// Returns every condition with its subject: a listener, a parent, an ancestor, or the object itself (empty).
    pub fn conditions(&self) -> Vec<(String, &Condition)> {
        let mut all = Vec::new();
        match &self.body {
            StatusBody::Class { conditions, .. } | StatusBody::Mesh { conditions, .. } => {
                all.extend(conditions.iter().map(|c| (String::new(), c)));
            }
            StatusBody::Gateway {
                conditions,
                listeners,
                ..
            } => {
                all.extend(conditions.iter().map(|c| (String::new(), c)));
                for listener in listeners {
                    let subject = format!("listener {}", listener.name);
                    all.extend(listener.conditions.iter().map(|c| (subject.clone(), c)));
                }
            }
            StatusBody::Route(parents) => {
                for parent in parents {
                    let subject = format!("parent {}", parent_text(&parent.parent));
                    all.extend(parent.conditions.iter().map(|c| (subject.clone(), c)));
                }
            }
            StatusBody::Policy(ancestors) | StatusBody::Backend(ancestors) => {
                for ancestor in ancestors {
                    let subject = format!("ancestor {}", ancestor.ancestor);
                    all.extend(ancestor.conditions.iter().map(|c| (subject.clone(), c)));
                }
            }
        }
        all
    }
}

/// Returns whether Pointsman reports status for objects of a kind.
pub fn has_status(kind: Kind) -> bool {
    kind.is_route()
        || kind.is_mesh_route()
        || matches!(
            kind,
            Kind::GatewayClass
                | Kind::Gateway
                | Kind::ListenerSet
                | Kind::BackendTLSPolicy
                | Kind::XBackend
                | Kind::XBackendTrafficPolicy
                | Kind::XTelemetryPolicy
                | Kind::XMesh
                | Kind::MeshGateway
                | Kind::MeshExternalService
        )
}

/// Formats a parent reference.
pub(crate) fn parent_text(parent: &ParentReference) -> String {
    use std::fmt::Write;
    let mut text = format!("{} ", parent.kind);
    if let Some(namespace) = &parent.namespace {
        let _ = write!(text, "{namespace}/");
    }
    text += &parent.name;
    if let Some(section) = &parent.section_name {
        let _ = write!(text, " section {section}");
    }
    if let Some(port) = parent.port {
        let _ = write!(text, " port {port}");
    }
    text
}
