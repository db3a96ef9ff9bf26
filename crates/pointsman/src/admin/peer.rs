//! Metrics of the connection between a control plane and its proxies, and the page that lists proxies.

use std::fmt::Write;

use pointsman_wire::client::ClientState;
use pointsman_wire::server::{EFFECT_BUCKETS, EffectHistogram, ProxyStatus, Server};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::PeerState;

/// Renders the metrics in Prometheus' text format.
pub fn render(peer: &PeerState) -> String {
    match peer {
        PeerState::None => String::new(),
        PeerState::Proxies(server) => of_server(server),
        PeerState::ControlPlane(state) => of_client(&state.current()),
    }
}

fn of_server(server: &Server) -> String {
    // Those of other controllers are in the metrics of these.
    let proxies = server.local_proxies();
    let count = |holds: &dyn Fn(&ProxyStatus) -> bool| {
        proxies.iter().filter(|proxy| holds(proxy)).count() as f64
    };
    let rejected = proxies.iter().map(|proxy| proxy.rejected_count);
    let mut out = String::new();
    let mut gauge =
        |name: &str, help: &str, value: f64| series(&mut out, name, "gauge", help, value);
    gauge(
        "pointsman_xds_proxies",
        "Connected proxies.",
        proxies.len() as f64,
    );
    gauge(
        "pointsman_xds_lagging_proxies",
        "Connected proxies on which the newest configuration is not in effect yet.",
        count(&|proxy| proxy.lag.is_some()),
    );
    let lag = proxies.iter().filter_map(|proxy| proxy.lag).max();
    gauge(
        "pointsman_xds_max_lag_seconds",
        "Longest time for which a connected proxy has lagged behind the newest configuration.",
        lag.unwrap_or_default().as_secs_f64(),
    );
    gauge(
        "pointsman_xds_rejected_resources",
        "Resources that connected proxies can't use, counted once per proxy.",
        rejected.sum::<usize>() as f64,
    );
    let controllers = server.controllers();
    let controllers = controllers.iter().filter(|other| other.is_connected);
    gauge(
        "pointsman_xds_controllers",
        "Other controllers of the cluster whose proxies this one knows.",
        controllers.count() as f64,
    );
    gauge(
        "pointsman_xds_pending_routes",
        "Routes and policies that are not known to be in effect on all proxies that serve them.",
        server.pending_routes() as f64,
    );
    histogram(&mut out, &server.effect_histogram());
    series(
        &mut out,
        "pointsman_xds_refused_subscriptions_total",
        "counter",
        "Subscriptions that asked for something that the proxy may not have.",
        server.refusals() as f64,
    );
    series(
        &mut out,
        "pointsman_xds_rejected_credentials_total",
        "counter",
        "Streams of proxies that were refused because their token is missing or invalid.",
        server.rejected_credentials() as f64,
    );
    series(
        &mut out,
        "pointsman_xds_handshake_failures_total",
        "counter",
        "TLS handshakes with proxies that failed.",
        server.handshake_failures() as f64,
    );
    out
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

fn of_client(state: &ClientState) -> String {
    let mut out = String::new();
    let disconnected = state.disconnected.map(|since| Instant::now() - since);
    let mut gauge =
        |name: &str, help: &str, value: f64| series(&mut out, name, "gauge", help, value);
    gauge(
        "pointsman_control_plane_connected",
        "1 if the proxy follows a control plane, 0 if it runs on the last configuration.",
        f64::from(u8::from(state.connected.is_some())),
    );
    gauge(
        "pointsman_control_plane_disconnected_seconds",
        "Time since the control plane was lost; 0 while connected.",
        disconnected.unwrap_or_default().as_secs_f64(),
    );
    gauge(
        "pointsman_control_plane_cached",
        "1 if the configuration in effect was read from the cache.",
        f64::from(u8::from(state.is_cached)),
    );
    gauge(
        "pointsman_control_plane_resources",
        "Resources received.",
        state.resources as f64,
    );
    gauge(
        "pointsman_control_plane_rejected_resources",
        "Resources whose newest version can't be used.",
        state.rejected.len() as f64,
    );
    series(
        &mut out,
        "pointsman_control_plane_failures_total",
        "counter",
        "Attempts to connect that failed, and connections that were lost.",
        state.failures as f64,
    );
    out
}

fn histogram(out: &mut String, histogram: &EffectHistogram) {
    let name = "pointsman_xds_effect_seconds";
    let help =
        "Time from a change of a route or policy to its effect on all proxies that serve it.";
    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} histogram\n");
    let mut total = 0;
    let bounds = EFFECT_BUCKETS.iter().map(ToString::to_string);
    for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(histogram.counts) {
        total += count;
        let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {total}");
    }
    let sum = histogram.sum.as_secs_f64();
    let _ = write!(out, "{name}_sum {sum}\n{name}_count {total}\n");
}

fn series(out: &mut String, name: &str, kind: &str, help: &str, value: f64) {
    let _ = write!(
        out,
        "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"
    );
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
