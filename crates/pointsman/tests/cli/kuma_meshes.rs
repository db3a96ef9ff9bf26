//! Names, warnings and explanations of Kuma resources with several meshes, proxies and hostnames.

use crate::kuma::example;
use crate::{json, pointsman, text};

/// Meshes `one` and `two`, each with a client `c`, and in `one` a gateway with two proxies that have different tags.
const TWO_MESHES: &str = r#"
{type: Dataplane, mesh: one, name: b, networking: {address: 127.0.0.1, inbound: [{port: 81, tags: {kuma.io/service: b, kuma.io/protocol: http}}]}}
---
{type: Dataplane, mesh: two, name: b, networking: {address: 127.0.0.1, inbound: [{port: 82, tags: {kuma.io/service: b, kuma.io/protocol: http}}]}}
---
{type: Dataplane, mesh: one, name: c, networking: {address: 127.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: c}}], outbound: [{port: 10001, tags: {kuma.io/service: b}}]}}
---
{type: Dataplane, mesh: two, name: c, networking: {address: 127.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: c}}], outbound: [{port: 10002, tags: {kuma.io/service: b}}]}}
---
{type: MeshHTTPRoute, mesh: one, name: first, spec: {to: [{targetRef: {kind: MeshService, name: b}, rules: [{matches: [{path: {prefix: /}}], default: {filters: [{directResponse: {status: 201}}]}}]}]}}
---
{type: MeshHTTPRoute, mesh: two, name: second, spec: {to: [{targetRef: {kind: MeshService, name: b}, rules: [{matches: [{path: {prefix: /}}], default: {filters: [{directResponse: {status: 202}}]}}]}]}}
---
{type: Dataplane, mesh: one, name: edge-eu, networking: {address: 127.45.1.1, gateway: {type: BUILTIN, tags: {kuma.io/service: edge, region: eu}}}}
---
{type: Dataplane, mesh: one, name: edge-us, networking: {address: 127.45.1.2, gateway: {type: BUILTIN, tags: {kuma.io/service: edge, region: us}}}}
---
{type: MeshGateway, mesh: one, name: edge, selectors: [{match: {kuma.io/service: edge}}], conf: {listeners: [{port: 8080, protocol: HTTP}, {port: 8081, protocol: HTTP, hostname: a.example}]}}
---
{type: MeshHTTPRoute, mesh: one, name: eu, spec: {targetRef: {kind: MeshGateway, name: edge, tags: {region: eu}}, to: [{targetRef: {kind: Mesh}, rules: [{matches: [{path: {prefix: /}}], default: {filters: [{directResponse: {status: 203}}]}}]}]}}
---
{type: MeshHTTPRoute, mesh: one, name: us, spec: {targetRef: {kind: MeshGateway, name: edge, tags: {region: us}}, to: [{targetRef: {kind: Mesh}, rules: [{matches: [{path: {prefix: /}}], default: {filters: [{directResponse: {status: 206}}]}}]}]}}
"#;

/// A universal document is identified by its mesh and name, so an ambiguous name is an error.
#[test]
fn an_ambiguous_proxy_name_requires_its_mesh() {
    let check_for = |name: &str| {
        let arguments = ["check", "-f", "-", "-o", "json", "--for", name];
        pointsman(&arguments, TWO_MESHES)
    };
    for (name, from) in [
        ("one/c", "first"),
        ("two/c", "second"),
        ("mesh:two/c", "second"),
        ("dataplane/two/c", "second"),
        ("edge-eu", "eu"),
        ("edge-us", "us"),
        ("dataplane/edge-us", "us"),
    ] {
        let result = json(&check_for(name));
        assert_eq!(
            result["destinations"][0]["rules"][0]["from"][0], from,
            "{name}"
        );
    }
    let several = check_for("c");
    assert_eq!(several.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&several.stderr);
    assert!(
        stderr.contains("--for `c`: the name is ambiguous; it may be Dataplane mesh:one/c or Dataplane mesh:two/c: use MESH/NAME"),
        "{stderr}"
    );
    let explain = |arguments: &[&str]| {
        let all = [&["explain", "-f", "-", "-o", "json"], arguments].concat();
        pointsman(&all, TWO_MESHES)
    };
    let from = |name: &str| explain(&["--from", name, "http://b.mesh/"]);
    assert_eq!(json(&from("dataplane/two/c"))["status"], 202);
    assert_eq!(from("dataplane/c").status.code(), Some(2));
    for (arguments, status) in [
        (&["--gateway", "edge-eu", "http://x:8080/"][..], 203),
        (&["--gateway", "edge-us", "http://x:8080/"], 206),
        (&["--gateway", "one/edge-us/8080", "http://x/"], 206),
        (
            &["--gateway", "edge-us/8081/a.example", "http://a.example/"],
            206,
        ),
        (&["http://127.45.1.2:8080/"], 206),
        (&["http://127.45.1.1:8080/"], 203),
    ] {
        let output = explain(arguments);
        assert_eq!(json(&output)["status"], status, "{arguments:?}");
    }
    for gateway in ["nobody", "a/b", "edge/9"] {
        let code = explain(&["--gateway", gateway, "http://x/"]).status.code();
        assert_ne!(code, Some(0), "{gateway}");
    }
}

