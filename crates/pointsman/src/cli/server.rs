//! Arguments of the commands that query a running process: `status` and `wait`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use pointsman_control::conditions::ObjectState;
use pointsman_resources::Kind;

use super::{Format, duration};
use crate::client::{DEFAULT_SERVER, ServerUrl};

/// Arguments of `status`.
#[derive(Args)]
pub struct StatusArgs {
    /// URL of the controller's admin server
    #[arg(long, value_name = "URL", default_value = DEFAULT_SERVER)]
    pub server: ServerUrl,

    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    pub output: Format,
}

/// Arguments of `wait`.
#[derive(Args)]
pub struct WaitArgs {
    /// Resource to wait for, such as httproute/shop/web; may be repeated
    ///
    /// The kind may be written in lower case and in the plural. Kuma's universal documents are named with their mesh in place of a namespace.
    #[arg(value_name = "KIND/NAMESPACE/NAME", required = true)]
    pub objects: Vec<ObjectRef>,

    /// State to wait for
    #[arg(long = "for", value_enum, value_name = "STATE")]
    pub state: WaitState,

    /// Time limit, such as 30s or 5m; with 0s, the state is checked once
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub timeout: Duration,

    /// Wait for this generation of the resource, or a later one [default: the latest that the controller has seen]
    ///
    /// The API server returns the generation when a resource is applied: `kubectl apply -o jsonpath={.metadata.generation}`.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i64).range(1..))]
    pub generation: Option<i64>,

    /// URL of the admin server of the controller, or of `run`
    #[arg(long, value_name = "URL", default_value = DEFAULT_SERVER)]
    pub server: ServerUrl,
}

/// A state of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WaitState {
    /// Routes and Kuma's policies: accepted by every parent, and in effect on every connected proxy that serves it
    InEffect,
    /// Any resource with a status: accepted by every parent or ancestor in its status
    Accepted,
    /// Gateways, ListenerSets and MeshGateways: ready to carry traffic
    Programmed,
}

impl WaitState {
    /// Returns the state that the conditions have to report.
    pub fn object_state(self) -> ObjectState {
        match self {
            WaitState::InEffect => ObjectState::InEffect,
            WaitState::Accepted => ObjectState::Accepted,
            WaitState::Programmed => ObjectState::Programmed,
        }
    }
}

/// A resource with a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRef {
    pub kind: Kind,
    /// Namespace or mesh; empty for a cluster-scoped object.
    pub namespace: String,
    pub name: String,
}

impl FromStr for ObjectRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let (kind, namespace, name) = match parts[..] {
            [kind, name] => (kind, "", name),
            [kind, namespace, name] => (kind, namespace, name),
            _ => return Err("expected KIND/NAMESPACE/NAME, such as httproute/shop/web".to_owned()),
        };
        let lower = kind.to_ascii_lowercase();
        let known = || {
            let all = Kind::ALL.into_iter();
            all.filter(|kind| pointsman_binding::has_status(*kind))
        };
        let found = known().find(|known| {
            let known = known.name().to_ascii_lowercase();
            lower == known
                || lower.strip_suffix('s') == Some(&known)
                || lower.strip_suffix("es") == Some(&known)
        });
        let kind = found.ok_or_else(|| {
            let known: Vec<&str> = known().map(Kind::name).collect();
            format!(
                "`{kind}` is not a kind with a status; these are {}",
                known.join(", ")
            )
        })?;
        let is_plain = |text: &str| {
            text.chars()
                .all(|char| char.is_ascii_graphic() && !"?&%#+".contains(char))
        };
        if name.is_empty() || !is_plain(name) || !is_plain(namespace) {
            return Err("the name is missing or has characters that names can't have".to_owned());
        }
        if namespace.is_empty() && !kind.is_cluster_scoped() {
            return Err(format!(
                "the namespace is missing: write {kind}/NAMESPACE/{name}"
            ));
        }
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Ok(ObjectRef {
            kind,
            namespace,
            name,
        })
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.is_empty() {
            true => write!(f, "{} {}", self.kind, self.name),
            false => write!(f, "{} {}/{}", self.kind, self.namespace, self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_named_by_kind_namespace_and_name() {
        for (text, expected) in [
            ("httproute/shop/web", "HTTPRoute shop/web"),
            ("HTTPRoutes/shop/web", "HTTPRoute shop/web"),
            (
                "meshhttproute/default/canary",
                "MeshHTTPRoute default/canary",
            ),
            ("gatewayclasses/pointsman", "GatewayClass pointsman"),
        ] {
            let parsed: ObjectRef = text.parse().expect(text);
            assert_eq!(parsed.to_string(), expected);
        }
        for (text, expected) in [
            ("web", "KIND/NAMESPACE/NAME"),
            ("httproute/web", "HTTPRoute/NAMESPACE/web"),
            ("service/shop/web", "not a kind with a status"),
            ("httproute/shop/", "name is missing"),
            ("httproute/shop/a&b", "characters"),
            ("a/b/c/d", "KIND/NAMESPACE/NAME"),
        ] {
            let error = text.parse::<ObjectRef>().expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
