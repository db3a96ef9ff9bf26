//! Calls of a Kuma Dataplane, by the address of an outbound or by a name in `.mesh`.

use std::net::IpAddr;
use std::sync::Arc;

use pointsman_binding::UnresolvedOutbound;
use pointsman_binding::bound::{FrontendId, Outbound};
use pointsman_resources::ObjectKey;

use super::query::{Directory, Query};
use crate::table::FrontendTable;
use crate::tables::Tables;

/// Returns the outbounds of a Dataplane.
fn outbounds<'t>(
    tables: &'t Tables,
    dataplane: &ObjectKey,
) -> impl Iterator<Item = (&'t Arc<FrontendTable>, &'t Outbound)> {
    tables
        .frontends()
        .filter_map(move |table| match &table.frontend().id {
            FrontendId::Outbound(outbound) if outbound.dataplane == *dataplane => {
                Some((table, &**outbound))
            }
            _ => None,
        })
}

/// Returns the outbound for a URL, with the reason.
pub(crate) fn find<'t>(
    tables: &'t Tables,
    query: &Query,
    dataplane: &ObjectKey,
) -> Option<(&'t Arc<FrontendTable>, String)> {
    let found = outbounds(tables, dataplane).find(|(_, outbound)| matches(query, outbound));
    found.map(|(table, outbound)| (table, why(outbound)))
}

/// Returns the reason for the selection of an outbound.
pub(crate) fn why(outbound: &Outbound) -> String {
    let address = match outbound.listen {
        Some(listen) => format!(" at {listen}"),
        None => String::new(),
    };
    let (dataplane, destination) = (&outbound.dataplane, &outbound.destination);
    format!("{dataplane} calls {destination}{address}")
}

fn matches(query: &Query, outbound: &Outbound) -> bool {
    let target = &query.target;
    if let Ok(ip) = target.host.parse::<IpAddr>() {
        let port = target.port.or(target.scheme.default_port());
        return outbound
            .listen
            .is_some_and(|listen| (listen.ip(), Some(listen.port())) == (ip, port));
    }
    let destination = &outbound.destination;
    let has_port = target.port.is_none_or(|port| {
        let listens = outbound.listen.is_some_and(|listen| listen.port() == port);
        // A service identified by its tag has no port of its own: any port matches, as with Kuma's virtual addresses.
        listens || destination.port == port || destination.port == 0
    });
    has_port && names(outbound).contains(&target.host)
}

/// Returns whether a URL refers to an unresolved outbound, by address and port or by the destination's name.
fn is_named(query: &Query, outbound: &UnresolvedOutbound) -> bool {
    let target = &query.target;
    match target.host.parse::<IpAddr>() {
        Ok(ip) => {
            let port = target.port.or(target.scheme.default_port());
            (outbound.listen.ip(), Some(outbound.listen.port())) == (ip, port)
        }
        Err(_) => {
            let name = outbound.name.as_deref();
            name.is_some_and(|name| target.host == format!("{name}.mesh"))
        }
    }
}

/// Returns the names of a destination: `NAME.mesh`, on Kubernetes also the names of its Service and Kuma's names for it.
fn names(outbound: &Outbound) -> Vec<String> {
    let object = &outbound.destination.object;
    let (namespace, name, port) = (
        object.namespace(),
        &object.name.name,
        outbound.destination.port,
    );
    // Underscores may be written as dots.
    let mut all = vec![
        format!("{name}.mesh"),
        format!("{}.mesh", name.replace('_', ".")),
    ];
    if namespace.kubernetes().is_none() {
        return all;
    }
    all.push(format!("{name}_{namespace}_svc_{port}.mesh"));
    all.push(format!("{name}.{namespace}.svc.{port}.mesh"));
    let ends = ["", ".svc", ".svc.cluster.local", ".mesh", ".svc.mesh"];
    all.extend(ends.map(|end| format!("{name}.{namespace}{end}")));
    // A Service can be called by its bare name within its namespace.
    if outbound.dataplane.namespace() == namespace {
        all.push(name.to_string());
    }
    all
}

/// Returns the default hostname of a cross-mesh listener: `internal.GATEWAY.MESH.mesh`.
fn internal_name(id: &FrontendId) -> String {
    let FrontendId::Listener { gateway, owner, .. } = id else {
        return String::new();
    };
    let mesh = gateway.namespace.mesh().unwrap_or_default();
    format!("internal.{}.{mesh}.mesh", owner.name.name)
}

/// Returns the cross-mesh listener of a MeshGateway with the hostname and port of the URL.
pub(crate) fn across_meshes<'t>(
    tables: &'t Tables,
    query: &Query,
) -> Option<(&'t Arc<FrontendTable>, String)> {
    if query.without_identity {
        return None;
    }
    let port = query.target.port.or(query.target.scheme.default_port());
    let mut listeners = tables.frontends().filter(|table| {
        let frontend = table.frontend();
        let host = &query.target.host;
        frontend.cross_mesh
            && Some(frontend.port) == port
            && match &frontend.hostname {
                Some(name) => name.matches(host),
                None => *host == internal_name(&frontend.id),
            }
    });
    listeners.next().map(|table| {
        let owner = table.frontend().id.parent();
        (
            table,
            format!("{owner} listens there for the proxies of all meshes"),
        )
    })
}

/// Explains why a Dataplane has no outbound for a URL.
pub(crate) fn explain_missing(
    tables: &Tables,
    directory: &Directory,
    query: &Query,
    dataplane: &ObjectKey,
) -> String {
    let mut unresolved = directory.unresolved_outbounds.iter();
    if let Some(found) = unresolved.find(|one| one.dataplane == *dataplane && is_named(query, one))
    {
        let (listen, reason) = (found.listen, &found.reason);
        return format!(
            "{dataplane} has an outbound at {listen}, but its port is not open because its backendRef does not resolve ({reason})"
        );
    }
    let known: Vec<String> = outbounds(tables, dataplane)
        .map(|(_, outbound)| match outbound.listen {
            Some(listen) => format!("{} at {listen}", outbound.destination),
            None => outbound.destination.to_string(),
        })
        .collect();
    let known = match known.is_empty() {
        true => "none".to_owned(),
        false => known.join(", "),
    };
    let target = &query.target;
    let port = target.port.map(|port| format!(":{port}"));
    format!(
        "{dataplane} has no outbound for `{}{}`; its outbounds: {known}",
        target.host,
        port.unwrap_or_default()
    )
}