/// Each other rule is listed once, even if its policy applies to several listeners; so is a rule that applies to no listener.
#[test]
fn explain_lists_every_other_rule_of_a_gateway_once() {
    let output = pointsman(
        &[
            "explain",
            "-f",
            "-",
            "-o",
            "json",
            "--gateway",
            "edge-us",
            "http://x:8080/",
        ],
        TWO_MESHES,
    );
    let result = json(&output);
    assert_eq!(
        (&result["rule"]["name"], &result["rule"]["to"]),
        (&"us".into(), &0.into())
    );
    let candidates = result["candidates"].as_array().expect("a list");
    let names: Vec<_> = candidates.iter().map(|one| one["name"].as_str()).collect();
    assert_eq!(names, [Some("eu")], "{candidates:?}");
    let idle = TWO_MESHES.replace("tags: {region: us}}, to", "tags: {region: mars}}, to");
    let output = pointsman(
        &[
            "explain",
            "-f",
            "-",
            "-o",
            "json",
            "--gateway",
            "edge-us",
            "http://x:8080/",
        ],
        &idle,
    );
    let candidates = json(&output)["candidates"].clone();
    let found = candidates.as_array().expect("a list").iter();
    let found: Vec<_> = found
        .map(|one| (one["name"].as_str(), one["lostOn"].as_str()))
        .collect();
    assert!(found.contains(&(Some("us"), Some("scope"))), "{candidates}");
}

/// "explain and the proxy agree": the host of the URL is a header too.
#[test]
fn explain_matches_the_host_of_the_url_as_a_header() {
    let route = "{type: MeshHTTPRoute, mesh: two, name: second, spec: {to: [{targetRef: {kind: MeshService, name: b}, rules: [{matches: [{path: {prefix: /}, headers: [{name: host, type: Exact, value: 'b.mesh:10002'}]}], default: {filters: [{directResponse: {status: 218}}]}}, {matches: [{path: {prefix: /}}], default: {}}]}]}}";
    let yaml = format!("{TWO_MESHES}---\n{route}").replacen("name: second", "name: other", 1);
    let ask = |more: &[&str]| {
        let all = [
            &[
                "explain",
                "-f",
                "-",
                "-o",
                "json",
                "--from",
                "dataplane/two/c",
            ],
            more,
        ]
        .concat();
        json(&pointsman(&all, &yaml))["status"].clone()
    };
    assert_eq!(ask(&["http://b.mesh:10002/"]), 218);
    assert_ne!(ask(&["http://b.mesh/"]), 218);
    assert_eq!(ask(&["http://b.mesh/", "-H", "Host: b.mesh:10002"]), 218);
}

/// "0 when the request is forwarded or redirected, 1 when it is answered with an error".
#[test]
fn explain_ends_with_1_where_no_backend_can_take_the_request() {
    let refs = |backend: &str| {
        TWO_MESHES.replace(
            "{filters: [{directResponse: {status: 201}}]}",
            &format!("{{backendRefs: [{backend}]}}"),
        )
    };
    for (backend, code) in [
        ("{kind: MeshService, name: b}", 0),
        ("{kind: MeshService, name: nope}", 1),
        ("{kind: MeshServiceSubset, name: b, tags: {version: v9}}", 1),
        (
            "{kind: MeshService, name: nope}, {kind: MeshService, name: b}",
            0,
        ),
    ] {
        let arguments = [
            "explain",
            "-f",
            "-",
            "--from",
            "dataplane/one/c",
            "http://b.mesh/",
        ];
        let output = pointsman(&arguments, &refs(backend));
        assert_eq!(
            output.status.code(),
            Some(code),
            "{backend}\n{}",
            text(&output)
        );
    }
}

