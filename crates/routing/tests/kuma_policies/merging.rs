//! Selection of policies by `targetRef`, and their merging.

use pointsman_resources::Kind;

use crate::{World, fate, policies, route};

const OWNER: &str = r#"
type: MeshHTTPRoute
mesh: default
name: owner
spec:
 targetRef:
  kind: Mesh
 to:
  - targetRef:
     kind: MeshService
     name: backend
    rules:
     - matches:
        - path:
           prefix: /v1
       default:
        backendRefs:
         - weight: 100
           kind: MeshServiceSubset
           name: backend
           tags:
            version: v1
     - matches:
        - path:
           prefix: /v2
       default:
        backendRefs:
         - weight: 100
           kind: MeshServiceSubset
           name: backend
           tags:
            version: v2
"#;

fn consumer(rules: &str) -> String {
    route("consumer", "{kind: MeshService, name: frontend}", rules)
}

/// MADR 011, "Proposal": "Here, the `/v1` rule from `owner` is unchanged and the `/v2` rule from `consumer` merges with that of `owner`."
#[test]
fn rules_merge_by_structural_equality_of_matches() {
    let consumer = consumer(
        "[{matches: [{path: {prefix: /v2}}], default: {filters: [{requestHeaderModifier: {add: [{name: env, value: dev}]}}]}}]",
    );
    let world = World::with(&format!("{OWNER}{consumer}"));
    let v1 = world.from("web-1", "http://127.0.0.1:10001/v1");
    assert_eq!(fate(&v1), "backend[version=v1] 100");
    assert_eq!(policies(&v1), ["owner"]);
    let v2 = world.from("web-1", "http://backend.mesh/v2");
    assert_eq!(fate(&v2), "backend[version=v2] 100");
    assert_eq!(v2.backends[0].endpoints, ["10.0.1.2:3001"]);
    assert_eq!(policies(&v2), ["consumer", "owner"]);
    assert_eq!(v2.request.expect("a request").headers["env"], "dev");
    // The consumer's policy does not apply to calls of others.
    let other = world.from("other-1", "http://127.0.0.1:10001/v2");
    assert_eq!(fate(&other), "backend[version=v2] 100");
    assert!(
        !other
            .request
            .expect("a request")
            .headers
            .contains_key("env")
    );
    // "no rule matches | 404 … also in the mesh and for Kuma"
    assert_eq!(
        fate(&world.from("web-1", "http://127.0.0.1:10001/v3")),
        "404"
    );
}

/// MADR 011: "each rule needs to be explicitly overriden" with `filters: []` and `backendRefs: []`.
#[test]
fn an_empty_list_overrides() {
    let consumer = consumer(
        "[{matches: [{path: {prefix: /v1}}], default: {filters: [], backendRefs: []}}, {matches: [{path: {prefix: /v2}}], default: {filters: [], backendRefs: []}}]",
    );
    let world = World::with(&format!("{OWNER}{consumer}"));
    for path in ["v1", "v2"] {
        let found = world.from("web-1", &format!("http://127.0.0.1:10001/{path}"));
        assert_eq!(fate(&found), "backend 100");
        assert_eq!(policies(&found), ["consumer"]);
    }
    let lost = &world.conditions(Kind::MeshHTTPRoute, "owner");
    assert!(
        lost.iter()
            .any(|c| c.starts_with("pointsman.io/Overridden=true/Merged")
                && c.contains("spec.to[0].rules[1]: overridden by MeshHTTPRoute mesh:default/consumer for calls from Dataplane mesh:default/web-1 to MeshService mesh:default/backend")),
        "{lost:?}"
    );
}

