//! The connection between a control plane and its proxies: metrics, readiness, and the page that lists proxies.

use pointsman_control::Exposition;
use pointsman_wire::server::{ProxyStatus, Server};
use serde_json::{Value, json};

use super::PeerState;

/// Adds the metrics.
pub fn add_metrics(peer: &PeerState, metrics: &mut Exposition) {
    match peer {
        PeerState::None => {}
        PeerState::Proxies(server) => server.add_metrics(metrics),
        PeerState::ControlPlane(state) => state.current().add_metrics(metrics),
    }
}

/// Returns the text of `/readyz` once the process is ready.
pub fn readiness(peer: &PeerState) -> &'static str {
    let PeerState::ControlPlane(state) = peer else {
        return "ready\n";
    };
    let state = state.current();
    match (state.connected, state.is_cached) {
        (Some(_), _) => "ready\n",
        (None, false) => "ready, without a control plane: the last configuration is in effect\n",
        (None, true) => "ready, without a control plane: the cached configuration is in effect\n",
    }
}

/// Returns the reason why this controller can't tell what is in effect on the proxies of all controllers.
pub fn incomplete(peer: &PeerState) -> Option<String> {
    match peer {
        PeerState::Proxies(server) => server.controllers_error().map(|error| error + "\n"),
        _ => None,
    }
}

/// `/proxies`: the proxies that are connected to this controller and to others of the same cluster.
pub fn proxies(server: &Server) -> Value {
    let proxies = server.proxies();
    let controllers = server.controllers().into_iter().map(|controller| {
        json!({
            "name": controller.name,
            "software": controller.software,
            "proxies": controller.proxies,
            "connected": controller.is_connected,
        })
    });
    json!({
        "controller": **server.name(),
        "incomplete": server.controllers_error(),
        "controllers": controllers.collect::<Vec<Value>>(),
        "proxies": proxies.iter().map(proxy).collect::<Vec<Value>>(),
    })
}

fn proxy(proxy: &ProxyStatus) -> Value {
    let rejected = proxy.rejected.iter();
    let rejected = rejected.map(|(name, why)| json!({ "resource": name, "message": why }));
    json!({
        "name": proxy.name,
        "controller": proxy.controller,
        "identities": proxy.identities,
        "address": proxy.address.to_string(),
        "software": proxy.software,
        "subscription": proxy.subscription,
        "connectedSeconds": proxy.connected.as_secs(),
        "version": proxy.version,
        "targetVersion": proxy.target,
        "lagSeconds": proxy.lag.map(|lag| lag.as_secs_f64()),
        "resources": proxy.resources,
        "bytesSent": proxy.bytes,
        "rejected": rejected.collect::<Vec<Value>>(),
        "rejectedCount": proxy.rejected_count,
        "problems": proxy.problems,
        "lastError": last_error(proxy),
        "reportsApplied": proxy.reports_applied,
    })
}

/// Returns the most important problem: a resource that the proxy can't use, otherwise the first other problem.
fn last_error(proxy: &ProxyStatus) -> Option<String> {
    let mut rejected = proxy.rejected.iter();
    let rejected = rejected
        .next()
        .map(|(name, why)| match proxy.rejected_count {
            0 | 1 => format!("{name}: {why}"),
            count => format!("{name}: {why} (and {} more resources)", count - 1),
        });
    rejected.or_else(|| proxy.problems.first().cloned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_page_finds_every_field_of_a_proxy_that_it_shows() {
        let status = ProxyStatus {
            controller: "one".to_owned(),
            name: "edge-1".to_owned(),
            key: "edge-1".to_owned(),
            identities: Vec::new(),
            address: ([127, 0, 0, 1], 1).into(),
            software: "0.1.0".to_owned(),
            subscription: "*".to_owned(),
            connected: Duration::ZERO,
            version: None,
            target: 1,
            lag: None,
            resources: 0,
            bytes: 0,
            rejected: Default::default(),
            rejected_count: 0,
            problems: Vec::new(),
            reports_applied: false,
        };
        let shown = proxy(&status);
        let page = include_str!("page.html");
        let (_, table) = page.split_once("function proxies(").expect("it shows them");
        let (table, _) = table.split_once("\n}").expect("the function ends");
        let fields = table.split("p.").skip(1);
        let fields = fields.map(|rest| rest.split(|c: char| !c.is_alphanumeric()).next());
        let fields: Vec<&str> = fields.flatten().collect();
        assert!(fields.contains(&"lastError"), "{fields:?}");
        for field in fields {
            assert!(shown.get(field).is_some(), "{field}");
        }
    }
}