/// Kinds that route traffic but are not supported are ignored with a warning.
#[test]
fn unsupported_routing_kinds_are_warnings() {
    let documents = "{type: TrafficRoute, mesh: default, name: a, conf: {}}
---
{apiVersion: kuma.io/v1alpha1, kind: MeshGatewayRoute, mesh: default, metadata: {name: a}}
---
{type: MeshTrafficRoute, mesh: default, name: a}
---
{type: CircuitBreaker, mesh: default, name: a}
";
    let output = pointsman(&["check", "-f", "-"], documents);
    assert_eq!(output.status.code(), Some(0));
    let printed = text(&output);
    for expected in [
        "warning: -:1:8: type: TrafficRoute is not supported and is ignored; use a MeshHTTPRoute or MeshTCPRoute instead",
        "warning: -:3:38: kind: MeshGatewayRoute is not supported and is ignored",
        "warning: -:5:8: type: MeshTrafficRoute is not supported and is ignored",
    ] {
        assert!(printed.contains(expected), "{expected}\n{printed}");
    }
    assert!(!printed.contains("CircuitBreaker is"), "{printed}");
}

/// Outbounds without a destination, and ignored settings.
#[test]
fn outbounds_without_a_service_and_ignored_tls_settings_are_warnings() {
    let yaml = TWO_MESHES
        .replace(
            "{port: 10002, tags: {kuma.io/service: b}}",
            "{port: 10002, tags: {kuma.io/service: gone}}",
        )
        .replace(
            "{port: 8080, protocol: HTTP}",
            "{port: 8080, protocol: HTTP, tls: {mode: TERMINATE, certificates: [{secret: a}]}}",
        );
    let output = pointsman(&["check", "-f", "-"], &yaml);
    let printed = text(&output);
    for expected in [
        "networking.outbound: Dataplane mesh:two/c: 127.0.0.1:10002 has no destination: no inbound has the tags of MeshService mesh:two/gone",
        "conf.listeners[0].tls: MeshGateway mesh:one/edge: ignored, because the protocol of the listener is neither HTTPS nor TLS",
    ] {
        assert!(printed.contains(expected), "{expected}\n{printed}");
    }
}

/// A rule is reported as unreachable only if it is unreachable under all of its hostnames, and never because of itself.
#[test]
fn a_rule_with_several_hostnames_does_not_shadow_itself() {
    let gateway = "{type: Dataplane, mesh: m, name: e, networking: {address: 127.0.0.1, gateway: {type: BUILTIN, tags: {kuma.io/service: e}}}}
---
{type: MeshGateway, mesh: m, name: e, selectors: [{match: {kuma.io/service: e}}], conf: {listeners: [{port: 8080, protocol: HTTP, hostname: '*.example.com'}]}}
";
    let policy = |name: &str, hostnames: &str, path: &str| {
        format!(
            "---\n{{type: MeshHTTPRoute, mesh: m, name: {name}, spec: {{targetRef: {{kind: MeshGateway, name: e}}, to: [{{targetRef: {{kind: Mesh}}, hostnames: {hostnames}, rules: [{{matches: [{{path: {{type: PathPrefix, value: {path}}}}}], default: {{filters: [{{type: DirectResponse, directResponse: {{status: 200}}}}]}}}}]}}]}}}}\n"
        )
    };
    let strict = |policies: String| {
        let output = pointsman(
            &["check", "--strict", "-f", "-"],
            &format!("{gateway}{policies}"),
        );
        (output.status.code(), text(&output))
    };
    for hostnames in [
        "['*.example.com', '*']",
        "[b.example.com, B.example.com]",
        "['*.example.com', '*.com']",
    ] {
        let (code, printed) = strict(policy("x", hostnames, "/"));
        assert_eq!(code, Some(0), "{hostnames}\n{printed}");
    }
    let (code, printed) = strict(
        policy("f", "['*.com', b.example.com]", "/x") + &policy("g", "['*.example.com']", "/"),
    );
    assert_eq!(code, Some(0), "{printed}");
    let (code, printed) =
        strict(policy("f", "['*.com']", "/x") + &policy("g", "['*.example.com']", "/"));
    assert_eq!(code, Some(1), "{printed}");
    assert!(
        printed
            .contains("receives no requests: rule 0 of MeshHTTPRoute mesh:m/g takes precedence for all of them"),
        "{printed}"
    );
}