/// MADR 011, "Additional use cases": the lists of the more specific route replace those of the owner.
#[test]
fn lists_are_replaced_as_a_whole() {
    let owner = route(
        "owner",
        "{kind: Mesh}",
        "[{matches: [{path: {prefix: /}}], default: {filters: [{responseHeaderModifier: {add: [{name: x-some-header, value: something}]}}], backendRefs: [{weight: 90, kind: MeshServiceSubset, name: backend, tags: {version: v1}}, {weight: 10, kind: MeshServiceSubset, name: backend, tags: {version: v2}}]}}]",
    );
    let consumer = consumer(
        "[{matches: [{path: {prefix: /}}], default: {filters: [{requestHeaderModifier: {add: [{name: x-client, value: web}]}}], backendRefs: [{weight: 100, kind: MeshServiceSubset, name: backend, tags: {version: v1}}]}}]",
    );
    let world = World::with(&format!("{owner}{consumer}"));
    let found = world.from("web-1", "http://127.0.0.1:10001/");
    assert_eq!(fate(&found), "backend[version=v1] 100");
    assert!(found.response.is_none());
    let other = world.from("other-1", "http://127.0.0.1:10001/");
    assert_eq!(
        fate(&other),
        "backend[version=v1] 90, backend[version=v2] 10"
    );
}

/// MADR 011, "Two issues": "the `backendRefs` of `owner` are gone", "the `filters` of `owner` are gone". A warning names the replaced list and the policy that
/// replaces it, even if the rest of the rule still applies.
#[test]
fn what_is_lost_is_told() {
    let rule =
        |default: &str| format!("[{{matches: [{{path: {{prefix: /}}}}], default: {{{default}}}}}]");
    let filters = "filters: [{requestHeaderModifier: {add: [{name: env, value: dev}]}}]";
    let owner = route(
        "owner",
        "{kind: Mesh}",
        &rule(&format!("{filters}, backendRefs: []")),
    );
    let frontend = "{kind: MeshService, name: frontend}";
    let a = route("a", frontend, &rule("filters: []"));
    let b = route(
        "b",
        frontend,
        &rule("backendRefs: [{kind: MeshService, name: backend}]"),
    );
    let c = route("c", frontend, &rule("backendRefs: []"));
    let lost = |yaml: String, policy: &str| {
        let said = World::with(&yaml).conditions(Kind::MeshHTTPRoute, policy);
        let said = said.into_iter().filter_map(|condition| {
            let of = "pointsman.io/Overridden=true/Merged: ";
            condition.strip_prefix(of).map(ToOwned::to_owned)
        });
        said.collect::<String>()
            .replace(
                " for calls from Dataplane mesh:default/web-1 to MeshService mesh:default/backend",
                "",
            )
            .replace("overridden by ", "")
    };
    assert_eq!(
        lost(format!("{owner}{a}"), "owner"),
        "spec.to[0].rules[0].default.filters: MeshHTTPRoute mesh:default/a"
    );
    assert_eq!(
        lost(format!("{owner}{b}"), "owner"),
        "spec.to[0].rules[0].default.backendRefs: MeshHTTPRoute mesh:default/b"
    );
    assert_eq!(
        lost(format!("{owner}{a}{b}"), "owner"),
        "spec.to[0].rules[0]: MeshHTTPRoute mesh:default/a; spec.to[0].rules[0]: MeshHTTPRoute mesh:default/b"
    );
    // `b` has replaced the list of `c`, not the policy with the highest precedence.
    assert_eq!(
        lost(format!("{a}{b}{c}"), "c"),
        "spec.to[0].rules[0]: MeshHTTPRoute mesh:default/b"
    );
}

/// "merge by key `matches` … on the whole ordered list": another order is another rule.
#[test]
fn matches_in_another_order_do_not_merge() {
    let a = route(
        "a",
        "{kind: MeshService, name: frontend}",
        "[{matches: [{path: {prefix: /a}}, {path: {prefix: /b}}], default: {filters: [{requestHeaderModifier: {set: [{name: x, value: z}]}}]}}]",
    );
    let b = route(
        "b",
        "{kind: Mesh}",
        "[{matches: [{path: {prefix: /b}}, {path: {prefix: /a}}], default: {backendRefs: [{kind: MeshServiceSubset, name: backend, tags: {version: v2}}]}}]",
    );
    let world = World::with(&format!("{a}{b}"));
    let found = world.from("web-1", "http://127.0.0.1:10001/a");
    assert_eq!(
        fate(&found),
        "backend 100",
        "the stronger policy's rule comes first"
    );
    assert_eq!(policies(&found), ["a"]);
}

