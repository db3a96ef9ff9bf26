//! Kuma's policies: `check`, `check --for` and `explain` as a user runs them.

use std::path::Path;

use crate::{json, pointsman, text};

#[test]
fn all_mistakes_in_kuma_documents_are_reported_at_once_with_exit_status_2() {
    let documents = "type: MeshHTTPRoute
name: a
spec:
  to:
  - targetRef: {kind: MeshService}
    rules:
    - matches: [{path: {type: PathPrefix, value: /v1/}}]
      default: {filtres: []}
---
apiVersion: kuma.io/v1alpha1
kind: MeshTCPRoute
metadata: {name: b}
spec:
  to:
  - targetRef: {kind: Mesh}
";
    let output = pointsman(&["check", "-f", "-"], documents);
    assert_eq!(output.status.code(), Some(2));
    let printed = text(&output);
    for expected in [
        "error: -:5:16: spec.to[0].targetRef.name: name or labels must be set when kind is MeshService",
        "error: -:7:50: spec.to[0].rules[0].matches[0].path.value: does not need a trailing slash",
        "warning: -:8:17: spec.to[0].rules[0].default.filtres: unknown field; did you mean `filters`?",
        "error: -:15:23: spec.to[0].targetRef.kind: value 'Mesh' is not supported",
    ] {
        assert!(printed.contains(expected), "{expected}\n{printed}");
    }
}

pub fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    path.join(name).to_string_lossy().into_owned()
}

#[test]
fn check_for_shows_the_merged_rules_and_their_policies() {
    let folder = example("kuma-universal");
    let output = pointsman(
        &["check", "-f", &folder, "--for", "frontend-1", "-o", "json"],
        "",
    );
    assert_eq!(output.status.code(), Some(0));
    let result = json(&output);
    assert_eq!(result["for"], "frontend-1");
    let destination = &result["destinations"][0];
    assert_eq!(destination["destination"], "MeshService backend");
    let rule = &destination["rules"][0];
    assert_eq!(rule["matches"][0]["path"]["value"], "/v2");
    assert_eq!(rule["from"], serde_json::json!(["consumer", "owner"]));
    assert_eq!(rule["filters"][0]["type"], "RequestHeaderModifier");
    assert_eq!(rule["backendRefs"][0]["tags"]["version"], "v2");
    let unknown = pointsman(&["check", "-f", &folder, "--for", "nobody"], "");
    assert_eq!(unknown.status.code(), Some(2));
}

/// Policies for destinations apply to calls, policies for a gateway to the gateway itself.
#[test]
fn check_prints_where_a_policy_applies() {
    let folder = example("kuma-universal");
    let printed = text(&pointsman(&["check", "-f", &folder], ""));
    for line in [
        "applies to calls to MeshService mesh:default/backend from Dataplane mesh:default/frontend-1",
        "applies to MeshGateway mesh:default/edge on Dataplane mesh:default/edge-1",
    ] {
        assert!(printed.contains(line), "{line}\n{printed}");
    }
}

#[test]
fn explain_accepts_a_dataplane_and_a_mesh_gateway() {
    let folder = example("kuma-universal");
    let explain = |arguments: &[&str]| {
        let mut all = vec!["explain", "-f", &folder, "-o", "json"];
        all.extend(arguments);
        pointsman(&all, "")
    };
    for url in ["http://127.0.0.1:10001/v2", "http://backend.mesh/v2"] {
        let output = explain(&["--from", "dataplane/frontend-1", url]);
        assert_eq!(output.status.code(), Some(0), "{url}");
        let result = json(&output);
        assert_eq!(
            result["rule"]["from"],
            serde_json::json!(["consumer", "owner"])
        );
        assert_eq!(result["backends"][0]["tags"]["version"], "v2");
        assert_eq!(result["backends"][0]["endpoints"][0], "127.0.0.1:13002");
    }
    let output = explain(&["--gateway", "edge", "http://test.example.com/v2"]);
    assert_eq!(json(&output)["backends"][0]["tags"]["version"], "v1");
    let output = explain(&["--from", "dataplane/nobody", "http://backend.mesh/"]);
    assert_eq!(output.status.code(), Some(2));
    let pod = pointsman(
        &[
            "explain",
            "-f",
            &example("kuma-kubernetes"),
            "-o",
            "json",
            "--from",
            "kuma-demo/web-1",
            "http://backend:3001/",
        ],
        "",
    );
    assert_eq!(json(&pod)["backends"][0]["tags"]["version"], "1.0");
}