/// Different policies may apply to the proxies of a MeshGateway; the rules of each are shown.
#[test]
fn check_for_shows_the_rules_of_every_proxy_of_a_gateway() {
    let output = pointsman(
        &["check", "-f", "-", "--for", "edge", "-o", "json"],
        TWO_MESHES,
    );
    let result = json(&output);
    let all = result["destinations"].as_array().expect("a list").iter();
    let all: Vec<_> = all
        .map(|one| {
            (
                one["destination"].as_str(),
                one["rules"][0]["from"][0].as_str(),
            )
        })
        .collect();
    assert_eq!(
        all[..3],
        [
            (
                Some("listener 8080 on Dataplane mesh:one/edge-eu"),
                Some("eu")
            ),
            (
                Some("listener 8081/a.example on Dataplane mesh:one/edge-eu"),
                Some("eu")
            ),
            (
                Some("listener 8080 on Dataplane mesh:one/edge-us"),
                Some("us")
            ),
        ]
    );
}

/// An expression that is too large once compiled is rejected quickly, and others are unaffected.
#[test]
fn regular_expressions_have_a_size_limit() {
    let route = |rules: &str| {
        TWO_MESHES.replace("rules: [{matches: [{path: {prefix: /}}], default: {filters: [{directResponse: {status: 201}}]}}]", &format!("rules: [{rules}]"))
    };
    let rule = |value: &str, status: u16| {
        format!(
            "{{matches: [{{path: {{type: RegularExpression, value: '{value}'}}}}], default: {{filters: [{{directResponse: {{status: {status}}}}}]}}}}"
        )
    };
    let large = rule(r"/n[\p{L}]{1,300}", 210);
    let yaml = route(&format!("{large}, {}", rule("/small/[0-9]+", 211)));
    let output = pointsman(&["check", "-f", "-"], &yaml);
    assert!(
        text(&output).contains("Compiled regex exceeds size limit"),
        "{}",
        text(&output)
    );
    let output = pointsman(
        &[
            "explain",
            "-f",
            "-",
            "-o",
            "json",
            "--from",
            "dataplane/one/c",
            "http://b.mesh/small/7",
        ],
        &yaml,
    );
    assert_eq!(json(&output)["status"], 211);
}

/// Proxies of a mesh without mutual TLS can't connect to a `crossMesh` listener; and the listener's own hostname and port take precedence over a service's.
#[test]
fn explain_respects_the_access_rules_of_a_cross_mesh_listener() {
    let folder = example("kuma-cross-mesh");
    let more = "{type: Mesh, name: plain}
---
{type: Dataplane, mesh: plain, name: outsider, networking: {address: 127.0.0.1, inbound: [{port: 1, tags: {kuma.io/service: o}}], outbound: [{port: 10009, tags: {kuma.io/service: catalog-gateway, kuma.io/mesh: shop}}]}}
---
{type: Dataplane, mesh: shop, name: front-1, networking: {address: 127.0.0.1, inbound: [{port: 1, tags: {kuma.io/service: front}}], outbound: [{port: 10011, tags: {kuma.io/service: catalog}}]}}
---
{type: MeshHTTPRoute, mesh: partners, name: own, spec: {to: [{targetRef: {kind: MeshService, name: catalog-gateway}, rules: [{matches: [{path: {prefix: /p}}], default: {}}]}]}}
";
    let ask = |arguments: &[&str]| {
        let all = [
            &["explain", "-f", &folder, "-f", "-", "-o", "json"],
            arguments,
        ]
        .concat();
        let output = pointsman(&all, more);
        (output.status.code(), json(&output))
    };
    let (code, result) = ask(&[
        "--from",
        "dataplane/orders-1",
        "http://catalog.mesh:10443/public/x",
    ]);
    assert_eq!((code, &result["outcome"]), (Some(0), &"forward".into()));
    let (code, result) = ask(&[
        "--from",
        "dataplane/outsider",
        "http://catalog.mesh:10443/public/x",
    ]);
    assert_eq!((code, &result["outcome"]), (Some(1), &"no-frontend".into()));
    let (_, result) = ask(&[
        "--from",
        "dataplane/front-1",
        "http://catalog.mesh:10443/private",
    ]);
    assert_eq!(result["outcome"], "no-route");
    // Without a client proxy, the gateway is unreachable.
    assert_eq!(
        ask(&[
            "--gateway",
            "catalog-gateway",
            "http://catalog.mesh:10443/public/x"
        ])
        .0,
        Some(1)
    );
    // The policy that applies to the request is not listed as inactive.
    let (_, result) = ask(&["--from", "dataplane/orders-1", "http://127.0.0.1:10002/p/x"]);
    assert_eq!(result["rule"]["name"], "own");
    assert_eq!(result["candidates"], serde_json::json!([]));
    let checked = pointsman(&["check", "-f", &folder, "-f", "-"], more);
    assert!(
        text(&checked).contains("127.0.0.1:10009 has no usable destination"),
        "{}",
        text(&checked)
    );
}
