//! `check` and `explain` report routes without traffic and rejected objects, and keep existing status.

use serde_json::Value;

use crate::{WELL, json, pointsman, text};

fn check(manifests: &str) -> (Option<i32>, String) {
    let output = pointsman(&["check", "-f", "-"], manifests);
    (output.status.code(), text(&output))
}

/// Returns the warnings of `check`: field and message of each.
fn warnings(manifests: &str) -> Vec<(String, String)> {
    let list = json(&pointsman(&["check", "-f", "-", "-o", "json"], manifests));
    let all = list["warnings"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    all.map(|warning| (text(&warning["field"]), text(&warning["message"])))
        .collect()
}

const STREAMS: &str = r#"
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: pointsman}
spec: {controllerName: pointsman.io/controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  gatewayClassName: pointsman
  listeners:
  - {name: tcp, port: 5432, protocol: TCP}
  - {name: udp, port: 53, protocol: UDP}
  - {name: tls, port: 443, protocol: TLS, tls: {mode: Passthrough}}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: 10.0.0.1, ports: [{name: tcp, port: 5432}, {name: udp, port: 53, protocol: UDP}]}
---
apiVersion: v1
kind: Pod
metadata: {name: db-1, namespace: shop, labels: {app: db}}
status: {podIP: 10.1.0.7}
"#;

fn route(kind: &str, name: &str, parent: &str, hostnames: &str, port: u16) -> String {
    format!(
        "---\n{{apiVersion: gateway.networking.k8s.io/v1, kind: {kind}, metadata: {{name: {name}, namespace: shop}}, spec: {{parentRefs: [{parent}], {hostnames}rules: [{{backendRefs: [{{name: db, port: {port}}}]}}]}}}}\n"
    )
}

#[test]
fn a_second_stream_route_on_a_listener_or_service_port_is_unreachable() {
    let edge = "{name: edge}";
    let service = "{group: '', kind: Service, name: db, port: 5432}";
    let udp_service = "{group: '', kind: Service, name: db, port: 53}";
    let host = "hostnames: [a.example], ";
    for (kind, parent, hostnames, port, unit) in [
        ("TCPRoute", edge, "", 5432, "connections"),
        ("TCPRoute", service, "", 5432, "connections"),
        ("UDPRoute", edge, "", 53, "datagrams"),
        ("UDPRoute", udp_service, "", 53, "datagrams"),
        ("TLSRoute", edge, host, 5432, "connections"),
        ("TLSRoute", service, host, 5432, "connections"),
    ] {
        let one = |name: &str| route(kind, name, parent, hostnames, port);
        let found = warnings(&format!("{STREAMS}{}{}", one("one"), one("two")));
        let never = format!(
            "{kind} shop/two: receives no {unit}: rule 0 of {kind} shop/one takes precedence for all of them"
        );
        let matching = found
            .iter()
            .filter(|(field, message)| field == "spec.rules[0]" && message.starts_with(&never));
        assert_eq!(matching.count(), 1, "{kind} {parent}: {found:#?}");
        let alone = warnings(&format!("{STREAMS}{}", one("one")));
        assert!(
            !alone
                .iter()
                .any(|(_, message)| message.contains("never gets")),
            "{alone:#?}"
        );
    }
}

#[test]
fn tls_routes_for_different_names_share_a_listener_but_not_a_service_port() {
    let both = |parent: &str| {
        let of = |name: &str, host: &str| {
            route(
                "TLSRoute",
                name,
                parent,
                &format!("hostnames: [{host}], "),
                5432,
            )
        };
        let manifests = format!(
            "{STREAMS}{}{}",
            of("one", "a.example"),
            of("two", "b.example")
        );
        (warnings(&manifests), check(&manifests).1)
    };
    let (found, _) = both("{name: edge}");
    assert!(
        !found.iter().any(|(_, m)| m.contains("never gets")),
        "{found:#?}"
    );
    // "GAMMA implementations SHOULD NOT infer any functionality from the hostnames field on xRoutes."
    let (found, printed) = both("{group: '', kind: Service, name: db, port: 5432}");
    let message = "TLSRoute shop/two: receives no connections: rule 0 of TLSRoute shop/one takes precedence for all of them (route shop/one is older; hostnames are ignored in the mesh)";
    assert!(found.iter().any(|(_, m)| m == message), "{found:#?}");
    assert!(
        printed.contains(
            "hostnames are ignored in the mesh; connections match regardless of their SNI"
        ),
        "{printed}"
    );
    assert!(!printed.contains("match the header Host"), "{printed}");
}

#[test]
fn a_tls_route_that_loses_one_of_its_names_loses_some_connections() {
    let of = |name: &str, hosts: &str| {
        let hosts = format!("hostnames: [{hosts}], ");
        route("TLSRoute", name, "{name: edge}", &hosts, 5432)
    };
    let found = warnings(&format!(
        "{STREAMS}{}{}",
        of("one", "a.example"),
        of("two", "a.example, b.example")
    ));
    let message = "TLSRoute shop/two: rule 0 of TLSRoute shop/one takes precedence for some of its connections";
    assert!(
        found.iter().any(|(_, m)| m.starts_with(message)),
        "{found:#?}"
    );
}

