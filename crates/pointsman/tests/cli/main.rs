//! Output and exit status of `check` and `explain`.

mod authors;
mod certificates;
mod diff;
mod golden;
mod graph;
mod kuma;
mod kuma_meshes;
mod routes;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const WELL: &str = concat!(
    pointsman_test_support::edge_gateway!(),
    r#"---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.0.0.1, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [127.0.0.1]}]
ports: [{port: 8080}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop, generation: 7}
spec:
  parentRefs: [{name: edge, namespace: infra}]
  rules:
  - backendRefs: [{name: web, port: 80}]
"#
);

fn pointsman(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_pointsman"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    // With an invalid command line, the input is not read.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_missing_cluster_is_reported_with_each_cause_once() {
    let output = Command::new(env!("CARGO_BIN_EXE_pointsman"))
        .arg("check")
        .env_clear()
        .env("KUBECONFIG", "/nonexistent/kubeconfig")
        .output()
        .expect("the binary runs");
    assert_eq!(output.status.code(), Some(2));
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("no cluster is configured"), "{printed}");
    assert_eq!(
        printed.matches("/nonexistent/kubeconfig").count(),
        1,
        "{printed}"
    );
}

#[test]
fn check_exits_with_0_if_there_are_no_problems() {
    let output = pointsman(&["check", "-f", "-"], WELL);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(
        text(&output).ends_with("5 resources, no problems\n"),
        "{}",
        text(&output)
    );
}

#[test]
fn check_exits_with_1_if_something_is_rejected_or_unresolved() {
    for broken in [
        WELL.replace("from: All", "from: Same"),
        WELL.replace("{name: web, port: 80}]\n", "{name: nope, port: 80}]\n"),
    ] {
        let output = pointsman(&["check", "-f", "-"], &broken);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(
            text(&output).starts_with("✗ HTTPRoute shop/web"),
            "problems come first"
        );
    }
}

#[test]
fn check_exits_with_2_on_invalid_input_and_still_reports_the_rest() {
    let broken = WELL.replace("port: 80, protocol: HTTP", "port: 80000, protocol: HTTP");
    let output = pointsman(&["check", "-f", "-", "-o", "json"], &broken);
    assert_eq!(output.status.code(), Some(2));
    let list = json(&output);
    let error = &list["errors"][0];
    assert_eq!(
        (&error["file"], &error["line"]),
        (&"-".into(), &13.into()),
        "{error}"
    );
    assert_eq!(error["field"], "spec.listeners[0].port");
    assert!(error["column"].as_u64().is_some_and(|column| column > 1));
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|text| text.contains("80000")),
        "{error}"
    );
    let kinds: Vec<&str> = list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item["kind"].as_str())
        .collect();
    assert_eq!(kinds, ["GatewayClass", "HTTPRoute"]);
    assert_eq!(
        pointsman(&["check", "-f", "no/such/file.yaml"], "")
            .status
            .code(),
        Some(2)
    );
    let cluster = pointsman(&["check", "--kubeconfig", "no/such/kubeconfig"], "");
    assert_eq!(cluster.status.code(), Some(2));
}

#[test]
fn warnings_affect_the_exit_status_only_with_strict() {
    let odd = WELL.replace(
        "{name: web, port: 80}]\n",
        "{name: web, port: 80, wieght: 1}]\n",
    );
    assert_eq!(
        pointsman(&["check", "-f", "-"], &odd).status.code(),
        Some(0)
    );
    let strict = pointsman(&["check", "--strict", "-f", "-"], &odd);
    assert_eq!(strict.status.code(), Some(1));
    assert!(
        text(&strict).contains("did you mean `weight`?"),
        "{}",
        text(&strict)
    );
}

#[test]
fn check_in_json_carries_the_status_that_a_controller_would_write() {
    let list = json(&pointsman(&["check", "-f", "-", "-o", "json"], WELL));
    assert_eq!(
        (&list["apiVersion"], &list["kind"]),
        (&"v1".into(), &"List".into())
    );
    let route = &list["items"][2];
    let parent = &route["status"]["parents"][0];
    assert_eq!(parent["controllerName"], "pointsman.io/controller");
    assert_eq!(parent["parentRef"]["kind"], "Gateway");
    assert_eq!(parent["parentRef"]["group"], "gateway.networking.k8s.io");
    for (at, kind) in ["Accepted", "ResolvedRefs"].iter().enumerate() {
        let condition = &parent["conditions"][at];
        assert_eq!(condition["type"], *kind);
        assert_eq!(condition["status"], "True");
        assert_eq!(condition["observedGeneration"], 7);
        assert!(
            condition["lastTransitionTime"]
                .as_str()
                .is_some_and(|time| time.ends_with('Z'))
        );
    }
    let gateway = &list["items"][1]["status"];
    assert_eq!(gateway["listeners"][0]["attachedRoutes"], 1);
    assert_eq!(
        gateway["listeners"][0]["supportedKinds"][0]["kind"],
        "HTTPRoute"
    );
}