/// MADR 011: "In the case that a request should be routed to the service it would otherwise have been routed to, `backendRefs` can be
/// omitted."
#[test]
fn without_backend_refs_a_request_goes_to_its_original_destination() {
    let world = World::with(&route(
        "r",
        "{kind: Mesh}",
        "[{matches: [{path: {prefix: /}}], default: {}}]",
    ));
    let found = world.from("web-1", "http://127.0.0.1:10001/");
    assert_eq!(fate(&found), "backend 100");
    assert_eq!(
        found.backends[0].endpoints,
        ["10.0.1.1:3001", "10.0.1.2:3001"]
    );
}

#[test]
fn without_a_policy_traffic_flows() {
    let world = World::with("");
    let found = world.from("web-1", "http://127.0.0.1:10001/x");
    assert_eq!(fate(&found), "backend 100");
    let nowhere = world.from("web-1", "http://127.0.0.1:9/").why;
    assert!(
        nowhere.contains("has no outbound for `127.0.0.1:9`; its outbounds: "),
        "{nowhere}"
    );
    assert!(found.rule.is_none());
    assert_eq!(
        fate(&world.from("web-1", "tcp://127.0.0.1:10002")),
        "db 100"
    );
}

/// The Dataplanes that `spec.targetRef` selects.
#[test]
fn target_refs_select_proxies() {
    let header = "[{matches: [{path: {prefix: /}}], default: {backendRefs: [{kind: MeshServiceSubset, name: backend, tags: {version: v1}}]}}]";
    let cases = [
        ("{kind: Mesh}", true, true),
        ("{kind: Mesh, proxyTypes: [Sidecar]}", true, true),
        ("{kind: Mesh, proxyTypes: [Gateway]}", false, false),
        ("{kind: MeshSubset, tags: {team: a}}", true, false),
        ("{kind: MeshSubset, tags: {team: '*'}}", true, false),
        ("{kind: MeshSubset, tags: {team: z}}", false, false),
        ("{kind: MeshService, name: frontend}", true, false),
        ("{kind: MeshService, name: other}", false, true),
        (
            "{kind: MeshServiceSubset, name: frontend, tags: {team: a}}",
            true,
            false,
        ),
        (
            "{kind: MeshServiceSubset, name: other, tags: {team: a}}",
            false,
            false,
        ),
        ("{kind: Dataplane}", true, true),
        ("{kind: Dataplane, name: other-1}", false, true),
        ("{kind: Dataplane, labels: {team: b}}", false, true),
    ];
    for (target, web, other) in cases {
        let world = World::with(&route("r", target, header));
        for (name, wanted) in [("web-1", web), ("other-1", other)] {
            let found = world.from(name, "http://127.0.0.1:10001/");
            let selected = found.rule.is_some();
            assert_eq!(selected, wanted, "{target} {name}");
        }
    }
}

/// The reference's order: kind of target, role, name; a later `to` wins.
#[test]
fn the_stronger_policy_wins_equal_matches() {
    let to = |version: &str| {
        format!(
            "[{{matches: [{{path: {{prefix: /}}}}], default: {{backendRefs: [{{kind: MeshServiceSubset, name: backend, tags: {{version: {version}}}}}]}}}}]"
        )
    };
    let cases = [
        ("{kind: Mesh}", "{kind: Dataplane}"),
        (
            "{kind: Dataplane, name: web-1}",
            "{kind: MeshSubset, tags: {team: a}}",
        ),
        (
            "{kind: MeshSubset, tags: {team: a}}",
            "{kind: MeshService, name: frontend}",
        ),
        (
            "{kind: MeshService, name: frontend}",
            "{kind: MeshServiceSubset, name: frontend, tags: {team: a}}",
        ),
        (
            "{kind: Dataplane, labels: {}}",
            "{kind: Dataplane, name: web-1}",
        ),
    ];
    for (weak, strong) in cases {
        // By name the other policy would win, but the kind of target takes precedence.
        let world = World::with(&format!(
            "{}{}",
            route("a", weak, &to("v1")),
            route("z", strong, &to("v2"))
        ));
        let found = world.from("web-1", "http://127.0.0.1:10001/");
        assert_eq!(
            fate(&found),
            "backend[version=v2] 100",
            "{strong} over {weak}"
        );
    }
    // "lexicographically smaller name wins"
    let world = World::with(&format!(
        "{}{}",
        route("b", "{kind: Mesh}", &to("v1")),
        route("a", "{kind: Mesh}", &to("v2"))
    ));
    assert_eq!(
        fate(&world.from("web-1", "http://127.0.0.1:10001/")),
        "backend[version=v2] 100"
    );
    // "`to[]` index: later item wins"
    let item = |version: &str| {
        format!(
            "{{targetRef: {{kind: MeshService, name: backend}}, rules: {}}}",
            to(version)
        )
    };
    let world = World::with(&format!(
        "\n---\n{{type: MeshHTTPRoute, mesh: default, name: r, spec: {{to: [{}, {}]}}}}",
        item("v1"),
        item("v2")
    ));
    assert_eq!(
        fate(&world.from("web-1", "http://127.0.0.1:10001/")),
        "backend[version=v2] 100"
    );
}