/// "which rule takes this request and why, and why every other one does not": this includes rules that a more specific policy replaced.
#[test]
fn explain_lists_rules_that_were_replaced_by_merging() {
    let rule = "rules: [{matches: [{path: {type: PathPrefix, value: /}}], default: {backendRefs: [{kind: MeshService, name: b}]}}]";
    let mesh = format!(
        r#"
{{type: Dataplane, mesh: default, name: a, networking: {{address: 127.0.0.1, inbound: [{{port: 80, tags: {{kuma.io/service: a}}}}], outbound: [{{port: 10001, tags: {{kuma.io/service: b}}}}]}}}}
---
{{type: Dataplane, mesh: default, name: b, networking: {{address: 127.0.0.1, inbound: [{{port: 81, tags: {{kuma.io/service: b, kuma.io/protocol: http}}}}]}}}}
---
{{type: Dataplane, mesh: default, name: e, networking: {{address: 127.0.0.1, gateway: {{type: BUILTIN, tags: {{kuma.io/service: e}}}}}}}}
---
{{type: MeshGateway, mesh: default, name: edge, selectors: [{{match: {{kuma.io/service: e}}}}], conf: {{listeners: [{{port: 8080, protocol: HTTP}}]}}}}
---
{{type: MeshHTTPRoute, mesh: default, name: owner, spec: {{to: [{{targetRef: {{kind: MeshService, name: b}}, {rule}}}]}}}}
---
{{type: MeshHTTPRoute, mesh: default, name: mine, spec: {{targetRef: {{kind: MeshService, name: a}}, to: [{{targetRef: {{kind: MeshService, name: b}}, {rule}}}]}}}}
---
{{type: MeshHTTPRoute, mesh: default, name: x, spec: {{targetRef: {{kind: MeshGateway, name: edge}}, to: [{{targetRef: {{kind: Mesh}}, hostnames: [b.com, "*.longer.com", a.longer.com], {rule}}}]}}}}
---
{{type: MeshHTTPRoute, mesh: default, name: z, spec: {{targetRef: {{kind: MeshGateway, name: edge}}, to: [{{targetRef: {{kind: Mesh}}, hostnames: [b.com], {rule}}}]}}}}
"#
    );
    let ask = |by: &[&str]| {
        let output = pointsman(&[&["explain", "-f", "-", "-o", "json"], by].concat(), &mesh);
        let answer = json(&output);
        let last = answer["candidates"].as_array().and_then(|all| all.last());
        last.cloned().unwrap_or_default()
    };
    let lost = ask(&["--from", "dataplane/a", "http://b.mesh/"]);
    assert_eq!(
        (&lost["name"], &lost["lostOn"]),
        (&"owner".into(), &"order".into())
    );
    assert_eq!(
        lost["detail"],
        "Merged: overridden by MeshHTTPRoute mesh:default/mine, which is more specific and has the same matches for MeshService mesh:default/b"
    );
    let lost = ask(&["--gateway", "edge", "http://b.com:8080/"]);
    assert_eq!((&lost["name"], &lost["rule"]), (&"z".into(), &0.into()));
    assert_eq!(
        lost["detail"],
        "Merged: overridden by MeshHTTPRoute mesh:default/x, which is more specific and has the same matches for listener 8080 b.com"
    );
    // "Characters in a matching non-wildcard hostname", then "Characters in a matching hostname".
    let output = pointsman(&["check", "-f", "-", "--for", "edge", "-o", "json"], &mesh);
    let answer = json(&output);
    let result = answer["destinations"].as_array().expect("a list").iter();
    let result: Vec<&str> = result.filter_map(|to| to["destination"].as_str()).collect();
    assert_eq!(
        result,
        [
            "listener 8080 a.longer.com",
            "listener 8080 b.com",
            "listener 8080 *.longer.com"
        ]
    );
}

