//! Schemas of MeshHTTPRoute, MeshTCPRoute and MeshGatewayHTTPRoute.

use super::super::rules::{items, text};
use super::super::{Findings, Schema, list, object, string};
use super::filters::{filters, is_response, prefix_to_replace, response_without_backends};
use super::matches::matches;
use super::patterns::REQUESTED_HOSTNAME;
use super::target::{backend_ref, no_inbound, refuse_kind, target_ref};
use crate::document::{Node, Value};
use crate::kuma::{KubernetesService, SYSTEM_NAMESPACE};

/// Kinds of proxies that a policy may configure.
const PROXIES: &[&str] = &[
    "Mesh",
    "Dataplane",
    "MeshSubset",
    "MeshGateway",
    "MeshService",
    "MeshServiceSubset",
];

/// Kinds of destinations for sidecars.
const DESTINATIONS: &[&str] = &["MeshService", "MeshExternalService", "MeshMultiZoneService"];

/// Kinds of destinations for sidecars and gateways.
const TO: &[&str] = &[
    "Mesh",
    "MeshService",
    "MeshExternalService",
    "MeshMultiZoneService",
];

// Messages for fields of alternatives that MADR 011 rejected.
const DEFAULT_IN_RULES: &str = "not allowed here: set `default` in each item of `rules`";
const IN_TO: &str = "not allowed here: set this field in an item of `to`, beside `targetRef`";
const IN_DEFAULT: &str = "not allowed here: set this field in the rule's `default`";
const NO_FROM: &str =
    "not supported: select the proxies with `targetRef` and the destinations with `to`";

/// Returns the schema of the spec of a MeshHTTPRoute.
pub(super) fn http() -> Schema {
    let to = object()
        .required("targetRef", target_ref(TO).message("must be defined"))
        .field("hostnames", hostnames())
        .field("rules", list(http_rule()))
        .misplaced("default", DEFAULT_IN_RULES);
    object()
        .field("targetRef", target_ref(PROXIES).rule(no_inbound))
        .field("to", list(to))
        .misplaced("from", NO_FROM)
        .misplaced("default", IN_TO)
        .misplaced("rules", IN_TO)
        .misplaced("hostnames", IN_TO)
        .rule(destinations)
        .rule(hostnames_for_gateways)
        .rule(backends_for_gateways)
        .rule(backend_hostname_for_gateways)
}

/// Returns the schema of the spec of a MeshGatewayHTTPRoute.
pub(super) fn gateway_http() -> Schema {
    let gateway = target_ref(&["MeshGateway"]).message("must be defined");
    object()
        .required("targetRef", gateway)
        .field("hostnames", hostnames())
        .field("rules", list(http_rule().rule(backends_required)))
        .misplaced("from", NO_FROM)
        .misplaced(
            "to",
            "not supported in a MeshGatewayHTTPRoute: set `rules`, and the destinations in their `backendRefs`",
        )
        .misplaced("default", DEFAULT_IN_RULES)
}

/// Returns the schema of the spec of a MeshTCPRoute.
pub(super) fn tcp() -> Schema {
    let backends = list(backend_ref())
        .size(1..=usize::MAX)
        .message("must be defined");
    let conf = object().required("backendRefs", backends);
    let rule = object()
        .required("default", conf.message("must be defined"))
        .misplaced("backendRefs", IN_DEFAULT);
    let to = object()
        .required("targetRef", target_ref(TO).message("must be defined"))
        .field("rules", list(rule).max(1))
        .misplaced("default", DEFAULT_IN_RULES);
    object()
        .field("targetRef", target_ref(PROXIES).rule(no_inbound))
        .field("to", list(to).size(1..=usize::MAX))
        .misplaced("from", NO_FROM)
        .misplaced("default", IN_TO)
        .misplaced("rules", IN_TO)
        .rule(destinations)
}

fn hostnames() -> Schema {
    list(string().like(&REQUESTED_HOSTNAME))
}

fn http_rule() -> Schema {
    let conf = object()
        .field("filters", filters())
        .field("backendRefs", list(backend_ref()))
        .rule(response_without_backends);
    object()
        .required("matches", matches())
        .required("default", conf.message("must be defined"))
        .misplaced("filters", IN_DEFAULT)
        .misplaced("backendRefs", IN_DEFAULT)
        .rule(prefix_to_replace)
}

fn is_for_gateways(spec: &Node) -> bool {
    let target = spec.get("targetRef");
    target.and_then(|target| text(target, "kind")) == Some("MeshGateway")
}

