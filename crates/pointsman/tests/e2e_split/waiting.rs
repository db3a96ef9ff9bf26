//! The commands that query a controller: `status`, `wait` and `check --server`.

use std::process::Command;

use serde_json::Value;

use crate::effect::version;
use crate::kuma::{calls, dataplane, mesh};
use crate::plane::{Plane, stderr, stdout};
use crate::support::backend::Backend;
use crate::support::gateway::{Address, BINARY};
use crate::support::manifests::*;

#[tokio::test]
async fn status_lists_the_proxies() {
    let plane = Plane::start(&version(1)).await;
    let none = plane.command(&["status"]).await;
    assert_eq!(
        (none.status.code(), &*stdout(&none)),
        (Some(0), "no proxy is connected\n")
    );
    let _first = plane.proxy("edge-1", &[]).await;
    let second = plane.proxy("edge-2", &["--gateway", "default/edge"]).await;
    plane.until_effect("web", "True", "InEffect").await;
    second.signal("STOP");
    plane.write(&version(2));
    plane.until_effect("web", "False", "Lagging").await;

    let text = stdout(&plane.command(&["status"]).await);
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[0][..4],
        ["NAME", "IDENTITY", "ADDRESS", "SOFTWARE"],
        "{text}"
    );
    assert_eq!(
        (lines[1][0], lines[1][3]),
        ("edge-1", env!("CARGO_PKG_VERSION")),
        "{text}"
    );
    assert_eq!(lines[1][5], "-", "no lag: {text}");
    assert_eq!((lines[2][0], lines[2][5]), ("edge-2", "of"), "{text}");

    let json = plane.command(&["status", "-o", "json"]).await;
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let names = [0, 1].map(|index| json["proxies"][index]["name"].clone());
    assert_eq!(names, ["edge-1", "edge-2"]);
    assert_eq!(json["proxies"][0]["lagSeconds"], Value::Null);
    assert!(json["proxies"][1]["lagSeconds"].as_f64().expect("a number") >= 1.0);
    let resources = |index: usize| json["proxies"][index]["resources"].as_u64();
    assert!(resources(0) >= resources(1) && resources(1) > Some(0));
    let yaml = stdout(&plane.command(&["status", "-o", "yaml"]).await);
    assert!(yaml.contains("name: edge-1"), "{yaml}");
    second.signal("CONT");
}

#[tokio::test]
async fn status_says_why_there_is_no_list() {
    let plane = Plane::start(&version(1)).await;
    let proxy = plane.proxy("edge-1", &[]).await;
    let closed = Address::new();
    for (server, expected) in [
        (
            format!("http://{}", closed.at(15000)),
            "can't connect to http://",
        ),
        (
            format!("http://{}", proxy.admin()),
            "only a controller serves /proxies",
        ),
        (
            format!("http://{}", plane.xds()),
            " (is this the address of --xds instead of --admin?)",
        ),
        (
            "https://localhost:1".to_owned(),
            "admin servers have no TLS",
        ),
    ] {
        let output = Command::new(BINARY)
            .args(["status", "--server", &server])
            .output();
        let output = output.expect("the binary runs");
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{server}: {error}");
        assert!(error.contains(expected), "{server}: {error}");
    }
}

#[tokio::test]
async fn wait_ends_when_the_change_is_in_effect_on_every_proxy() {
    let plane = Plane::start(&version(1)).await;
    let none = plane
        .command(&[
            "wait",
            "--for",
            "in-effect",
            "httproute/default/web",
            "--timeout",
            "0s",
        ])
        .await;
    assert_eq!(none.status.code(), Some(1));
    assert!(
        stderr(&none).starts_with(
            "pointsman: not in effect:\n  HTTPRoute default/web: parent Gateway edge: not in effect"
        ),
        "{}",
        stderr(&none)
    );

    let _first = plane.proxy("edge-1", &[]).await;
    let second = plane.proxy("edge-2", &[]).await;
    let wait = ["wait", "--for", "in-effect", "httproutes/default/web"];
    let output = plane.command(&wait).await;
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), "HTTPRoute default/web is in effect\n");

    second.signal("STOP");
    plane.write(&version(2));
    plane.until_effect("web", "False", "Lagging").await;
    let output = plane
        .command(&[&wait[..], &["--timeout", "300ms"]].concat())
        .await;
    assert_eq!(output.status.code(), Some(1));
    let error = stderr(&output);
    let expected = "not in effect after 300ms:\n  HTTPRoute default/web: parent Gateway edge: not in effect (Lagging): not acknowledged by edge-2 since ";
    assert!(error.contains(expected), "{error}");

    let waiting = plane.command(&wait);
    let resume = async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        second.signal("CONT");
    };
    let (output, ()) = tokio::join!(waiting, resume);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[tokio::test]