#[test]
fn yaml_output_is_valid_input() {
    let output = pointsman(&["check", "-f", "-", "-o", "yaml"], WELL);
    let again = pointsman(&["check", "-f", "-", "-o", "json"], &text(&output));
    let kinds = json(&again)["items"].as_array().map(Vec::len);
    assert_eq!(kinds, Some(3), "{}", text(&again));
}

#[test]
fn directories_are_searched_and_hidden_files_ignored() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("folder");
    std::fs::create_dir_all(folder.join("deep/er")).expect("a folder");
    std::fs::create_dir_all(folder.join("..data")).expect("a folder");
    std::fs::write(folder.join("deep/er/all.yml"), WELL).expect("a file");
    std::fs::write(folder.join("..data/all.yml"), WELL).expect("a file");
    std::fs::write(folder.join("notes.txt"), "not a manifest").expect("a file");
    let output = pointsman(&["check", "-f", folder.to_str().expect("text")], "");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("5 resources"));
}

#[test]
fn explain_shows_the_rule_that_a_request_matches() {
    let output = pointsman(
        &[
            "explain",
            "-f",
            "-",
            "-o",
            "json",
            "-H",
            "X-Test: 1",
            "http://a.example/x?y=z",
        ],
        WELL,
    );
    assert_eq!(output.status.code(), Some(0));
    let answer = json(&output);
    assert_eq!(answer["outcome"], "forward");
    assert_eq!(answer["frontend"]["name"], "edge");
    assert_eq!(answer["frontend"]["section"], "http");
    assert_eq!(answer["rule"]["name"], "web");
    assert_eq!(
        (&answer["rule"]["rule"], &answer["rule"]["match"]),
        (&0.into(), &0.into())
    );
    assert_eq!(answer["request"]["url"], "http://a.example/x?y=z");
    assert_eq!(answer["request"]["headers"]["x-test"], "1");
    assert_eq!(answer["backends"][0]["endpoints"][0], "127.0.0.1:8080");
    assert_eq!(answer["backends"][0]["share"], 1.0);
    assert!(answer.get("status").is_none());
}

#[test]
fn explain_without_a_listener_names_gateways_that_are_not_served() {
    let manifests = "{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: other}, spec: {controllerName: example.com/other}}\n---\n\
        {apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: edge, namespace: infra}, spec: {gatewayClassName: other, listeners: [{name: http, port: 80, protocol: HTTP}]}}\n";
    let output = pointsman(&["explain", "-f", "-", "http://a.example/"], manifests);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    let expected = "warning: Gateway infra/edge: GatewayClass other belongs to controller example.com/other, not pointsman.io/controller\n";
    assert_eq!(errors, expected);
}

