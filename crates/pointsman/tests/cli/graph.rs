//! Output of `graph`.

use insta::assert_snapshot;

use crate::{WELL, json, pointsman, text};

/// A route that the Gateway refuses, and one whose backend does not exist.
const PROBLEMS: &str = "---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: refused, namespace: shop}
spec:
  parentRefs: [{name: edge, namespace: infra, sectionName: nope}, {name: nobody, namespace: infra}]
  rules: [{backendRefs: [{name: web, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: split, namespace: shop}
spec:
  parentRefs: [{name: edge, namespace: infra}]
  hostnames: [split.example]
  rules:
  - matches: [{path: {value: /new}}]
    backendRefs: [{name: web, port: 80, weight: 9}, {name: missing, port: 80}]
  - matches: [{path: {value: /old}}]
    filters: [{type: RequestRedirect, requestRedirect: {hostname: new.example}}]
";

fn graph(arguments: &[&str]) -> String {
    let manifests = format!("{WELL}{PROBLEMS}");
    let output = pointsman(&[&["graph", "-f", "-"], arguments].concat(), &manifests);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text(&output)
}

#[test]
fn mermaid_and_graphviz_show_routes_backends_and_problems() {
    assert_snapshot!(graph(&["-o", "mermaid"]));
    assert_snapshot!(graph(&["-o", "dot"]));
}

#[test]
fn a_name_that_no_object_has_is_an_error() {
    let output = pointsman(&["graph", "-f", "-", "nobody"], WELL);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    let expected = "no Gateway, route or other object in the graph is named `nobody`";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn json_lists_nodes_and_edges() {
    assert_snapshot!(graph(&["-o", "json"]));
}

#[test]
fn the_default_is_a_picture_without_scripts() {
    let picture = graph(&[]);
    assert_eq!(picture, graph(&["-o", "svg"]));
    assert_snapshot!(picture);
}

#[test]
fn mesh_parents_and_dataplanes_are_parents() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/");
    for folder in ["mesh-consumer", "kuma-universal"] {
        let path = format!("{root}{folder}");
        let output = pointsman(&["graph", "-o", "mermaid", "-f", &path], "");
        assert_snapshot!(folder, text(&output));
    }
}

#[test]
fn a_name_or_namespace_selects_what_is_connected_to_it() {
    let titles = |arguments: &[&str]| {
        let manifests = format!("{WELL}{PROBLEMS}");
        let all = [&["graph", "-f", "-", "-o", "json"], arguments].concat();
        let graph = json(&pointsman(&all, &manifests));
        let nodes = graph["nodes"].as_array().expect("nodes").iter();
        let titles = nodes.map(|node| node["title"].as_str().expect("a title").to_owned());
        titles.collect::<Vec<_>>()
    };
    let web = [
        "Gateway infra/edge",
        "listener http",
        "HTTPRoute shop/web",
        "Service shop/web port 80",
    ];
    assert_eq!(titles(&["httproute/shop/web"]), web);
    assert_eq!(titles(&["-n", "elsewhere"]), Vec::<String>::new());
    assert_eq!(titles(&["-n", "infra"]), titles(&["-n", "shop"]));
    let output = pointsman(&["graph", "-f", "-", "nowhere"], WELL);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("`nowhere`"), "{error}");
}
