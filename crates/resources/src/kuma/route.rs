//! MeshHTTPRoute, MeshTCPRoute and MeshGatewayHTTPRoute as one type. The kinds differ in how they refer to their targets.
#![allow(missing_docs, reason = "fields are named and documented as in Kuma")]

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value as Json;

use super::{BackendRef, Filter, MeshObject, TargetRef};
use crate::meta::{Kind, Meta, null_as_default};
use crate::route::{PathMatch, ValueMatch};

/// A route of any of Kuma's three kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshRoute {
    pub kind: Kind,
    pub metadata: Meta,
    pub mesh: Arc<str>,
    pub spec: MeshRouteSpec,
}

impl MeshRoute {
    /// Deserializes an object that is valid and has its defaults filled in.
    pub(crate) fn from_json(kind: Kind, value: &Json) -> Result<Self, serde_json::Error> {
        let MeshObject {
            metadata,
            mesh,
            spec,
        } = MeshObject::<RawSpec>::deserialize(value)?;
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

    /// Returns the field path of an item of `to` in the manifest.
    pub fn to_field(&self, to: usize) -> String {
        match self.kind {
            Kind::MeshGatewayHTTPRoute => "spec".to_owned(),
            _ => format!("spec.to[{to}]"),
        }
    }

    /// Returns the field path of a rule in the manifest.
    pub fn rule_field(&self, to: usize, rule: usize) -> String {
        format!("{}.rules[{rule}]", self.to_field(to))
    }
}

/// The spec of a [`MeshRoute`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeshRouteSpec {
    /// Proxies that the route configures; defaults to all proxies of the mesh.
    pub target_ref: TargetRef,
    /// Destinations and their rules. The hostnames and rules of a MeshGatewayHTTPRoute, which has no `to`, are in a single item with the
    /// target `Mesh`, as in an equivalent MeshHTTPRoute.
    pub to: Vec<To>,
}

/// Serialized form of [`MeshRouteSpec`]: `to`, or the hostnames and rules of a MeshGatewayHTTPRoute.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSpec {
    #[serde(default, deserialize_with = "null_as_default")]
    target_ref: TargetRef,
    #[serde(default, deserialize_with = "null_as_default")]
    to: Vec<To>,
    #[serde(default, deserialize_with = "null_as_default")]
    hostnames: Vec<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    rules: Vec<Rule>,
}

/// A destination and the rules for its traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct To {
    /// `Mesh` on gateways.
    #[serde(default, deserialize_with = "null_as_default")]
    pub target_ref: TargetRef,
    /// Hostnames that the rules apply to; all if empty. Gateways only.
    #[serde(default, deserialize_with = "null_as_default")]
    pub hostnames: Vec<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub rules: Vec<Rule>,
}

/// A rule of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Rule {
    /// Alternatives, one of which must match. Empty in a MeshTCPRoute.
    #[serde(default, deserialize_with = "null_as_default")]
    pub matches: Vec<Match>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub default: RuleConf,
}

/// Configuration of a rule. Unset fields are inherited from less specific policies; an empty list overrides them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleConf {
    pub filters: Option<Vec<Filter>>,
    /// Defaults to the original destination.
    pub backend_refs: Option<Vec<BackendRef>>,
}

/// Conditions on a request, all of which must hold. Rules of different policies merge if their lists of matches are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Match {
    pub path: Option<PathMatch>,
    pub method: Option<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub headers: Vec<HeaderMatch>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub query_params: Vec<ValueMatch>,
}

/// A condition on a header.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "RawHeaderMatch")]
pub struct HeaderMatch {
    /// Header name in lower case.
    pub name: String,
    pub test: HeaderTest,
}

/// Match type of a header, with its operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HeaderTest {
    Exact(String),
    Present,
    Absent,
    Prefix(String),
    /// The expression must match the whole value.
    RegularExpression(String),
}

/// Serialized form of [`HeaderMatch`].
#[derive(Deserialize)]
struct RawHeaderMatch {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    name: String,
    #[serde(default)]
    value: String,
}

impl TryFrom<RawHeaderMatch> for HeaderMatch {
    type Error = String;

    fn try_from(RawHeaderMatch { kind, name, value }: RawHeaderMatch) -> Result<Self, String> {
        let test = match kind.as_deref().unwrap_or("Exact") {
            "Exact" => HeaderTest::Exact(value),
            "Present" => HeaderTest::Present,
            "Absent" => HeaderTest::Absent,
            // Every value has the empty prefix.
            "Prefix" if value.is_empty() => HeaderTest::Present,
            "Prefix" => HeaderTest::Prefix(value),
            "RegularExpression" => HeaderTest::RegularExpression(value),
            other => return Err(format!("unsupported header match type `{other}`")),
        };
        let name = name.to_ascii_lowercase();
        Ok(HeaderMatch { name, test })
    }
}
