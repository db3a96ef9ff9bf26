//! Which object of Kuma's a command line means by a name.

use std::net::IpAddr;

use anyhow::{Result, bail};
use pointsman_binding::Binder;
use pointsman_resources::{Kind, Name, ObjectKey, Resource};

/// The one proxy or MeshGateway that `--for` names: `NAME` or `MESH/NAME`, on Kubernetes `NAMESPACE/NAME`; `dataplane/` before it is for
/// proxies alone.
pub fn proxy_or_gateway(binder: &Binder, given: &str) -> Result<ObjectKey> {
    if given.starts_with("dataplane/") {
        return dataplane(binder, given);
    }
    exactly_one(
        without_gateway_proxies(binder, binder.named_proxies(given)),
        given,
        || "there is no Dataplane, no Pod in a mesh and no MeshGateway of this name".to_owned(),
    )
}

/// The one Dataplane, or Pod that is one, that `dataplane/NAME` names.
pub fn dataplane(binder: &Binder, given: &str) -> Result<ObjectKey> {
    let name = given.strip_prefix("dataplane/").unwrap_or(given);
    let mut found = binder.named_proxies(name);
    found.retain(|key| key.kind != Kind::MeshGateway);
    exactly_one(found, given, || format!("there is no Dataplane `{name}`"))
}

/// Leaves out proxies that serve a MeshGateway of the same name: they mean the same.
fn without_gateway_proxies(binder: &Binder, found: Vec<ObjectKey>) -> Vec<ObjectKey> {
    let serves = |proxy: &&ObjectKey| found.iter().any(|other| binder.serves(proxy, other));
    found.iter().filter(|key| !serves(key)).cloned().collect()
}

fn exactly_one(
    found: Vec<ObjectKey>,
    given: &str,
    none: impl FnOnce() -> String,
) -> Result<ObjectKey> {
    match &found[..] {
        [] => bail!("`{given}`: {}", none()),
        [only] => Ok(only.clone()),
        several => {
            let several: Vec<String> = several.iter().map(ToString::to_string).collect();
            bail!(
                "`{given}` may be {}: write MESH/NAME, on Kubernetes NAMESPACE/NAME, or dataplane/NAME",
                several.join(" or ")
            )
        }
    }
}

/// The Gateway that `--gateway` names, and its listener: a MeshGateway's or its proxy's, by name, before which may stand its mesh and after which its
/// listener; none if there is no such.
pub fn mesh_gateway(binder: &Binder, given: &str) -> Result<Option<(Name, Option<String>)>> {
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
        let key = exactly_one(found, given, String::new)?;
        let name = binder.gateway_name_of(&key).unwrap_or(key.name);
        let listener = parts[length..].join("/");
        return Ok(Some((name, Some(listener).filter(|name| !name.is_empty()))));
    }
    Ok(None)
}

/// The builtin gateway that has an address, if there is one alone.
pub fn gateway_at(binder: &Binder, address: IpAddr) -> Option<Name> {
    let mut here = binder.gateway_proxies().filter(|(_, proxy)| match proxy {
        Resource::Dataplane(dataplane) => dataplane.spec.networking.address.parse() == Ok(address),
        _ => false,
    });
    let first = here.next().map(|(name, _)| name);
    first.filter(|_| here.next().is_none())
}