#[test]
fn explain_lists_policies_that_do_not_select_a_dataplane_and_check_warns_of_empty_subsets() {
    let mesh = r#"
{type: Mesh, name: default}
---
{type: Dataplane, mesh: default, name: a, networking: {address: 127.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: a}}], outbound: [{port: 10001, tags: {kuma.io/service: b}}]}}
---
{type: Dataplane, mesh: default, name: b, networking: {address: 127.0.0.1, inbound: [{port: 81, tags: {kuma.io/service: b, kuma.io/protocol: http}}]}}
---
{type: MeshHTTPRoute, mesh: default, name: others, spec: {targetRef: {kind: MeshService, name: c}, to: [{targetRef: {kind: MeshService, name: b}, rules: [{matches: [{path: {type: PathPrefix, value: /}}], default: {}}]}]}}
---
{type: MeshHTTPRoute, mesh: default, name: mine, spec: {to: [{targetRef: {kind: MeshService, name: b}, rules: [{matches: [{path: {type: PathPrefix, value: /}}], default: {backendRefs: [{kind: MeshServiceSubset, name: b, tags: {version: v9}}]}}]}]}}
"#;
    let output = pointsman(
        &[
            "explain",
            "-f",
            "-",
            "-o",
            "json",
            "--from",
            "dataplane/a",
            "http://b.mesh/",
        ],
        mesh,
    );
    let candidates = &json(&output)["candidates"];
    assert_eq!(candidates[0]["name"], "others");
    assert_eq!(candidates[0]["lostOn"], "scope");
    let detail = candidates[0]["detail"].as_str().unwrap_or_default();
    assert!(
        detail.contains("its targetRef (MeshService c) does not select"),
        "{detail}"
    );
    let output = pointsman(&["check", "-f", "-", "--strict"], mesh);
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output);
    let warning = "spec.to[0].rules[0].default.backendRefs: MeshHTTPRoute mesh:default/mine: MeshService mesh:default/b with version=v9 has no ready endpoint";
    assert!(printed.contains(warning), "{printed}");
}

/// "`consumer` policies apply only to dataplanes of the policy's namespace": this reason is shown, rather than another target.
#[test]
fn explain_names_the_namespace_of_a_consumer_policy() {
    let folder = example("kuma-kubernetes");
    let policy = "{apiVersion: kuma.io/v1alpha1, kind: MeshHTTPRoute, metadata: {name: theirs, namespace: elsewhere}, spec: {to: [{targetRef: {kind: MeshService, name: backend, namespace: kuma-demo}, rules: [{matches: [{path: {type: PathPrefix, value: /}}], default: {}}]}]}}";
    let ask = [
        "explain",
        "-f",
        &folder,
        "-f",
        "-",
        "--from",
        "kuma-demo/web-1",
    ];
    let printed = text(&pointsman(
        &[&ask[..], &["http://backend.kuma-demo:3001/"]].concat(),
        policy,
    ));
    assert!(
        printed
            .contains("NotSelected: it is a consumer policy, for calls from namespace elsewhere"),
        "{printed}"
    );
}

