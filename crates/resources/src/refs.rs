//! Object references and label selectors, shared by all kinds.
#![allow(
    missing_docs,
    reason = "fields are named and documented as in the Gateway API"
)]

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::meta::{GATEWAY_GROUP, Labels, null_as_default};
use crate::text::reference_name;

/// Reference to a parent that a route attaches to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentReference {
    #[serde(default = "gateway_group")]
    pub group: String,
    #[serde(default = "gateway_kind")]
    pub kind: String,
    /// Defaults to the route's own namespace.
    pub namespace: Option<String>,
    #[serde(deserialize_with = "reference_name")]
    pub name: String,
    /// Name of a listener or of a Service port.
    pub section_name: Option<String>,
    /// Port of a listener or of a Service.
    pub port: Option<u16>,
}

/// Reference to a backend, without a weight.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendObjectReference {
    /// Empty for the core group.
    #[serde(default)]
    pub group: String,
    #[serde(default = "service_kind")]
    pub kind: String,
    #[serde(deserialize_with = "reference_name")]
    pub name: String,
    /// Defaults to the namespace of the referring object.
    pub namespace: Option<String>,
    /// Required for Services.
    pub port: Option<u16>,
}

/// Reference to an object in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct LocalObjectReference {
    /// Empty for the core group.
    pub group: String,
    pub kind: String,
    #[serde(deserialize_with = "reference_name")]
    pub name: String,
}

/// Reference to an object that is a Secret unless another kind is given.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct SecretObjectReference {
    /// Empty for the core group.
    #[serde(default)]
    pub group: String,
    #[serde(default = "secret_kind")]
    pub kind: String,
    #[serde(deserialize_with = "reference_name")]
    pub name: String,
    /// Defaults to the namespace of the referring object.
    pub namespace: Option<String>,
}

/// Reference to an object that may be in another namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct ObjectReference {
    /// Empty for the core group.
    pub group: String,
    pub kind: String,
    #[serde(deserialize_with = "reference_name")]
    pub name: String,
    /// Defaults to the namespace of the referring object.
    pub namespace: Option<String>,
}

/// Reference to the target of a policy: an object in the policy's namespace, or a section of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyTargetReference {
    /// Empty for the core group.
    pub group: String,
    pub kind: String,
    #[serde(deserialize_with = "reference_name")]
    pub name: String,
    /// Name of a Service port.
    pub section_name: Option<String>,
}

/// A Kubernetes label selector. Both parts must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Required labels and their values.
    #[serde(default, deserialize_with = "null_as_default")]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements that must all hold.
    #[serde(default, deserialize_with = "null_as_default")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// A requirement of a [`LabelSelector`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LabelSelectorRequirement {
    /// Label key.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// Operand of `In` and `NotIn`; empty for the other operators.
    #[serde(default, deserialize_with = "null_as_default")]
    pub values: Vec<String>,
}

impl LabelSelector {
    /// Returns whether the selector matches the labels. An empty selector matches everything.
    ///
    /// # Errors
    ///
    /// Describes the invalid requirement. The CRDs do not restrict the operator, so the API server accepts any text.
    pub fn matches(&self, labels: &Labels) -> Result<bool, String> {
        self.matches_by(|key| labels.get(key))
    }

    /// Like [`matches`](Self::matches), with labels that are looked up by `get`.
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
                    return Err(format!(
                        "values are required for operator {operator} on label `{key}`"
                    ));
                }
                ("Exists" | "DoesNotExist", false) => {
                    return Err(format!(
                        "values must be empty for operator {operator} on label `{key}`"
                    ));
                }
                _ => {
                    return Err(format!(
                        "unsupported operator `{operator}` on label `{key}`; supported operators: In, NotIn, Exists, DoesNotExist"
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
