//! One change by a user is one changed item of the delta.

mod common;

use common::certificates::fresh_secret;
use common::*;
use pointsman_binding::bound::RouteBinding;
use pointsman_binding::{Change, Delta};

/// Returns the number of changed frontends, routes, rules, attachments, backends, endpoints and secrets.
fn sizes(delta: &Delta) -> [usize; 7] {
    [
        delta.frontends.len(),
        delta.routes.len(),
        delta.rules.len(),
        delta.attachments.len(),
        delta.backends.len(),
        delta.endpoints.len(),
        delta.secrets.len(),
    ]
}

fn route(weight: u32) -> String {
    let spec = format!(
        "{{parentRefs: [{{name: edge}}, {{name: inner}}], rules: [{{matches: [{{path: {{value: /a}}}}], backendRefs: [{{name: api, port: 80}}]}}, {{backendRefs: [{{name: web, port: 80, weight: {weight}}}, {{name: api, port: 80}}]}}]}}"
    );
    // The age of a route in a file is its position.
    let aged = "metadata: {creationTimestamp: '2024-01-01T00:00:00Z', ";
    doc("HTTPRoute", "infra/r", &spec).replace("metadata: {", aged)
}

#[test]
fn a_changed_weight_is_one_changed_rule() {
    let mut bound = two_gateways(&route(1));
    let delta = bound.apply(puts(&route(2)));
    assert_eq!(sizes(&delta), [0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(delta.rules[0].0.index, 1);
}

#[test]
fn a_route_on_two_gateways_is_one_route_with_two_attachments() {
    let mut bound = two_gateways("");
    let delta = bound.apply(puts(&route(1)));
    assert_eq!(sizes(&delta), [0, 1, 2, 2, 1, 1, 0]);
    let delta = bound.apply([Change::Delete(key("HTTPRoute infra/r"))]);
    assert_eq!(sizes(&delta), [0, 1, 2, 2, 1, 1, 0]);
    assert!(delta.routes[0].1.is_none() && delta.rules.iter().all(|(_, rule)| rule.is_none()));
}

#[test]
fn a_renewed_certificate_changes_no_other_resource() {
    let gateway = doc(
        "Gateway",
        "infra/secure",
        "{gatewayClassName: ours, listeners: [{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: c}]}}]}",
    );
    let mut bound = two_gateways(&(gateway + &fresh_secret("infra/c")));
    assert_eq!(bound.secrets.len(), 1);
    let delta = bound.apply(puts(&fresh_secret("infra/c")));
    assert_eq!(sizes(&delta), [0, 0, 0, 0, 0, 0, 1]);
    assert!(delta.statuses.is_empty());
    let delta = bound.apply([Change::Delete(key("Gateway infra/secure"))]);
    assert_eq!(sizes(&delta), [1, 0, 0, 0, 0, 0, 1]);
    assert!(bound.secrets.is_empty(), "a key that nobody names is kept");
}

#[test]
fn a_certificate_that_is_renewed_and_no_longer_used_is_only_removed() {
    let gateway = doc(
        "Gateway",
        "infra/secure",
        "{gatewayClassName: ours, listeners: [{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: c}]}}]}",
    );
    let mut bound = two_gateways(&(gateway + &fresh_secret("infra/c")));
    let deletion = Change::Delete(key("Gateway infra/secure"));
    let delta = bound.apply(puts(&fresh_secret("infra/c")).into_iter().chain([deletion]));
    assert_eq!(delta.secrets.len(), 1, "one item for each changed resource");
    assert!(delta.secrets[0].1.is_none());
}

#[test]
fn an_unreferenced_secret_is_not_distributed() {
    let bound = two_gateways(&fresh_secret("infra/c"));
    assert!(bound.secrets.is_empty());
}

/// "a rule without backendRefs": each port of the parent has rules of its own; otherwise all ports share them.
#[test]
fn ports_of_a_mesh_parent_share_a_route_unless_it_forwards_to_the_parent() {
    let to = |rules: &str| {
        let spec =
            format!("{{parentRefs: [{{group: '', kind: Service, name: api}}], rules: [{rules}]}}");
        two_gateways(&doc("HTTPRoute", "infra/m", &spec))
    };
    let bindings = |rules: &str| {
        let bound = to(rules);
        let ids = bound
            .routes
            .keys()
            .filter(|id| id.route.name.name.as_ref() == "m");
        ids.map(|id| match &id.binding {
            RouteBinding::Mesh(parent) => parent.as_ref().map(|parent| parent.port),
            other => panic!("{other:?}"),
        })
        .collect::<Vec<_>>()
    };
    assert_eq!(bindings("{backendRefs: [{name: web, port: 80}]}"), [None]);
    assert_eq!(bindings("{}"), [Some(80), Some(443)]);
}