/// `check --for` shows merged rules in order of evaluation, which is not the order in which they are written.
#[test]
fn check_for_numbers_matches_in_order_of_evaluation() {
    let mesh = r#"
{type: Dataplane, mesh: default, name: a, networking: {address: 127.0.0.1, outbound: [{port: 10001, tags: {kuma.io/service: b}}]}}
---
{type: Dataplane, mesh: default, name: b, networking: {address: 127.0.0.1, inbound: [{port: 81, tags: {kuma.io/service: b, kuma.io/protocol: http}}]}}
---
{type: MeshHTTPRoute, mesh: default, name: first, spec: {to: [{targetRef: {kind: MeshService, name: b}, rules: [
  {matches: [{method: GET}], default: {filters: [{directResponse: {status: 201}}]}},
  {matches: [{path: {type: RegularExpression, value: /r.*}}, {path: {type: Exact, value: /e}}], default: {filters: [{directResponse: {status: 202}}]}},
  {matches: [{path: {prefix: /p}}], default: {filters: [{directResponse: {status: 203}}]}},
  {matches: [{path: {prefix: /p/q}}], default: {filters: [{directResponse: {status: 204}}]}}]}]}}
"#;
    let output = pointsman(&["check", "-f", "-", "--for", "a", "-o", "json"], mesh);
    let result = json(&output);
    let rules = result["destinations"][0]["rules"]
        .as_array()
        .expect("rules");
    let order: Vec<(&serde_json::Value, &serde_json::Value)> = rules
        .iter()
        .map(|rule| {
            (
                &rule["filters"][0]["directResponse"]["status"],
                &rule["order"],
            )
        })
        .collect();
    let expected = serde_json::json!([[202, [4, 1]], [204, [2]], [203, [3]], [201, [5]]]);
    assert_eq!(serde_json::json!(order), expected);
    let printed = text(&pointsman(&["check", "-f", "-", "--for", "a"], mesh));
    for line in [
        "matches are evaluated in the order of their numbers; if none applies, the client gets 404",
        "1. matches: {\"path\":{\"type\":\"Exact\",\"value\":\"/e\"}}",
        "5. matches: {\"method\":\"GET\"}",
    ] {
        assert!(printed.contains(line), "{line}\n{printed}");
    }
    // The same applies to the rules of a gateway.
    let folder = example("kuma-universal");
    let printed = text(&pointsman(&["check", "-f", &folder, "--for", "edge"], ""));
    assert!(printed.contains("1. matches: "), "{printed}");
    assert!(
        printed.contains("if none applies, less specific hostnames are tried"),
        "{printed}"
    );
}

/// `check` and `explain` report why there is no listener for an outbound whose backendRef does not resolve.
#[test]
fn an_outbound_that_does_not_resolve_is_explained() {
    let mesh = "{type: Dataplane, mesh: default, name: a, networking: {address: 127.0.0.1, outbound: [{port: 10001, backendRef: {kind: MeshService, name: nope, port: 80}}]}}";
    for url in ["http://127.0.0.1:10001/", "http://nope.mesh/"] {
        let ask = ["explain", "-f", "-", "--from", "dataplane/a", url];
        let output = pointsman(&ask, mesh);
        assert_eq!(output.status.code(), Some(1));
        let printed = text(&output);
        let expected = "Dataplane mesh:default/a has an outbound at 127.0.0.1:10001, but its port is not open because its backendRef does not resolve (mesh default \
                      has no MeshService nope)";
        assert!(printed.contains(expected), "{printed}");
    }
    let printed = text(&pointsman(&["check", "-f", "-"], mesh));
    let expected = "networking.outbound[0].backendRef: Dataplane mesh:default/a: 127.0.0.1:10001 is not served: mesh default has no MeshService nope";
    assert!(printed.contains(expected), "{printed}");
}

/// Dataplanes of Kuma 3.0 have no tags; they are selected by labels.
#[test]
fn check_and_explain_support_dataplanes_without_tags() {
    let folder = example("kuma-labels");
    let checked = pointsman(&["check", "-f", &folder, "--strict"], "");
    let printed = text(&checked);
    assert_eq!(checked.status.code(), Some(0), "{printed}");
    let reaches = "applies to calls to MeshService mesh:default/backend port 80 from Dataplane mesh:default/batch-1";
    assert!(printed.contains(reaches), "{printed}");
    for (url, backend) in [
        ("http://backend.mesh/v2/x", "backend-v2"),
        ("http://backend.mesh:80/", "backend"),
        ("http://127.0.0.1:11001/v2", "backend-v2"),
    ] {
        let ask = [
            "explain",
            "-f",
            &folder,
            "-o",
            "json",
            "--from",
            "dataplane/batch-1",
            url,
        ];
        let output = pointsman(&ask, "");
        assert_eq!(output.status.code(), Some(0), "{url}");
        assert_eq!(json(&output)["backends"][0]["name"], backend, "{url}");
    }
}