#[test]
fn a_gateway_class_may_be_given_in_place_of_a_manifest() {
    let gateway = "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: edge, namespace: infra}, spec: {gatewayClassName: acme, listeners: [{name: http, port: 80, protocol: HTTP}]}}\n";
    let without = pointsman(&["check", "-f", "-"], gateway);
    let text = String::from_utf8_lossy(&without.stdout).into_owned();
    assert!(text.contains("not managed by Pointsman"), "{text}");

    let check = ["check", "-f", "-", "--gateway-class", "acme", "-o", "json"];
    let status = json(&pointsman(&check, gateway))["items"][0]["status"].clone();
    assert_eq!(status["conditions"][0]["type"], "Accepted");
    assert_eq!(status["conditions"][0]["status"], "True");

    let other = "---\n{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: acme}, spec: {controllerName: example.com/acme}}\n";
    let defined = pointsman(&check[..5], &format!("{gateway}{other}"));
    let text = String::from_utf8_lossy(&defined.stdout).into_owned();
    let expected = "GatewayClass acme belongs to controller example.com/acme";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn explain_lists_rejected_routes() {
    let refused = WELL.replace("from: All", "from: Same");
    let output = pointsman(
        &["explain", "-f", "-", "-o", "json", "http://a.example/"],
        &refused,
    );
    assert_eq!(output.status.code(), Some(1));
    let answer = json(&output);
    assert_eq!(answer["outcome"], "no-route");
    assert_eq!(answer["status"], 404);
    assert_eq!(answer["candidates"][0]["lostOn"], "refused");
    assert_eq!(answer["candidates"][0]["name"], "web");
}

#[test]
fn explain_lists_dropped_rules_and_no_route_twice() {
    let dropped = WELL.replace(
        "  parentRefs: [{name: edge, namespace: infra}]\n  rules:\n",
        "  parentRefs: [{name: edge, namespace: infra, sectionName: http}, {name: edge, namespace: infra, sectionName: none}]\n  \
         rules:\n  - {name: odd, matches: [{path: {type: RegularExpression, value: '/('}}]}\n",
    );
    let output = pointsman(
        &["explain", "-f", "-", "-o", "json", "http://a.example/"],
        &dropped,
    );
    let answer = json(&output);
    assert_eq!(answer["rule"]["rule"], 1, "{answer}");
    let candidates = answer["candidates"].as_array().expect("a list");
    assert_eq!(candidates.len(), 1, "{answer}");
    assert_eq!(candidates[0]["rule"], 0);
    assert_eq!(candidates[0]["ruleName"], "odd");
    assert_eq!(candidates[0]["lostOn"], "refused");
}

#[test]
fn explain_supports_clients_in_the_mesh() {
    let mesh = format!(
        "{WELL}---\n{}",
        r#"
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: mesh, namespace: shop}
spec:
  parentRefs: [{group: "", kind: Service, name: web}]
  rules:
  - matches: [{path: {value: /only}}]
"#
    );
    let ask = |url: &str| {
        json(&pointsman(
            &["explain", "-f", "-", "-o", "json", "--from", "team", url],
            &mesh,
        ))
    };
    let answer = ask("http://web.shop/only");
    assert_eq!(answer["frontend"]["kind"], "Service");
    assert_eq!(answer["rule"]["name"], "mesh");
    assert_eq!(answer["backends"][0]["endpoints"][0], "127.0.0.1:8080");
    assert_eq!(ask("http://10.0.0.1/else")["status"], 404);
}

#[test]
fn explain_names_the_route_kind_that_applies_to_a_port() {
    let mesh = r#"
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {clusterIP: 10.0.0.1, ports: [{name: web, port: 80}, {name: bytes, port: 9000}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop}
spec:
  parentRefs: [{group: "", kind: Service, name: cart, port: 80}]
  rules: [{}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: bytes, namespace: shop}
spec:
  parentRefs: [{group: "", kind: Service, name: cart}]
  rules: [{backendRefs: [{name: cart, port: 9000}]}]
"#;
    let arguments = ["explain", "-f", "-", "-o", "json", "http://cart.shop/"];
    let answer = json(&pointsman(&arguments, mesh));
    assert_eq!(answer["rule"]["name"], "web", "{answer}");
    let candidates = answer["candidates"].as_array().expect("a list");
    assert_eq!(candidates.len(), 1, "{answer}");
    assert_eq!(candidates[0]["name"], "bytes");
    assert_eq!(candidates[0]["lostOn"], "kind", "{answer}");
    let detail = candidates[0]["detail"].as_str().unwrap_or_default();
    assert!(
        detail.contains(
            "overridden by HTTPRoute shop/web: only one kind of route applies to port 80"
        ),
        "{detail}"
    );
}

#[test]
fn invalid_arguments_of_explain_are_named() {
    for (arguments, words) in [
        (
            ["explain", "-f", "-", "-H", "nocolon", "http://a/"],
            "`name: value`",
        ),
        (
            ["explain", "-f", "-", "--gateway", "edge", "http://a/"],
            "NAMESPACE/NAME",
        ),
        (["explain", "-f", "-", "-X", "GET", "ftp://a/"], "ftp"),
    ] {
        let output = pointsman(&arguments, WELL);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(words), "{stderr}");
    }
}

/// Creates an empty directory.
fn fresh(name: &str) -> std::path::PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

#[test]
fn an_unreadable_file_does_not_hide_others() {
    let folder = fresh("unreadable");
    std::fs::write(folder.join("well.yaml"), WELL).expect("a file");
    let empty = fresh("empty");
    let (folder, empty) = (
        folder.to_str().expect("text"),
        empty.to_str().expect("text"),
    );
    let output = pointsman(
        &[
            "check",
            "-o",
            "json",
            "-f",
            "no/such.yaml",
            "-f",
            empty,
            "-f",
            folder,
        ],
        "",
    );
    assert_eq!(output.status.code(), Some(2));
    let list = json(&output);
    assert_eq!(list["items"].as_array().map(Vec::len), Some(3), "{list}");
    let errors = list["errors"].as_array().expect("a list");
    assert_eq!(errors.len(), 2, "{list}");
    assert_eq!(
        (&errors[0]["file"], &errors[0]["line"]),
        (&"no/such.yaml".into(), &0.into())
    );
    assert_eq!(
        errors[1]["message"],
        "this directory contains no *.yaml, *.yml or *.json file"
    );
    let output = pointsman(&["check", "-q", "-f", "no/such.yaml"], "");
    assert!(
        text(&output).starts_with("error: no/such.yaml: No such file"),
        "{}",
        text(&output)
    );
}

