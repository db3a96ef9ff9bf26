//! MeshHTTPRoute, MeshTCPRoute and MeshGatewayHTTPRoute as one type: they differ in how they refer to their targets.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value as Json;

use super::{BackendRef, Filter, MeshObject, TargetRef};
use crate::meta::{Kind, Meta, null_as_default};
use crate::route::{PathMatch, ValueMatch};

/// A route of any of Kuma's three kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshRoute {
    /// Which of the three it is.
    pub kind: Kind,
    /// Name, labels and age.
    pub metadata: Meta,
    /// The mesh.
    pub mesh: Arc<str>,
    /// What is wanted.
    pub spec: MeshRouteSpec,
}

impl MeshRoute {
    /// Reads an object that is valid and defaulted.
    pub(crate) fn read(kind: Kind, value: &Json) -> Result<Self, serde_json::Error> {
        let MeshObject {
            metadata,
            mesh,
            spec,
        } = MeshObject::<WrittenSpec>::deserialize(value)?;
        let to = match kind {
            Kind::MeshGatewayHTTPRoute => vec![To {
                target_ref: TargetRef::default(),
                hostnames: spec.hostnames,
                rules: spec.rules,
            }],
            _ => spec.to,
        };
        let target_ref = spec.target_ref;
        Ok(MeshRoute {
            kind,
            metadata,
            mesh,
            spec: MeshRouteSpec { target_ref, to },
        })
    }

    /// The field of one of its `to`, as its author wrote it.
    pub fn to_field(&self, to: usize) -> String {
        match self.kind {
            Kind::MeshGatewayHTTPRoute => "spec".to_owned(),
            _ => format!("spec.to[{to}]"),
        }
    }

    /// The field of one of its rules, as its author wrote it.
    pub fn rule_field(&self, to: usize, rule: usize) -> String {
        format!("{}.rules[{rule}]", self.to_field(to))
    }
}

/// The spec of a [`MeshRoute`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeshRouteSpec {
    /// The proxies whose requests it is about; all of the mesh if left out.
    pub target_ref: TargetRef,
    /// The destinations and their rules. A MeshGatewayHTTPRoute, which has hostnames and rules and no `to`, has them in one
    /// item with the target `Mesh`: so a MeshHTTPRoute on a gateway says the same.
    pub to: Vec<To>,
}

/// The spec of a route as it is written: `to`, or a MeshGatewayHTTPRoute's hostnames and rules.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenSpec {
    #[serde(default, deserialize_with = "null_as_default")]
    target_ref: TargetRef,
    #[serde(default, deserialize_with = "null_as_default")]
    to: Vec<To>,
    #[serde(default, deserialize_with = "null_as_default")]
    hostnames: Vec<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    rules: Vec<Rule>,
}

/// A destination and the rules for what goes there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct To {
    /// The destination; `Mesh` on gateways.
    #[serde(default, deserialize_with = "null_as_default")]
    pub target_ref: TargetRef,
    /// The hostnames that the rules are for; all if empty. On gateways only.
    #[serde(default, deserialize_with = "null_as_default")]
    pub hostnames: Vec<String>,
    /// The rules.
    #[serde(default, deserialize_with = "null_as_default")]
    pub rules: Vec<Rule>,
}

/// What happens to some of the requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Rule {
    /// Which requests; any one of these suffices. A MeshTCPRoute has none.
    #[serde(default, deserialize_with = "null_as_default")]
    pub matches: Vec<Match>,
    /// What happens to them.
    #[serde(default, deserialize_with = "null_as_default")]
    pub default: RuleConf,
}

/// What happens to the requests of a rule. What is left out comes from less specific policies; an empty list does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleConf {
    /// What is done to them.
    pub filters: Option<Vec<Filter>>,
    /// Where they go; where they were going if there is none.
    pub backend_refs: Option<Vec<BackendRef>>,
}

/// Which requests a rule takes: all of what is set must hold. Rules merge where their lists of these are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Match {
    /// The path; any if left out.
    pub path: Option<PathMatch>,
    /// The method.
    pub method: Option<String>,
    /// The headers.
    #[serde(default, deserialize_with = "null_as_default")]
    pub headers: Vec<HeaderMatch>,
    /// The query parameters.
    #[serde(default, deserialize_with = "null_as_default")]
    pub query_params: Vec<ValueMatch>,
}

/// A header and what is wanted of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "WrittenHeader")]
pub struct HeaderMatch {
    /// Its name, in lower case.
    pub name: String,
    /// What is wanted of it.
    pub test: HeaderTest,
}

/// What is wanted of a header.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HeaderTest {
    /// This value.
    Exact(String),
    /// Any value.
    Present,
    /// That it is not there.
    Absent,
    /// A value that begins so.
    Prefix(String),
    /// A value that this expression covers.
    RegularExpression(String),
}

/// A [`HeaderMatch`] as it is written.
#[derive(Deserialize)]
struct WrittenHeader {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    name: String,
    #[serde(default)]
    value: String,
}

impl TryFrom<WrittenHeader> for HeaderMatch {
    type Error = String;

    fn try_from(WrittenHeader { kind, name, value }: WrittenHeader) -> Result<Self, String> {
        let test = match kind.as_deref().unwrap_or("Exact") {
            "Exact" => HeaderTest::Exact(value),
            "Present" => HeaderTest::Present,
            "Absent" => HeaderTest::Absent,
            // Every value begins with nothing.
            "Prefix" if value.is_empty() => HeaderTest::Present,
            "Prefix" => HeaderTest::Prefix(value),
            "RegularExpression" => HeaderTest::RegularExpression(value),
            other => return Err(format!("a header can't be matched by `{other}`")),
        };
        let name = name.to_ascii_lowercase();
        Ok(HeaderMatch { name, test })
    }
}
