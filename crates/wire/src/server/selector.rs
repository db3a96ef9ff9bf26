//! Subscriptions: the Gateways and Dataplanes that a proxy serves.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use pointsman_binding::bound::FrontendId;
use pointsman_resources::{Name, ObjectKey};

use crate::resource::Resource;

/// The part of the configuration that a proxy subscribes to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subscription {
    /// The whole configuration, including the mesh.
    Everything,
    /// The resources that the selectors match, and everything that these reference.
    Selected(BTreeSet<Selector>),
}

impl Subscription {
    /// Parses the names that a proxy subscribes to. An empty list subscribes to everything, as in xDS.
    pub fn parse(names: &[String]) -> Result<Self, String> {
        if names.is_empty() || names.iter().any(|name| name == "*") {
            return Ok(Subscription::Everything);
        }
        let selectors = names.iter().map(|name| name.parse());
        Ok(Subscription::Selected(selectors.collect::<Result<_, _>>()?))
    }

    /// Returns the names for a subscription.
    pub fn names(&self) -> Vec<String> {
        match self {
            Subscription::Everything => vec!["*".to_owned()],
            Subscription::Selected(selectors) => {
                selectors.iter().map(ToString::to_string).collect()
            }
        }
    }

    /// Restricts a subscription to the permitted part.
    pub fn restrict(&self, allowed: &Subscription) -> Subscription {
        match (self, allowed) {
            (_, Subscription::Everything) => self.clone(),
            (Subscription::Everything, _) => allowed.clone(),
            (Subscription::Selected(wanted), Subscription::Selected(allowed)) => {
                let pairs = wanted
                    .iter()
                    .flat_map(|wanted| allowed.iter().map(move |allowed| (wanted, allowed)));
                let both = pairs.filter_map(|(wanted, allowed)| wanted.intersect(allowed));
                Subscription::Selected(both.collect())
            }
        }
    }

    /// Returns the selectors of which no part is permitted.
    pub fn refused<'s>(&'s self, allowed: &Subscription) -> Vec<&'s Selector> {
        match (self, allowed) {
            (Subscription::Everything, _) | (_, Subscription::Everything) => Vec::new(),
            (Subscription::Selected(wanted), Subscription::Selected(allowed)) => {
                let is_allowed = |wanted: &Selector| {
                    let mut all = allowed.iter();
                    all.any(|allowed| wanted.intersect(allowed).is_some())
                };
                wanted.iter().filter(|wanted| !is_allowed(wanted)).collect()
            }
        }
    }

    /// Returns whether the subscription can't match any resource.
    pub fn is_empty(&self) -> bool {
        matches!(self, Subscription::Selected(selectors) if selectors.is_empty())
    }

    /// Returns whether a selector matches the resource itself.
    pub fn selects(&self, root: &SubscriptionRoot) -> bool {
        match self {
            Subscription::Everything => true,
            Subscription::Selected(all) => all.iter().any(|selector| selector.matches(root)),
        }
    }
}

impl fmt::Display for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join(", "))
    }
}

/// A resource that a selector may match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscriptionRoot {
    /// A Gateway.
    Gateway(Name),
    /// A Kuma Dataplane, or its Pod.
    Dataplane(ObjectKey),
}