#[cfg(unix)]
#[test]
fn a_file_with_several_paths_is_read_once() {
    let folder = fresh("twice");
    let file = folder.join("well.yaml");
    std::fs::write(&file, WELL).expect("a file");
    for (target, link) in [(".", "loop"), (".", "again"), ("well.yaml", "link.yaml")] {
        std::os::unix::fs::symlink(target, folder.join(link)).expect("a link");
    }
    let (folder, file) = (folder.to_str().expect("text"), file.to_str().expect("text"));
    let output = pointsman(&["check", "-f", folder, "-f", file, "-f", folder], "");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).ends_with("5 resources, no problems\n"));
}

#[test]
fn requests_to_a_service_without_routes_go_to_its_endpoints() {
    let services = WELL.replace("kind: HTTPRoute", "kind: Nothing");
    let explained = json(&pointsman(
        &[
            "explain",
            "-f",
            "-",
            "-o",
            "json",
            "--from",
            "shop",
            "http://web/",
        ],
        &services,
    ));
    let backend = &explained["backends"][0];
    assert_eq!(backend["endpoints"][0], "127.0.0.1:8080", "{explained}");
}

#[test]
fn a_failing_share_of_grpc_calls_shows_its_status() {
    let calls = WELL
        .replace("kind: HTTPRoute", "kind: GRPCRoute")
        .replace("{name: web, port: 80}]\n", "{name: nope, port: 80}]\n");
    let printed = text(&pointsman(
        &["explain", "-f", "-", "grpc://a/b.C/D"],
        &calls,
    ));
    let expected = "Service shop/nope port 80  gRPC status 14: Service shop/nope does not exist";
    assert!(printed.contains(expected), "{printed}");
}

#[test]
fn a_rule_that_is_unreachable_on_one_listener_is_reported_with_the_listener() {
    let second = "  - {name: alt, port: 81, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}\n---\napiVersion: v1\nkind: Service";
    let older = "---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: older, namespace: shop, creationTimestamp: '2020-01-01T00:00:00Z'}
spec:
  parentRefs: [{name: edge, namespace: infra, sectionName: http}]
  rules: [{backendRefs: [{name: web, port: 80}]}]
";
    let warned = |input: &str| {
        let list = json(&pointsman(&["check", "-f", "-", "-o", "json"], input));
        list["warnings"][0]["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let all = "HTTPRoute shop/web: receives no requests: rule 0 of HTTPRoute shop/older takes precedence for all of them";
    let once = format!("{WELL}{older}");
    assert!(warned(&once).starts_with(all), "{}", warned(&once));
    let twice = once.replacen("---\napiVersion: v1\nkind: Service", second, 1);
    let here = all.replace("web: ", "web: on listener http: ");
    assert!(warned(&twice).starts_with(&here), "{}", warned(&twice));
}

#[test]
fn an_unmanaged_object_is_not_marked_as_accepted() {
    let lost = WELL.replace("{name: edge, namespace: infra}]\n", "{name: gone}]\n");
    let printed = text(&pointsman(&["check", "-f", "-"], &lost));
    assert!(printed.contains("\n- HTTPRoute shop/web"), "{printed}");
}

#[test]
fn check_and_explain_report_a_backend_that_requires_tls_without_a_policy() {
    let asks = WELL.replace(
        "ports: [{port: 80}]",
        "ports: [{port: 80, appProtocol: https}]",
    );
    let check = pointsman(&["check", "-q", "-f", "-"], &asks);
    assert_eq!(check.status.code(), Some(1));
    let why = "requires TLS, but no BackendTLSPolicy targets it";
    assert!(text(&check).contains(why), "{}", text(&check));
    let arguments = ["explain", "-f", "-", "-o", "json", "http://a.example/"];
    let explained = json(&pointsman(&arguments, &asks));
    let backend = &explained["backends"][0];
    assert_eq!(backend["status"], 500, "{explained}");
    assert!(backend.to_string().contains(why), "{explained}");
}