/// MADR 045: "This MADR proposes requiring `spec.to[].targetRef.kind: Mesh`", on gateways. Routes for sidecars must name a destination.
fn destinations(spec: &Node, findings: &mut Findings<'_>) {
    let supported = if is_for_gateways(spec) {
        &["Mesh"]
    } else {
        DESTINATIONS
    };
    for (index, to) in items(spec, "to") {
        if let Some(target) = to.get("targetRef")
            && text(target, "kind").is_some_and(|kind| TO.contains(&kind))
        {
            refuse_kind(
                target,
                findings,
                &format!(".to[{index}].targetRef"),
                supported,
            );
        }
    }
}

/// Hostnames are supported on gateways only.
fn hostnames_for_gateways(spec: &Node, findings: &mut Findings<'_>) {
    if is_for_gateways(spec) {
        return;
    }
    for (index, to) in items(spec, "to") {
        if let Some(hostnames) = to
            .get("hostnames")
            .filter(|names| !names.items().is_empty())
        {
            findings.error_in(
                &format!(".to[{index}].hostnames"),
                hostnames,
                "must not be defined",
            );
        }
    }
}

/// MADR 045: "Require `backendRefs` to be set", on gateways.
fn backends_for_gateways(spec: &Node, findings: &mut Findings<'_>) {
    if !is_for_gateways(spec) {
        return;
    }
    for (index, to) in items(spec, "to") {
        for (number, rule) in items(to, "rules") {
            require_backends(rule, findings, &format!(".to[{index}].rules[{number}]"));
        }
    }
}

fn backends_required(rule: &Node, findings: &mut Findings<'_>) {
    require_backends(rule, findings, "");
}

/// Requires backends in a gateway's rule, unless a filter responds to the request.
fn require_backends(rule: &Node, findings: &mut Findings<'_>, part: &str) {
    let Some(conf) = rule.get("default") else {
        return;
    };
    let is_empty = match conf.get("backendRefs").map(|backends| &backends.value) {
        Some(Value::List(backends)) => backends.is_empty(),
        Some(_) => false,
        None => matches!(conf.value, Value::Map(_)),
    };
    let responds = items(conf, "filters").any(|(_, filter)| is_response(filter));
    if is_empty && !responds {
        findings.error_in(
            &format!("{part}.default.backendRefs"),
            conf,
            "must not be empty",
        );
    }
}

/// `hostToBackendHostname` is supported on gateways only.
fn backend_hostname_for_gateways(spec: &Node, findings: &mut Findings<'_>) {
    if is_for_gateways(spec) {
        return;
    }
    for (index, to) in items(spec, "to") {
        for (number, rule) in items(to, "rules") {
            let Some(conf) = rule.get("default") else {
                continue;
            };
            for (filter_index, filter) in items(conf, "filters") {
                let rewrite = filter.get("urlRewrite");
                let field = rewrite.and_then(|rewrite| rewrite.get("hostToBackendHostname"));
                if let Some(field) = field.filter(|field| field.value == Value::Bool(true)) {
                    let part = format!(
                        ".to[{index}].rules[{number}].default.filters[{filter_index}].urlRewrite.hostToBackendHostname"
                    );
                    findings.error_in(&part, field, "can only be set with MeshGateway");
                }
            }
        }
    }
}

/// On Kubernetes, a policy is either a producer policy, for all clients of a service in its namespace, or a consumer policy, for the clients in
/// its namespace.
pub(super) fn single_role(object: &Node, findings: &mut Findings<'_>) {
    let namespace = object
        .get("metadata")
        .and_then(|metadata| text(metadata, "namespace"));
    let (Some(namespace), Some(spec)) = (namespace, object.get("spec")) else {
        return;
    };
    let is_producer = |to: &Node| {
        to.get("targetRef").is_some_and(|target| {
            let name = text(target, "name");
            let service = name.and_then(KubernetesService::parse);
            let target_namespace =
                text(target, "namespace").or(service.map(|service| service.namespace));
            text(target, "kind") == Some("MeshService")
                && target.get("name").is_some()
                && target_namespace.is_none_or(|target| target == namespace)
        })
    };
    let producers = items(spec, "to").filter(|(_, to)| is_producer(to)).count();
    let all = items(spec, "to").count();
    if namespace != SYSTEM_NAMESPACE && producers > 0 && producers < all {
        let message = "it's not allowed to mix producer and consumer items in the same policy";
        findings.error_in(".spec.to", spec.get("to").unwrap_or(spec), message);
    }
}