async fn wait_says_that_a_resource_is_not_accepted_and_why() {
    let detached = route_on(
        "[{name: edge, sectionName: none}]",
        "HTTPRoute",
        "web",
        "",
        &["{}"],
    );
    let foreign = route_on("[{name: other}]", "HTTPRoute", "foreign", "", &["{}"]);
    let plane = Plane::start(&[plain(), detached, foreign].concat()).await;
    let _proxy = plane.proxy("edge-1", &[]).await;
    let wait = |object: &'static str, more: &'static [&'static str]| {
        let mut all = vec!["wait", "--for", "in-effect", "--timeout", "0s", object];
        all.extend(more);
        all
    };
    for (object, more, expected) in [
        (
            "httproute/default/web",
            &[][..],
            "not accepted (NoMatchingParent): ",
        ),
        (
            "httproute/default/foreign",
            &[],
            "none of its parents is managed by Pointsman",
        ),
        (
            "httproute/default/none",
            &[],
            "not found in the controller's configuration",
        ),
        (
            "httproute/default/web",
            &["--generation", "7"],
            "generation 1, not yet 7",
        ),
    ] {
        let output = plane.command(&wait(object, more)).await;
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{object}: {error}");
        assert!(error.contains(expected), "{object}: {error}");
    }
}

#[tokio::test]
async fn wait_supports_other_states_and_rejects_unsupported_resources() {
    let plane = Plane::start(&version(1)).await;
    let _proxy = plane.proxy("edge-1", &[]).await;
    for arguments in [
        &[
            "accepted",
            "httproute/default/web",
            "gateway/default/edge",
            "gatewayclass/pointsman",
        ][..],
        &["programmed", "gateway/default/edge"],
    ] {
        let output = plane
            .command(&[&["wait", "--for"], arguments].concat())
            .await;
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    for (arguments, expected) in [
        (
            &["programmed", "httproute/default/web"][..],
            "only Gateways, ListenerSets and MeshGateways can be programmed",
        ),
        (
            &["in-effect", "gateway/default/edge"],
            "only routes and Kuma's policies can be in effect",
        ),
        (
            &["in-effect", "service/default/web"],
            "not a kind with a status",
        ),
        (&["in-effect", "web"], "KIND/NAMESPACE/NAME"),
        (&["ready", "httproute/default/web"], "invalid value 'ready'"),
        (
            &[
                "in-effect",
                "httproute/a/b",
                "httproute/a/c",
                "--generation",
                "2",
            ],
            "requires a single resource",
        ),
    ] {
        let output = plane
            .command(&[&["wait", "--for"], arguments].concat())
            .await;
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    let closed = Address::new();
    let server = format!("http://{}", closed.at(15000));
    let wait = [
        "wait",
        "--for",
        "in-effect",
        "httproute/default/web",
        "--server",
        &server,
    ];
    let output = Command::new(BINARY)
        .args(wait)
        .output()
        .expect("the binary runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("can't connect"),
        "{}",
        stderr(&output)
    );
}

// "It appears in `check --server`": what the controller reports, in the form of `check`.
#[tokio::test]
async fn check_prints_what_a_controller_reports() {
    let detached = route_on(
        "[{name: edge, sectionName: none}]",
        "HTTPRoute",
        "bad",
        "",
        &["{}"],
    );
    let plane = Plane::start(&[version(1), detached].concat()).await;
    let _proxy = plane.proxy("edge-1", &[]).await;
    plane.until_effect("web", "True", "InEffect").await;
    let output = plane.command(&["check"]).await;
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("pointsman.io/InEffect True"), "{text}");
    assert!(text.contains("✗ HTTPRoute default/bad"), "{text}");
    assert!(text.contains("4 resources, 1 with problems"), "{text}");
    let json = plane.command(&["check", "-o", "json"]).await;
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json["kind"], "List");
    assert_eq!(json["items"].as_array().map(Vec::len), Some(4));
    let both = plane.command(&["check", "-f", "m"]).await;
    assert_eq!(both.status.code(), Some(2), "{}", stderr(&both));
}

