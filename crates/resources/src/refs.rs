//! References from one object to another, and label selectors: the parts that all kinds share.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::meta::{GATEWAY_GROUP, Labels, null_as_default};

/// The parent that a route wants to attach to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentReference {
    /// The API group of the parent.
    #[serde(default = "gateway_group")]
    pub group: String,
    /// The kind of the parent.
    #[serde(default = "gateway_kind")]
    pub kind: String,
    /// The parent's namespace; the route's own if left out.
    pub namespace: Option<String>,
    /// The parent's name.
    pub name: String,
    /// A listener's name, or the name of a Service's port.
    pub section_name: Option<String>,
    /// A listener's or a Service's port.
    pub port: Option<u16>,
}

/// Where traffic goes, without a weight: mirrors and external authorisation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendObjectReference {
    /// The API group of the backend; empty is the core group.
    #[serde(default)]
    pub group: String,
    /// The kind of the backend.
    #[serde(default = "service_kind")]
    pub kind: String,
    /// The backend's name.
    pub name: String,
    /// The backend's namespace; the referrer's own if left out.
    pub namespace: Option<String>,
    /// The port; required for Services.
    pub port: Option<u16>,
}

/// A reference to an object in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct LocalObjectReference {
    /// The API group; empty is the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
}

/// A reference to a Secret, by default.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct SecretObjectReference {
    /// The API group; empty is the core group.
    #[serde(default)]
    pub group: String,
    /// The kind.
    #[serde(default = "secret_kind")]
    pub kind: String,
    /// The name.
    pub name: String,
    /// The namespace; the referrer's own if left out.
    pub namespace: Option<String>,
}

/// A reference to an object that may be in another namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct ObjectReference {
    /// The API group; empty is the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The namespace; the referrer's own if left out.
    pub namespace: Option<String>,
}

/// What a policy applies to: an object of its namespace, or a section of one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyTargetReference {
    /// The API group; empty is the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// A Service's port by its name.
    pub section_name: Option<String>,
}

/// Selects by labels, as everywhere in Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that must be there with these values.
    #[serde(default, deserialize_with = "null_as_default")]
    pub match_labels: BTreeMap<String, String>,
    /// Further conditions, all of which must hold.
    #[serde(default, deserialize_with = "null_as_default")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// One condition of a [`LabelSelector`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LabelSelectorRequirement {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values that the first two compare with.
    #[serde(default, deserialize_with = "null_as_default")]
    pub values: Vec<String>,
}

impl LabelSelector {
    /// Whether these labels are selected. An empty selector selects everything.
    ///
    /// `Err` names what makes the selector invalid; the CRDs leave the operator open, so the API server accepts any.
    pub fn matches(&self, labels: &Labels) -> Result<bool, String> {
        self.matches_by(|key| labels.get(key))
    }

    /// As [`matches`](Self::matches), for labels that are looked up with `get`.
    pub fn matches_by<'l>(&self, get: impl Fn(&str) -> Option<&'l str>) -> Result<bool, String> {
        let mut all = self
            .match_labels
            .iter()
            .all(|(key, value)| get(key) == Some(value.as_str()));
        for LabelSelectorRequirement {
            key,
            operator,
            values,
        } in &self.match_expressions
        {
            let holds = match (operator.as_str(), values.is_empty()) {
                ("In", false) => get(key).is_some_and(|value| values.iter().any(|v| v == value)),
                ("NotIn", false) => get(key).is_none_or(|value| values.iter().all(|v| v != value)),
                ("Exists", true) => get(key).is_some(),
                ("DoesNotExist", true) => get(key).is_none(),
                ("In" | "NotIn", true) => {
                    return Err(format!("operator {operator} on label `{key}` needs values"));
                }
                ("Exists" | "DoesNotExist", false) => {
                    return Err(format!(
                        "operator {operator} on label `{key}` takes no values"
                    ));
                }
                _ => {
                    return Err(format!(
                        "operator `{operator}` on label `{key}` is none of In, NotIn, Exists, DoesNotExist"
                    ));
                }
            };
            all &= holds;
        }
        Ok(all)
    }
}

fn gateway_group() -> String {
    GATEWAY_GROUP.to_owned()
}

fn gateway_kind() -> String {
    "Gateway".to_owned()
}

fn service_kind() -> String {
    "Service".to_owned()
}

fn secret_kind() -> String {
    "Secret".to_owned()
}