impl SubscriptionRoot {
    /// Returns the Gateway or Dataplane that a resource represents.
    pub fn of(resource: &Resource) -> Option<SubscriptionRoot> {
        match resource {
            Resource::Gateway(request) => Some(match &request.proxy {
                Some(proxy) => SubscriptionRoot::Dataplane(proxy.clone()),
                None => SubscriptionRoot::Gateway(request.gateway.clone()),
            }),
            Resource::Frontend(frontend) => match &frontend.id {
                FrontendId::Outbound(outbound) => {
                    Some(SubscriptionRoot::Dataplane(outbound.dataplane.clone()))
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// Selects Gateways or Dataplanes: `gateway/NAMESPACE/NAME` or `dataplane/[MESH/]NAME`. `*` matches any namespace, mesh or name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Selector {
    kind: SelectorKind,
    /// Namespace of a Gateway, mesh of a Dataplane.
    namespace_or_mesh: NamePattern,
    name: NamePattern,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum SelectorKind {
    Gateway,
    Dataplane,
}

/// `None` matches any text.
type NamePattern = Option<String>;

impl Selector {
    /// Parses `NAMESPACE/NAME`.
    pub fn gateway(text: &str) -> Result<Self, String> {
        let (namespace, name) = text
            .split_once('/')
            .ok_or_else(|| format!("`{text}`: write NAMESPACE/NAME"))?;
        Selector::new(SelectorKind::Gateway, pattern(namespace), name)
    }

    /// Parses `[MESH/]NAME`.
    pub fn dataplane(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((mesh, name)) => Selector::new(SelectorKind::Dataplane, pattern(mesh), name),
            None => Selector::new(SelectorKind::Dataplane, None, text),
        }
    }

    fn new(kind: SelectorKind, namespace_or_mesh: NamePattern, name: &str) -> Result<Self, String> {
        let is_empty = name.is_empty() || namespace_or_mesh.as_deref() == Some("");
        if is_empty || name.contains('/') {
            return Err(format!("`{name}`: a name is expected"));
        }
        let name = pattern(name);
        Ok(Selector {
            kind,
            namespace_or_mesh,
            name,
        })
    }

    fn matches(&self, root: &SubscriptionRoot) -> bool {
        let (kind, name) = match root {
            SubscriptionRoot::Gateway(name) => (SelectorKind::Gateway, name),
            SubscriptionRoot::Dataplane(key) => (SelectorKind::Dataplane, &key.name),
        };
        let namespace_or_mesh = name.namespace.mesh().unwrap_or(&name.namespace);
        let fits = |pattern: &NamePattern, text: &str| pattern.as_deref().is_none_or(|p| p == text);
        self.kind == kind
            && fits(&self.namespace_or_mesh, namespace_or_mesh)
            && fits(&self.name, &name.name)
    }

    /// Returns the intersection of two selectors.
    fn intersect(&self, other: &Selector) -> Option<Selector> {
        let both = |a: &NamePattern, b: &NamePattern| match (a, b) {
            (Some(a), Some(b)) => (a == b).then(|| Some(a.clone())),
            (one, None) | (None, one) => Some(one.clone()),
        };
        let kind = (self.kind == other.kind).then_some(self.kind)?;
        Some(Selector {
            kind,
            namespace_or_mesh: both(&self.namespace_or_mesh, &other.namespace_or_mesh)?,
            name: both(&self.name, &other.name)?,
        })
    }
}

fn pattern(text: &str) -> NamePattern {
    (text != "*").then(|| text.to_owned())
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some(("gateway", rest)) => Selector::gateway(rest),
            Some(("dataplane", rest)) => Selector::dataplane(rest),
            _ => Err(format!(
                "`{text}` is neither gateway/NAMESPACE/NAME nor dataplane/[MESH/]NAME"
            )),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |pattern: &NamePattern| pattern.clone().unwrap_or_else(|| "*".to_owned());
        let kind = match self.kind {
            SelectorKind::Gateway => "gateway",
            SelectorKind::Dataplane => "dataplane",
        };
        match (self.kind, &self.namespace_or_mesh) {
            (SelectorKind::Dataplane, None) => write!(f, "{kind}/{}", text(&self.name)),
            _ => write!(
                f,
                "{kind}/{}/{}",
                text(&self.namespace_or_mesh),
                text(&self.name)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_resources::Kind;

    fn selected(names: &[&str]) -> Subscription {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Subscription::parse(&names).expect("a subscription")
    }

    #[test]
    fn selectors_match_their_gateways_and_dataplanes_only() {
        let gateway = SubscriptionRoot::Gateway(Name::new("infra", "edge"));
        let dataplane = |namespace_or_mesh: &str| {
            SubscriptionRoot::Dataplane(ObjectKey::new(Kind::Dataplane, namespace_or_mesh, "web"))
        };
        let (universal, kubernetes) = (dataplane("mesh:default"), dataplane("default"));
        for (name, wanted) in [
            ("gateway/infra/edge", [true, false, false]),
            ("gateway/infra/*", [true, false, false]),
            ("gateway/other/edge", [false, false, false]),
            ("dataplane/web", [false, true, true]),
            ("dataplane/default/web", [false, true, true]),
            ("dataplane/other/web", [false, false, false]),
            ("*", [true, true, true]),
        ] {
            let roots = [&gateway, &universal, &kubernetes];
            let found = roots.map(|root| selected(&[name]).selects(root));
            assert_eq!(found, wanted, "{name}");
        }
    }

    #[test]
    fn a_subscription_is_restricted_to_what_is_allowed() {
        let wanted = selected(&["gateway/infra/edge", "gateway/shop/edge", "dataplane/web"]);
        let allowed = selected(&["gateway/infra/*", "dataplane/default/web"]);
        let restricted = selected(&["gateway/infra/edge", "dataplane/default/web"]);
        assert_eq!(wanted.restrict(&allowed), restricted);
        let refused: Vec<String> = wanted
            .refused(&allowed)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(refused, ["gateway/shop/edge"]);
        let everything = Subscription::Everything;
        assert_eq!(everything.restrict(&allowed), allowed);
        assert_eq!(wanted.restrict(&everything), wanted);
        let nothing = selected(&["gateway/shop/edge"]).restrict(&allowed);
        assert_eq!(nothing, Subscription::Selected(BTreeSet::new()));
    }

    #[test]
    fn malformed_selectors_are_rejected() {
        for name in [
            "edge",
            "gateway/edge",
            "gateway//edge",
            "gateway/a/b/c",
            "dataplane/",
            "planet/a/b",
        ] {
            assert!(name.parse::<Selector>().is_err(), "{name}");
        }
    }
}
