//! Warnings of `check`.

use crate::{World, documents, route};

/// Returns the warnings about a folder: object, field and message.
fn warnings(world: &World) -> Vec<(String, String, String)> {
    let all = world.binder.warnings().into_iter();
    all.map(|w| (w.object.name.name.to_string(), w.field, w.message))
        .collect()
}

fn one(yaml: &str) -> (String, String, String) {
    let found = warnings(&World::with(yaml));
    assert_eq!(found.len(), 1, "{found:#?}");
    found.into_iter().next().expect("one")
}

const TO_V2: &str = "backendRefs: [{kind: MeshServiceSubset, name: backend, tags: {version: v2}}]";

fn rule(matched: &str) -> String {
    format!("{{matches: [{matched}], default: {{{TO_V2}}}}}")
}

/// "404 here; released versions of Kuma forward them, so a path-only canary becomes an outage on migration".
#[test]
fn rules_that_leave_requests_unmatched_cause_warnings() {
    let canary = |rules: &[&str]| {
        let rules: Vec<String> = rules.iter().map(|matched| rule(matched)).collect();
        route("canary", "{kind: Mesh}", &format!("[{}]", rules.join(", ")))
    };
    let (object, field, message) = one(&canary(&["{path: {prefix: /v2}}"]));
    assert_eq!(
        (object.as_str(), field.as_str()),
        ("canary", "spec.to[0].rules")
    );
    assert_eq!(
        message,
        "calls from Dataplane mesh:default/other-1, Dataplane mesh:default/web-1 to MeshService mesh:default/backend that match no rule get 404, while released \
         versions of Kuma forward them; add a last rule to forward them: {matches: [{path: {type: PathPrefix, value: /}}], default: {}}"
    );
    for leaves_some in [
        &["{method: GET}"][..],
        &["{path: {type: Exact, value: /}}"],
        &["{path: {prefix: /}, headers: [{name: x, type: Present}]}"],
        &["{path: {prefix: /}, queryParams: [{name: x, value: a, type: Exact}]}"],
    ] {
        assert_eq!(
            warnings(&World::with(&canary(leaves_some))).len(),
            1,
            "{leaves_some:?}"
        );
    }
    for takes_all in [
        &["{path: {prefix: /v2}}", "{path: {prefix: /}}"][..],
        &["{path: {type: RegularExpression, value: .*}}"],
        &[
            "{headers: [{name: x, type: Present}]}",
            "{headers: [{name: x, type: Absent}]}",
        ],
    ] {
        assert_eq!(
            warnings(&World::with(&canary(takes_all))),
            [],
            "{takes_all:?}"
        );
    }
    // An unresolved reference of the owner is reported once, and not for policies that merge with it.
    let client = route(
        "client",
        "{kind: Dataplane, name: web-1}",
        &format!("[{}]", rule("{path: {prefix: /v1}}")),
    );
    let found = warnings(&World::with(
        &(canary(&["{path: {prefix: /v2}}"]) + &client),
    ));
    assert_eq!(
        found
            .iter()
            .map(|(object, ..)| object.as_str())
            .collect::<Vec<_>>(),
        ["canary"]
    );
}

#[test]
fn weights_that_are_all_0_cause_warnings() {
    let rules = "[{matches: [{path: {prefix: /}}], default: {backendRefs: [{kind: MeshService, name: backend, weight: 0}]}}]";
    let (_, field, message) = one(&route("r", "{kind: Mesh}", rules));
    assert_eq!(
        (field.as_str(), message.as_str()),
        (
            "spec.to[0].rules[0].default.backendRefs",
            "all weights are 0, so every request gets 503"
        )
    );
    let tcp = "{type: MeshTCPRoute, mesh: default, name: r, spec: {to: [{targetRef: {kind: MeshService, name: db}, rules: [{default: {backendRefs: [{kind: MeshService, name: db2, weight: 0}]}}]}]}}";
    assert_eq!(
        one(tcp).2,
        "all weights are 0, so every connection is closed"
    );
}

#[test]
fn an_outbound_that_does_not_resolve_causes_a_warning() {
    let client = "{type: Dataplane, mesh: default, name: lost, networking: {address: 10.0.0.9, outbound: [{port: 10001, tags: {kuma.io/service: backend}}, {port: 10002, backendRef: {kind: MeshService, name: nope, port: 80}}]}}";
    let (object, field, message) = one(client);
    assert_eq!(
        (object.as_str(), field.as_str()),
        ("lost", "networking.outbound[1].backendRef")
    );
    assert_eq!(
        message,
        "127.0.0.1:10002 is not served: mesh default has no MeshService nope"
    );
    // The outbound is opened once the MeshService exists.
    let mut world = World::with(client);
    world.apply(documents("{type: MeshService, mesh: default, name: nope, spec: {selector: {dataplaneTags: {kuma.io/service: backend}}, ports: [{port: 80, targetPort: 3001, appProtocol: http}]}}"));
    assert_eq!(warnings(&world), []);
}