#[test]
fn a_shadow_policy_is_not_enforced() {
    let world = World::with(
        "\n---\n{type: MeshHTTPRoute, mesh: default, name: r, labels: {kuma.io/effect: shadow}, spec: {to: [{targetRef: {kind: MeshService, name: backend}, rules: [{matches: [{path: {prefix: /x}}], default: {}}]}]}}",
    );
    assert_eq!(
        fate(&world.from("web-1", "http://127.0.0.1:10001/")),
        "backend 100"
    );
}

fn tcp(name: &str, to: &str, backends: &str) -> String {
    format!(
        "\n---\n{{type: MeshTCPRoute, mesh: default, name: {name}, spec: {{to: [{{targetRef: {{kind: MeshService, name: {to}}}, rules: [{{default: {{backendRefs: {backends}}}}}]}}]}}}}"
    )
}

fn http(name: &str, to: &str) -> String {
    format!(
        "\n---\n{{type: MeshHTTPRoute, mesh: default, name: {name}, spec: {{to: [{{targetRef: {{kind: MeshService, name: {to}}}, rules: [{{matches: [{{path: {{prefix: /}}}}], default: {{backendRefs: [{{kind: MeshServiceSubset, name: backend, tags: {{version: v1}}}}]}}}}]}}]}}}}"
    )
}

/// MADR 011: "The route that's used for a given request is the most specific one that Kuma can apply given the `kuma.io/protocol` tag."
#[test]
fn the_protocol_decides_between_http_and_tcp_routes() {
    let split = "[{kind: MeshService, name: db2, weight: 3}, {kind: MeshService, name: backend, weight: 1}]";
    // http destination, both: HTTP applies.
    let world = World::with(&format!(
        "{}{}",
        http("h", "backend"),
        tcp("t", "backend", split)
    ));
    assert_eq!(
        fate(&world.from("web-1", "http://127.0.0.1:10001/")),
        "backend[version=v1] 100"
    );
    let ignored = world.conditions(Kind::MeshTCPRoute, "t");
    assert!(
        ignored[0].contains("a MeshHTTPRoute takes precedence"),
        "{ignored:?}"
    );
    // Only TCP: as plain TCP.
    let world = World::with(&tcp("t", "backend", split));
    assert_eq!(
        fate(&world.from("web-1", "tcp://127.0.0.1:10001")),
        "db2 75, backend 25"
    );
    // tcp destination: HTTP is ignored.
    let world = World::with(&http("h", "db"));
    assert_eq!(
        fate(&world.from("web-1", "tcp://127.0.0.1:10002")),
        "db 100"
    );
    let ignored = world.conditions(Kind::MeshHTTPRoute, "h");
    assert!(
        ignored[0].contains("its protocol is not HTTP"),
        "{ignored:?}"
    );
    let world = World::with(&format!("{}{}", http("h", "db"), tcp("t", "db", split)));
    assert_eq!(
        fate(&world.from("web-1", "tcp://127.0.0.1:10002")),
        "db2 75, backend 25"
    );
}