#[test]
fn help_describes_the_commands() {
    for (command, expected) in [
        (
            "status",
            &[
                "Usage: pointsman status [OPTIONS]",
                "--server <URL>",
                "Exit status",
            ][..],
        ),
        (
            "wait",
            &[
                "KIND/NAMESPACE/NAME",
                "in-effect",
                "programmed",
                "--timeout",
                "--generation",
                "Exit status",
            ],
        ),
        ("check", &["--server <URL>"]),
    ] {
        let output = Command::new(BINARY).args([command, "--help"]).output();
        let help = stdout(&output.expect("the binary runs"));
        for part in expected {
            assert!(help.contains(part), "{part} in {help}");
        }
    }
}

// "all five route kinds and Kuma's policies": each is in effect once its proxy has it, and `wait` returns.
#[tokio::test]
async fn every_kind_of_route_can_be_waited_for() {
    let backend = Backend::http1("web").await;
    let listeners = gateway(&[
        "{name: http, port: 8080, protocol: HTTP}",
        "{name: tls, port: 8443, protocol: TLS, tls: {mode: Passthrough}}",
        "{name: tcp, port: 9000, protocol: TCP}",
        "{name: udp, port: 9001, protocol: UDP}",
    ]);
    let to = to("web");
    let rule = format!("{{{to}}}");
    let on = |kind: &str, listener: &str, more: &str| {
        let parents = format!("[{{name: edge, sectionName: {listener}}}]");
        route_on(&parents, kind, "web", more, &[&rule])
    };
    let (client, edge) = (Address::new(), Address::new());
    let manifests = [
        listeners,
        service("web", &[&backend]),
        on("HTTPRoute", "http", ""),
        route_on(
            "[{name: edge, sectionName: http}]",
            "GRPCRoute",
            "web",
            "  hostnames: [grpc.example]\n",
            &[&rule],
        ),
        on("TLSRoute", "tls", "  hostnames: [tls.example]\n"),
        on("TCPRoute", "tcp", ""),
        on("UDPRoute", "udp", ""),
        mesh(client.ip, edge.ip),
        dataplane("backend", "http", "v1", &backend),
        calls(
            "canary",
            "[{matches: [{path: {type: PathPrefix, value: /}}], default: {filters: [{type: DirectResponse, directResponse: {status: 418}}]}}]",
        ),
    ];
    let plane = Plane::start(&manifests.concat()).await;
    let kinds = ["httproute", "grpcroute", "tlsroute", "tcproute", "udproute"];
    let mut objects: Vec<String> = kinds
        .iter()
        .map(|kind| format!("{kind}/default/web"))
        .collect();
    objects.push("meshhttproute/default/canary".to_owned());
    let wait = |timeout| {
        let all = ["wait", "--for", "in-effect", "--timeout", timeout].into_iter();
        all.chain(objects.iter().map(String::as_str))
            .collect::<Vec<_>>()
    };
    let unknown = plane.command(&wait("0s")).await;
    let error = stderr(&unknown);
    assert_eq!(
        error.matches("not in effect (").count(),
        objects.len(),
        "{error}"
    );
    let _proxy = plane.proxy("edge-1", &[]).await;
    let output = plane.command(&wait("30s")).await;
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output).lines().count(), objects.len());
}