/// "a policy that reaches no proxy, with the cause (`transparentProxying`: no outbounds to act on)".
#[test]
fn a_policy_that_reaches_no_proxy_causes_a_warning_with_the_reason() {
    let rules = format!("[{}]", rule("{path: {prefix: /}}"));
    let dataplane = |name: &str, more: &str| {
        format!(
            "\n---\n{{type: Dataplane, mesh: default, name: {name}, labels: {{app: {name}}}, networking: {{address: 10.0.0.9{more}}}}}"
        )
    };
    let policy = |target: &str, labels: &str| {
        let labels = format!("name: r, labels: {{{labels}}},");
        route("r", target, &rules).replace("name: r,", &labels)
    };
    let of = |app: &str| policy(&format!("{{kind: Dataplane, labels: {{app: {app}}}}}"), "");
    let transparent = dataplane("tp", ", transparentProxying: {redirectPortOutbound: 15001}");
    assert_eq!(
        one(&(of("tp") + &transparent)).2,
        "the policy has no effect: Dataplane mesh:default/tp has transparentProxying, which is not supported, and no outbounds; list its destinations in \
         networking.outbound"
    );
    let elsewhere = dataplane(
        "quiet",
        ", outbound: [{port: 10009, tags: {kuma.io/service: db}}]",
    );
    assert_eq!(
        one(&(of("quiet") + &elsewhere)).2,
        "the policy has no effect: no outbound of Dataplane mesh:default/quiet leads to one of the policy's destinations"
    );
    let zonal = policy("{kind: Mesh}", "kuma.io/origin: zone, kuma.io/zone: north");
    let labelled = crate::MESH.replace(
        "networking: {address",
        "labels: {kuma.io/zone: south}, networking: {address",
    );
    let labelled = labelled.replace("labels: {team: b}, labels: {", "labels: {team: b, ");
    let found = warnings(&World::of(&format!("{labelled}{zonal}")));
    assert_eq!(
        found[0].2,
        "the policy applies to proxies in zone north, where mesh default has none (label kuma.io/zone)"
    );
    let consumer = policy(
        "{kind: Mesh}",
        "kuma.io/policy-role: consumer, k8s.kuma.io/namespace: shop",
    );
    assert_eq!(
        one(&consumer).2,
        "this consumer policy applies to proxies in namespace shop, where mesh default has none"
    );
    let alone = "{type: MeshService, mesh: default, name: backend, spec: {selector: {dataplaneLabels: {matchLabels: {app: a}}}, ports: [{port: 80, appProtocol: http}]}}";
    let found = warnings(&World::of(&format!(
        "{alone}{}",
        policy("{kind: Mesh}", "")
    )));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        found[0].2,
        "the policy has no effect: mesh default has neither a Dataplane nor a Pod with sidecar injection (label kuma.io/sidecar-injection)"
    );
}

#[test]
fn deprecated_kinds_of_targets_cause_warnings() {
    let rules = format!("[{}]", rule("{path: {prefix: /}}"));
    for (kind, target) in [
        ("MeshSubset", "{kind: MeshSubset, tags: {team: a}}"),
        ("MeshService", "{kind: MeshService, name: frontend}"),
        (
            "MeshServiceSubset",
            "{kind: MeshServiceSubset, name: frontend, tags: {team: a}}",
        ),
    ] {
        let (_, field, message) = one(&route("r", target, &rules));
        assert_eq!(field, "spec.targetRef.kind");
        assert_eq!(
            message,
            format!(
                "{kind} is deprecated as the kind of a top-level targetRef and removed in Kuma 3.0; use kind Dataplane with labels"
            )
        );
    }
    let named = route("r", "{kind: Dataplane, name: web-1}", &rules);
    assert_eq!(warnings(&World::with(&named)), []);
    let global = named.replace("name: r,", "name: r, labels: {kuma.io/origin: global},");
    let (_, field, message) = one(&global);
    assert_eq!(field, "spec.targetRef.name");
    assert_eq!(
        message,
        "a policy of global origin selects Dataplane web-1 by name, but names are unique only within a zone: Kuma selects no Dataplane, Pointsman every \
         Dataplane of this name; select by labels instead"
    );
}