/// "a redirect and backendRefs meet only by merging | the redirect wins, and `check` says so".
#[test]
fn a_redirect_wins_over_backends_that_it_is_merged_with() {
    let consumer = consumer(
        "[{matches: [{path: {prefix: /v1}}], default: {filters: [{requestRedirect: {hostname: example.org}}]}}]",
    );
    let world = World::with(&format!("{OWNER}{consumer}"));
    assert_eq!(
        fate(&world.from("web-1", "http://127.0.0.1:10001/v1")),
        "302"
    );
    let said = world.conditions(Kind::MeshHTTPRoute, "owner");
    assert!(
        said[0].contains("its backendRefs get no requests"),
        "{said:?}"
    );
}

/// "if `rules: []`, a ref to `to.targetRef`": a stronger policy without rules takes the weaker one's backends away.
#[test]
fn a_tcp_route_without_rules_forwards_streams_to_their_original_destination() {
    let weak = tcp("weak", "db", "[{kind: MeshService, name: db2}]");
    let strong = "\n---\n{type: MeshTCPRoute, mesh: default, name: strong, spec: {targetRef: {kind: MeshService, name: frontend}, to: [{targetRef: {kind: MeshService, name: db}, rules: []}]}}";
    let world = World::with(&weak);
    let url = "tcp://127.0.0.1:10002";
    assert_eq!(fate(&world.from("web-1", url)), "db2 100");
    let world = World::with(&format!("{weak}{strong}"));
    assert_eq!(fate(&world.from("web-1", url)), "db 100");
    assert_eq!(policies(&world.from("web-1", url)), ["strong"]);
    let said = world.conditions(Kind::MeshTCPRoute, "weak");
    assert!(
        said.iter()
            .any(|c| c.contains("overridden by MeshTCPRoute mesh:default/strong")),
        "{said:?}"
    );
}

/// "common protocol of all endpoints": gRPC is HTTP/2, and all protocols are TCP; and a tag may be in upper case.
#[test]
fn the_protocol_of_a_service_is_the_one_that_its_endpoints_have_in_common() {
    let route = "\n---\n{type: MeshHTTPRoute, mesh: default, name: r, spec: {to: [{targetRef: {kind: MeshService, name: backend}, rules: [{matches: [{path: {prefix: /}}], default: {}}]}]}}";
    for (first, second, is_http) in [
        ("http", "http", true),
        ("HTTP", "http", true),
        ("grpc", "http2", true),
        ("http", "http2", false),
        ("http", "tcp", false),
        ("tcp", "tcp", false),
    ] {
        let tag = |protocol: &str, version: &str| {
            format!("kuma.io/protocol: {protocol}, version: {version}")
        };
        let mesh = crate::MESH
            .replace(&tag("http", "v1"), &tag(first, "v1"))
            .replace(&tag("http", "v2"), &tag(second, "v2"));
        let world = World::of(&format!("{mesh}{route}"));
        let said = world.conditions(Kind::MeshHTTPRoute, "r");
        let ignored = said[0].contains("its protocol is not HTTP");
        assert_eq!(!ignored, is_http, "{first} {second}: {said:?}");
    }
}

/// "`proxyTypes: [Sidecar,Gateway]`": a delegated gateway counts as a gateway, although it sends requests like a sidecar.
#[test]
fn a_delegated_gateway_is_a_gateway() {
    let delegated = "\n---\n{type: Dataplane, mesh: default, name: kong, networking: {address: 10.0.0.13, gateway: {type: DELEGATED, tags: {kuma.io/service: kong}}, outbound: [{port: 10001, tags: {kuma.io/service: backend}}]}}";
    let rules = "[{matches: [{path: {prefix: /}}], default: {}}]";
    for (types, kong, web) in [("Gateway", true, false), ("Sidecar", false, true)] {
        let target = format!("{{kind: Mesh, proxyTypes: [{types}]}}");
        let world = World::with(&format!("{delegated}{}", route("r", &target, rules)));
        for (name, wanted) in [("kong", kong), ("web-1", web)] {
            let found = world.from(name, "http://127.0.0.1:10001/");
            assert_eq!(found.rule.is_some(), wanted, "{types} {name}");
        }
    }
}

