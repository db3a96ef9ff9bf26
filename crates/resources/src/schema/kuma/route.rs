//! MeshHTTPRoute, MeshTCPRoute and MeshGatewayHTTPRoute.

use super::super::rules::{items, text};
use super::super::{Findings, Schema, list, object, string};
use super::filters::{answer_without_backends, filters, prefix_to_replace};
use super::matches::matches;
use super::patterns::REQUESTED_HOSTNAME;
use super::target::{backend_ref, no_inbound, refuse_kind, target_ref};
use crate::document::{Node, Value};
use crate::kuma::{KubernetesService, SYSTEM_NAMESPACE};

/// Proxies that a policy may be for.
const PROXIES: &[&str] = &[
    "Mesh",
    "Dataplane",
    "MeshSubset",
    "MeshGateway",
    "MeshService",
    "MeshServiceSubset",
];

/// Destinations of requests from sidecars.
const DESTINATIONS: &[&str] = &["MeshService", "MeshExternalService", "MeshMultiZoneService"];

/// All destinations, gateways' included. Which of them depends on the proxies.
const TO: &[&str] = &[
    "Mesh",
    "MeshService",
    "MeshExternalService",
    "MeshMultiZoneService",
];

/// What MADR 011 looked at and did not take, and where things stand instead.
const RULES_HERE: &str =
    "this has no place here: `rules` stand beside `targetRef`, each with a `default` of its own";
const IN_TO: &str = "this stands in `to`, beside its `targetRef`";
const IN_DEFAULT: &str = "this stands in the rule's `default`";
const NO_FROM: &str =
    "there is no `from`: `targetRef` says whose requests, and `to` where they are going";

/// The spec of a MeshHTTPRoute.
pub(super) fn http() -> Schema {
    let to = object()
        .required("targetRef", target_ref(TO).message("must be defined"))
        .field("hostnames", hostnames())
        .field("rules", list(http_rule()))
        .misplaced("default", RULES_HERE);
    object()
        .field("targetRef", target_ref(PROXIES).rule(no_inbound))
        .field("to", list(to))
        .misplaced("from", NO_FROM)
        .misplaced("default", IN_TO)
        .misplaced("rules", IN_TO)
        .misplaced("hostnames", IN_TO)
        .rule(destinations)
        .rule(hostnames_on_gateways)
        .rule(backends_on_gateways)
        .rule(backend_hostname_on_gateways)
}

/// The spec of a MeshGatewayHTTPRoute.
pub(super) fn gateway_http() -> Schema {
    let gateway = target_ref(&["MeshGateway"]).message("must be defined");
    object()
        .required("targetRef", gateway)
        .field("hostnames", hostnames())
        .field("rules", list(http_rule().rule(backends_needed)))
        .misplaced("from", NO_FROM)
        .misplaced(
            "to",
            "a gateway's rules stand in `rules`: where requests go is in their `backendRefs`",
        )
        .misplaced(
            "default",
            "a gateway's rules stand in `rules`, each with a `default` of its own",
        )
}

/// The spec of a MeshTCPRoute.
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
        .misplaced("default", RULES_HERE);
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
        .rule(answer_without_backends);
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

/// MADR 045: "This MADR proposes requiring `spec.to[].targetRef.kind: Mesh`", on gateways. A sidecar's requests go somewhere.
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

fn hostnames_on_gateways(spec: &Node, findings: &mut Findings<'_>) {
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
fn backends_on_gateways(spec: &Node, findings: &mut Findings<'_>) {
    if !is_for_gateways(spec) {
        return;
    }
    for (index, to) in items(spec, "to") {
        for (place, rule) in items(to, "rules") {
            needs_backends(rule, findings, &format!(".to[{index}].rules[{place}]"));
        }
    }
}

fn backends_needed(rule: &Node, findings: &mut Findings<'_>) {
    needs_backends(rule, findings, "");
}

/// A rule of a gateway that does not answer by itself says where requests go.
fn needs_backends(rule: &Node, findings: &mut Findings<'_>, part: &str) {
    let Some(conf) = rule.get("default") else {
        return;
    };
    let none = match conf.get("backendRefs").map(|backends| &backends.value) {
        Some(Value::List(backends)) => backends.is_empty(),
        Some(_) => false,
        None => matches!(conf.value, Value::Map(_)),
    };
    let answers = items(conf, "filters").any(|(_, filter)| {
        matches!(
            text(filter, "type"),
            Some("RequestRedirect" | "DirectResponse")
        )
    });
    if none && !answers {
        findings.error_in(
            &format!("{part}.default.backendRefs"),
            conf,
            "must not be empty",
        );
    }
}

/// Only a gateway is called by a name that its backends don't have.
fn backend_hostname_on_gateways(spec: &Node, findings: &mut Findings<'_>) {
    if is_for_gateways(spec) {
        return;
    }
    for (index, to) in items(spec, "to") {
        for (place, rule) in items(to, "rules") {
            let Some(conf) = rule.get("default") else {
                continue;
            };
            for (number, filter) in items(conf, "filters") {
                let rewrite = filter.get("urlRewrite");
                let field = rewrite.and_then(|rewrite| rewrite.get("hostToBackendHostname"));
                if let Some(field) = field.filter(|field| field.value == Value::Bool(true)) {
                    let part = format!(
                        ".to[{index}].rules[{place}].default.filters[{number}].urlRewrite.hostToBackendHostname"
                    );
                    findings.error_in(&part, field, "can only be set with MeshGateway");
                }
            }
        }
    }
}

/// On Kubernetes a policy is its namespace's own for all clients (producer), or for the namespace's clients (consumer).
pub(super) fn one_role(object: &Node, findings: &mut Findings<'_>) {
    let namespace = object
        .get("metadata")
        .and_then(|metadata| text(metadata, "namespace"));
    let (Some(namespace), Some(spec)) = (namespace, object.get("spec")) else {
        return;
    };
    let is_producer = |to: &Node| {
        to.get("targetRef").is_some_and(|target| {
            let name = text(target, "name");
            let older = name.and_then(KubernetesService::parse);
            let of = text(target, "namespace").or(older.map(|service| service.namespace));
            text(target, "kind") == Some("MeshService")
                && target.get("name").is_some()
                && of.is_none_or(|of| of == namespace)
        })
    };
    let producers = items(spec, "to").filter(|(_, to)| is_producer(to)).count();
    let all = items(spec, "to").count();
    if namespace != SYSTEM_NAMESPACE && producers > 0 && producers < all {
        let message = "it's not allowed to mix producer and consumer items in the same policy";
        findings.error_in(".spec.to", spec.get("to").unwrap_or(spec), message);
    }
}
