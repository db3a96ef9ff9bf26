//! Attaches routes to listeners.

use pointsman_resources::ObjectKey;
use pointsman_resources::gateway::From;
use pointsman_resources::refs::ParentReference;
use pointsman_resources::route::Route;

use crate::bound::{FrontendId, Hostname};
use crate::engine::Reader;
use crate::gateway_api::listener::ListenerView;
use crate::gateway_api::namespaces;

/// Attaches a route to the listeners that its reference selects and that accept it.
///
/// "If 1 of 2 Gateway listeners accept attachment from the referencing Route, the Route MUST be considered successfully
/// attached" (GEP-724). If none does, the error is that of the last criterion that some listener reached: name and port, then kind and namespace, then hostname.
pub(crate) fn attach(
    reader: &Reader<'_>,
    owner: &ObjectKey,
    listeners: &[ListenerView],
    reference: &ParentReference,
    route: &Route,
    hostnames: &[Hostname],
) -> Result<Vec<FrontendId>, (&'static str, String)> {
    let named: Vec<&ListenerView> = listeners
        .iter()
        .filter(|l| {
            reference
                .section_name
                .as_ref()
                .is_none_or(|name| *name == l.spec.name)
        })
        .filter(|l| reference.port.is_none_or(|port| port == l.spec.port))
        .collect();
    if named.is_empty() {
        return Err(("NoMatchingParent", no_listener(owner, listeners, reference)));
    }
    let mut errors = Vec::new();
    let mut permitted = Vec::new();
    for listener in named {
        let name = &listener.spec.name;
        if !listener.kinds.contains(&route.kind) {
            let kinds: Vec<&str> = listener.kinds.iter().map(|kind| kind.name()).collect();
            let kinds = if kinds.is_empty() {
                "no kind".to_owned()
            } else {
                kinds.join(" and ")
            };
            let protocol = &listener.spec.protocol;
            errors.push(format!(
                "listener {name} (protocol {protocol}) accepts {kinds}, not {}",
                route.kind
            ));
            continue;
        }
        let choice = listener.spec.allowed_routes.namespaces.as_ref();
        let (home, namespace) = (owner.namespace(), &route.metadata.namespace);
        match namespaces::check_allowed(reader, choice, From::Same, home, namespace) {
            Ok(()) => permitted.push(listener),
            Err(rule) => errors.push(format!("listener {name}: allowedRoutes.{rule}")),
        }
    }
    if permitted.is_empty() {
        return Err(("NotAllowedByListeners", errors.join("; ")));
    }
    let serves = |listener: &&&ListenerView| match &listener.hostname {
        Some(hostname) => hostnames.is_empty() || hostnames.iter().any(|h| h.intersects(hostname)),
        None => true,
    };
    let attached: Vec<FrontendId> = permitted
        .iter()
        .filter(serves)
        .map(|listener| listener.id.clone())
        .collect();
    if attached.is_empty() {
        let served: Vec<String> = permitted
            .iter()
            .filter_map(|l| {
                Some(format!(
                    "listener {} serves {}",
                    l.spec.name,
                    l.hostname.as_ref()?
                ))
            })
            .collect();
        let own: Vec<&str> = hostnames.iter().map(Hostname::as_str).collect();
        let message = format!(
            "the hostnames of the route ({}) match no listener: {}",
            own.join(", "),
            served.join(", ")
        );
        return Err(("NoMatchingListenerHostname", message));
    }
    Ok(attached)
}

fn no_listener(
    owner: &ObjectKey,
    listeners: &[ListenerView],
    reference: &ParentReference,
) -> String {
    let known: Vec<String> = listeners
        .iter()
        .map(|listener| format!("{} (port {})", listener.spec.name, listener.spec.port))
        .collect();
    let wanted = match (&reference.section_name, reference.port) {
        (Some(name), Some(port)) => format!("listener {name} on port {port}"),
        (Some(name), None) => format!("listener {name}"),
        (None, Some(port)) => format!("listener on port {port}"),
        (None, None) => "listener".to_owned(),
    };
    match known.is_empty() {
        true => format!("{owner} has no listeners that routes can attach to"),
        false => format!(
            "{owner} has no {wanted}; its listeners are {}",
            known.join(", ")
        ),
    }
}