/// Each setting without an effect gets its own warning.
#[test]
fn missing_targets_cause_warnings() {
    let rules =
        "[{matches: [{path: {prefix: /}}], default: {filters: [{directResponse: {status: 200}}]}}]";
    let edge = |target: &str, hostnames: &str| {
        format!(
            "\n---\n{{type: MeshHTTPRoute, mesh: default, name: r, spec: {{targetRef: {target}, to: [{{targetRef: {{kind: Mesh}}, hostnames: {hostnames}, rules: {rules}}}]}}}}"
        )
    };
    let to = |name: &str| {
        route("r", "{kind: Mesh}", rules).replace("name: backend}", &format!("name: {name}}}"))
    };
    let gateway = |hostname: &str| {
        format!(
            "\n---\n{{type: Dataplane, mesh: default, name: g, networking: {{address: 10.0.0.19, gateway: {{type: BUILTIN, tags: {{kuma.io/service: g}}}}}}}}\n---\n{{type: MeshGateway, mesh: default, name: g, selectors: [{{match: {{kuma.io/service: g}}}}], conf: {{listeners: [{{port: 80, protocol: HTTP, hostname: {hostname}}}]}}}}"
        )
    };
    let cases = [
        (to("backend"), None),
        // A policy of another mesh does not apply.
        (
            to("abroad")
                + "\n---\n{type: Dataplane, mesh: away, name: d, networking: {address: 10.8.0.1, inbound: [{port: 80, tags: {kuma.io/service: abroad}}]}}",
            Some((
                "spec.to[0].targetRef",
                "mesh default has no MeshService abroad, so this item has no effect",
            )),
        ),
        (
            to("bakend"),
            Some((
                "spec.to[0].targetRef",
                "mesh default has no MeshService bakend, so this item has no effect",
            )),
        ),
        (
            route("r", "{kind: Dataplane, name: nobody}", rules),
            Some((
                "spec.targetRef",
                "no proxy of mesh default matches Dataplane nobody",
            )),
        ),
        (
            edge("{kind: MeshGateway, name: ghost}", "[]"),
            Some(("spec.targetRef", "mesh default has no MeshGateway ghost")),
        ),
        (
            edge(
                "{kind: MeshGateway, name: edge-gateway, tags: {port: other}}",
                "[]",
            ),
            Some((
                "spec.targetRef",
                "no listener with a protocol that a MeshHTTPRoute supports matches MeshGateway edge-gateway with port=other",
            )),
        ),
        (
            edge("{kind: MeshGateway, name: g}", "[a.example]") + &gateway("a.example"),
            None,
        ),
        (
            edge("{kind: MeshGateway, name: g}", "[foo.org]") + &gateway("a.example"),
            Some((
                "spec.to[0].hostnames",
                "no listener of MeshGateway mesh:default/g serves any of these hostnames, so the rules get no requests",
            )),
        ),
    ];
    for (yaml, wanted) in cases {
        let found = World::with(&yaml).binder.warnings();
        let found: Vec<_> = found
            .iter()
            .map(|w| (w.field.as_str(), w.message.as_str()))
            .collect();
        assert_eq!(found, wanted.into_iter().collect::<Vec<_>>(), "{yaml}");
    }
}

/// A share that gets 503 is reported for the policy that contains its backendRefs, regardless of the policies that the rule was merged from.
#[test]
fn a_subset_without_endpoints_causes_a_warning_at_its_position() {
    let consumer = consumer(
        "[{matches: [{path: {prefix: /v1}}], default: {filters: [{requestHeaderModifier: {set: [{name: a, value: b}]}}]}}]",
    );
    let owner = OWNER.replace("version: v1", "version: v9");
    let warnings = World::with(&format!("{owner}{consumer}")).binder.warnings();
    let found: Vec<_> = warnings
        .iter()
        .filter(|w| w.message.contains("endpoint"))
        .map(|w| (&*w.object.name.name, w.field.as_str()))
        .collect();
    assert_eq!(
        found,
        [("owner", "spec.to[0].rules[0].default.backendRefs")]
    );
}
