//! Lookup of Kuma's objects by the names that people give them.

use std::net::IpAddr;

use pointsman_binding::Binder;
use pointsman_resources::{Kind, Name, ObjectKey, Resource};

/// A name that does not identify exactly one object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// No object has the name.
    #[error("there is no {0} with this name")]
    Unknown(&'static str),
    /// Several objects have the name.
    #[error(
        "the name is ambiguous; it may be {}: use MESH/NAME (on Kubernetes, NAMESPACE/NAME) or dataplane/NAME",
        .0.join(" or ")
    )]
    Ambiguous(Vec<String>),
}

/// Finds the only proxy or MeshGateway with a name: `NAME` or `MESH/NAME`, on Kubernetes `NAMESPACE/NAME`. The prefix `dataplane/` excludes MeshGateways.
pub fn proxy_or_gateway(binder: &Binder, given: &str) -> Result<ObjectKey, NameError> {
    if given.starts_with("dataplane/") {
        return dataplane(binder, given);
    }
    let found = without_gateway_proxies(binder, binder.named_proxies(given));
    exactly_one(found, "Dataplane, Pod in a mesh or MeshGateway")
}

/// Finds the only Dataplane, or Pod in a mesh, with a name of the form `dataplane/NAME`.
pub(super) fn dataplane(binder: &Binder, given: &str) -> Result<ObjectKey, NameError> {
    let name = given.strip_prefix("dataplane/").unwrap_or(given);
    let mut found = binder.named_proxies(name);
    found.retain(|key| key.kind != Kind::MeshGateway);
    exactly_one(found, "Dataplane")
}

/// Removes proxies that serve a MeshGateway which is also in the list: both names stand for the same gateway.
fn without_gateway_proxies(binder: &Binder, found: Vec<ObjectKey>) -> Vec<ObjectKey> {
    let serves = |proxy: &&ObjectKey| found.iter().any(|other| binder.serves(proxy, other));
    found.iter().filter(|key| !serves(key)).cloned().collect()
}

fn exactly_one(found: Vec<ObjectKey>, kinds: &'static str) -> Result<ObjectKey, NameError> {
    match &found[..] {
        [] => Err(NameError::Unknown(kinds)),
        [only] => Ok(only.clone()),
        several => Err(NameError::Ambiguous(
            several.iter().map(ToString::to_string).collect(),
        )),
    }
}

/// Finds the MeshGateway that `[MESH/]NAME[/LISTENER]` names, where NAME may also be that of its proxy, and the listener. `None` if there is none.
pub(super) fn mesh_gateway(
    binder: &Binder,
    given: &str,
) -> Result<Option<(Name, Option<String>)>, NameError> {
    let parts: Vec<&str> = given.split('/').collect();
    for length in [2, 1] {
        let Some(name) = parts.get(..length) else {
            continue;
        };
        let mut found = without_gateway_proxies(binder, binder.named_proxies(&name.join("/")));
        found.retain(|key| key.kind == Kind::MeshGateway || binder.gateway_name_of(key).is_some());
        if found.is_empty() {
            continue;
        }
        let key = exactly_one(found, "MeshGateway")?;
        let name = binder.gateway_name_of(&key).unwrap_or(key.name);
        let listener = parts[length..].join("/");
        return Ok(Some((name, Some(listener).filter(|name| !name.is_empty()))));
    }
    Ok(None)
}

/// Finds the builtin gateway with an address, if there is exactly one.
pub(super) fn gateway_at(binder: &Binder, address: IpAddr) -> Option<Name> {
    let mut matching = binder.gateway_proxies().filter(|(_, proxy)| match proxy {
        Resource::Dataplane(dataplane) => dataplane.spec.networking.address.parse() == Ok(address),
        _ => false,
    });
    let first = matching.next().map(|(name, _)| name);
    first.filter(|_| matching.next().is_none())
}