#[test]
fn a_rejected_gateway_is_reported_with_its_position() {
    let broken = WELL.replace("port: 80, protocol: HTTP", "port: 80000, protocol: HTTP");
    let (code, printed) = check(&broken);
    assert_eq!(code, Some(2));
    let line = "HTTPRoute shop/web: Gateway infra/edge was rejected as invalid at -:13:";
    assert!(printed.contains(line), "{printed}");
    assert!(!printed.contains("does not exist"), "{printed}");
    let arguments = [
        "explain",
        "-f",
        "-",
        "--gateway",
        "infra/edge",
        "http://a.example/",
    ];
    let output = pointsman(&arguments, &broken);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{complaint}");
    assert!(
        complaint.contains("Gateway infra/edge was rejected as invalid at -:13:"),
        "{complaint}"
    );
    assert!(complaint.contains("80000"), "the error itself: {complaint}");
}

#[test]
fn a_rejected_service_and_class_are_reported_as_rejected() {
    let service = WELL.replace("ports: [{port: 80}]}", "ports: [{port: 80000}]}");
    let (_, printed) = check(&service);
    assert!(
        printed.contains("Service shop/web was rejected as invalid at -:18:"),
        "{printed}"
    );
    let class = WELL.replace(
        "spec: {controllerName: pointsman.io/controller}",
        "spec: {}",
    );
    let (_, printed) = check(&class);
    assert!(
        printed.contains("GatewayClass pointsman was rejected as invalid at -:5:"),
        "{printed}"
    );
}

#[test]
fn parents_with_different_fields_are_reported_with_the_missing_fields() {
    let both = WELL.replace(
        "parentRefs: [{name: edge, namespace: infra}]",
        "parentRefs: [{name: edge, namespace: infra, sectionName: http}, {name: edge, namespace: infra, port: 80}]",
    );
    let (code, printed) = check(&both);
    assert_eq!(code, Some(2));
    assert!(
        printed.contains(
            "spec.parentRefs[1]: item 0 refers to the same object; both must set the same fields, but this item sets port and item 0 sets sectionName"
        ),
        "{printed}"
    );
}

// "Implementations MUST NOT remove or reorder Conditions that they are not directly responsible for."
#[test]
fn an_own_entry_in_a_manifests_status_is_recognized_with_its_defaults() {
    let status = r#"
status:
  parents:
  - controllerName: pointsman.io/controller
    parentRef: {name: edge, namespace: infra}
    conditions:
    - {type: example.com/Audited, status: "True", reason: Ok, message: "", lastTransitionTime: "2020-01-01T00:00:00Z"}
    - {type: Accepted, status: "True", reason: Accepted, message: "", observedGeneration: 6, lastTransitionTime: "2021-01-01T00:00:00Z"}
    - {type: ResolvedRefs, status: "False", reason: Later, message: "", observedGeneration: 8, lastTransitionTime: "2022-01-01T00:00:00Z"}
"#;
    let manifests = format!("{}{}", WELL.trim_end(), status);
    let list = json(&pointsman(&["check", "-f", "-", "-o", "json"], &manifests));
    let parents = &list["items"][2]["status"]["parents"];
    assert_eq!(parents.as_array().map(Vec::len), Some(1), "{parents:#}");
    let conditions = &parents[0]["conditions"];
    assert_eq!(conditions[0]["type"], "example.com/Audited");
    assert_eq!(conditions[1]["lastTransitionTime"], "2021-01-01T00:00:00Z");
    assert_eq!(conditions[1]["observedGeneration"], 7);
    // The entry is for a later generation than the object's.
    assert_eq!(conditions[2]["reason"], "Later", "{conditions:#}");
    assert_eq!(conditions[2]["observedGeneration"], 8);
}

fn explain(manifests: &str, more: &[&str]) -> (Option<i32>, Value) {
    let mut arguments = vec!["explain", "-f", "-", "-o", "json"];
    arguments.extend(more);
    let output = pointsman(&arguments, manifests);
    (output.status.code(), json(&output))
}

#[test]
fn a_pods_own_address_bypasses_routes() {
    let service = "{group: '', kind: Service, name: db, port: 5432}";
    let manifests = format!("{STREAMS}{}", route("TCPRoute", "one", service, "", 5432));
    for more in [
        &["--from", "shop", "tcp://10.1.0.7:5432"][..],
        &["tcp://10.1.0.7:9999"],
        &["--from", "other", "http://10.1.0.7/x"],
    ] {
        let (code, explained) = explain(&manifests, more);
        assert_eq!(
            (code, &explained["outcome"]),
            (Some(0), &"forward".into()),
            "{explained:#}"
        );
        let why = explained["why"].as_str().unwrap_or_default();
        assert!(
            why.starts_with("10.1.0.7 is the address of Pod shop/db-1 itself"),
            "{why}"
        );
        assert!(why.contains("bypasses"), "{why}");
        assert_eq!(explained["backends"][0]["name"], "db-1");
        assert!(explained.get("rule").is_none());
    }
    // An endpoint without a Pod.
    let (code, explained) = explain(WELL, &["--from", "shop", "http://127.0.0.1:8080/"]);
    assert_eq!(code, Some(0), "{explained:#}");
    let why = explained["why"].as_str().unwrap_or_default();
    assert!(
        why.starts_with("127.0.0.1:8080 is an endpoint of Service shop/web"),
        "{why}"
    );
}

#[test]
fn the_explanation_for_a_client_in_the_producers_namespace_mentions_no_missing_routes() {
    let service = "{group: '', kind: Service, name: db, port: 5432}";
    let manifests = format!("{STREAMS}{}", route("TCPRoute", "one", service, "", 5432));
    let why = |from: &str| {
        let (_, explained) = explain(&manifests, &["--from", from, "tcp://db.shop:5432"]);
        explained["why"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(why("shop"), "port 5432 of Service shop/db, for all clients");
    assert!(why("other").contains("namespace other has no routes of its own"));
}
