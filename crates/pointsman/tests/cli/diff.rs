//! Output and exit status of `diff`.

use std::path::{Path, PathBuf};

use insta::assert_snapshot;
use serde_json::Value;

use crate::{WELL, json, pointsman, text};

/// A folder with the files of a test.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Files(tempfile::tempdir().expect("a folder"))
    }

    fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).expect("a file");
        path
    }
}

/// Compares `old` with `new`, and returns standard output and exit status.
fn diff(old: &str, new: &str, arguments: &[&str]) -> (String, Option<i32>) {
    let files = Files::new();
    let new = files.write("new.yaml", new);
    let new = new.to_str().expect("UTF-8");
    let all = [&["diff", "-f", "-", "-F", new], arguments].concat();
    let output = pointsman(&all, old);
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    (text(&output), output.status.code())
}

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    path.join(name).to_str().expect("UTF-8").to_owned()
}

const ROUTE: &str = "---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop, namespace: shop}
spec:
  parentRefs: [{name: edge, namespace: infra}]
  hostnames: [shop.example]
  rules:
  - matches:
    - {path: {value: /cart}, method: GET}
    - {path: {value: /cart}, headers: [{name: x-canary, value: 'yes'}]}
    timeouts: {request: 10s}
    filters:
    - {type: RequestHeaderModifier, requestHeaderModifier: {add: [{name: x-team, value: cart}]}}
    backendRefs: [{name: web, port: 80}]
";

#[test]
fn a_set_of_manifests_has_no_difference_to_itself() {
    let manifests = format!("{WELL}{ROUTE}");
    let (printed, status) = diff(&manifests, &manifests, &[]);
    assert_eq!(
        (&*printed, status),
        ("no differences (0 representative requests)\n", Some(0))
    );
}

#[test]
fn differences_are_grouped_by_cause_with_a_request_each() {
    let new = ROUTE
        .replace("request: 10s", "request: 5s")
        .replace("value: cart", "value: carts")
        .replace("[shop.example]", "[shop.example, www.shop.example]");
    let (printed, status) = diff(&format!("{WELL}{ROUTE}"), &format!("{WELL}{new}"), &[]);
    assert_eq!(status, Some(1));
    assert_snapshot!(printed);
}

#[test]
fn listeners_and_hosts_that_are_new_or_removed_are_named() {
    let https = "  - {name: plain, port: 8080, protocol: HTTP";
    let listener = "  - {name: http, port: 80, protocol: HTTP";
    assert!(WELL.contains(listener), "the listener of the manifests");
    let line = WELL
        .lines()
        .find(|line| line.starts_with(listener))
        .expect("a listener");
    let added = line.replace(listener, https);
    let new = WELL.replace(line, &format!("{line}\n{added}"));
    let (printed, _) = diff(WELL, &format!("{new}{ROUTE}"), &[]);
    assert_snapshot!(printed);
    let (printed, _) = diff(&format!("{new}{ROUTE}"), WELL, &[]);
    assert!(
        printed.contains("Gateway infra/edge listener plain port 8080 is removed"),
        "{printed}"
    );
    assert!(
        printed.contains("HTTPRoute shop/shop is removed: its requests go to HTTPRoute shop/web"),
        "{printed}"
    );
}

#[test]
fn mesh_routes_grpc_and_kuma_are_compared_as_far_as_explain_explains_them() {
    for (folder, file, old, new, wanted) in [
        ("mesh-split", "", "weight: 90", "weight: 80", "from "),
        (
            "shop",
            "routes.yaml",
            "shop.v1.Catalog",
            "shop.v2.Catalog",
            "POST grpc://catalog.shop.example",
        ),
        (
            "kuma-universal",
            "",
            "value: dev",
            "value: test",
            "from dataplane/",
        ),
    ] {
        let files = Files::new();
        for entry in std::fs::read_dir(example(folder)).expect("an example") {
            let path = entry.expect("a file").path();
            let name = path.file_name().expect("a name").to_str().expect("UTF-8");
            let content = std::fs::read_to_string(&path).expect("text");
            let changed = content.replacen(old, new, 1);
            files.write(
                name,
                if file.is_empty() || file == name {
                    &changed
                } else {
                    &content
                },
            );
        }
        let folder_of_new = files.0.path().to_str().expect("UTF-8");
        let output = pointsman(&["diff", "-f", &example(folder), "-F", folder_of_new], "");
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(1), "{folder}: {printed}");
        assert!(printed.contains(wanted), "{folder}: {printed}");
    }
}

#[test]
fn the_json_output_has_the_cause_the_request_and_both_treatments() {
    let files = Files::new();
    let new = files.write("new.yaml", &format!("{WELL}{ROUTE}"));
    let arguments = [
        "diff",
        "-f",
        "-",
        "-o",
        "json",
        "-F",
        new.to_str().expect("UTF-8"),
    ];
    let output = pointsman(&arguments, WELL);
    let report: Value = json(&output);
    let difference = &report["differences"][0];
    assert_eq!(difference["cause"], "route-added");
    assert_eq!(difference["request"]["gateway"], "infra/edge");
    assert_eq!(difference["old"]["rule"]["name"], "web");
    assert_eq!(difference["new"]["rule"]["name"], "shop");
    assert_eq!(report["complete"], true);
}

#[test]
fn recorded_requests_that_change_are_counted_with_their_lines() {
    let files = Files::new();
    let entry = |path: &str| {
        format!(
            r#"{{"time":"2026-03-01T12:00:00.250Z","listener":"infra/edge/http","protocol":"HTTP/1.1","method":"GET","authority":"shop.example","path":"{path}","status":200}}"#
        )
    };
    let log = [
        entry("/cart/1"),
        entry("/"),
        entry("/cart/1"),
        entry("/cart/2?a=b"),
    ]
    .join("\n");
    let log = files.write("log", &log);
    let list = "GET http://shop.example/\nPOST http://shop.example/cart\nX-Canary: yes\n";
    let list = files.write("list", list);
    let summaries = [(log, "3 of 4 recorded"), (list, "1 of 2 recorded")].map(|(path, wanted)| {
        let path = path.to_str().expect("UTF-8").to_owned();
        let (printed, status) = diff(WELL, &format!("{WELL}{ROUTE}"), &["--requests", &path]);
        assert_eq!(status, Some(1));
        assert!(printed.contains(wanted), "{printed}");
        printed
    });
    assert_snapshot!(summaries.join("----\n"));
}

#[test]
fn an_invalid_input_is_reported_with_its_side() {
    let files = Files::new();
    let broken = files.write(
        "new.yaml",
        &WELL.replace("port: 80, protocol: HTTP", "port: 80000, protocol: HTTP"),
    );
    let broken = broken.to_str().expect("UTF-8");
    let output = pointsman(&["diff", "-f", "-", "-F", broken], WELL);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.starts_with("-F: ") && error.contains("80000"),
        "{error}"
    );
    let output = pointsman(&["diff", "-f", "-", "-F", "-"], WELL);
    assert_eq!(output.status.code(), Some(2));
}
