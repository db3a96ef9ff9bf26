//! Complete outputs of `check` and `explain`, as users see them. `INSTA_UPDATE=always cargo test -p pointsman golden` updates them.

use insta::assert_snapshot;

use crate::{WELL, pointsman, text};

/// A route that takes precedence over the one of [`WELL`].
const CART: &str = "---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: cart, namespace: shop}
spec:
  parentRefs: [{name: edge, namespace: infra}]
  rules:
  - matches: [{path: {value: /cart}}]
    filters: [{type: RequestRedirect, requestRedirect: {hostname: moved.example, statusCode: 302}}]
";

#[test]
fn check_prints_problems_with_their_positions() {
    let broken = WELL.replace("{name: web, port: 80}]\n", "{name: nope, port: 80}]\n");
    assert_snapshot!(text(&pointsman(&["check", "-f", "-"], &broken)));
}

#[test]
fn explain_prints_the_frontend_the_rule_its_effect_and_the_other_candidates() {
    let manifests = format!("{WELL}{CART}");
    let arguments = ["explain", "-f", "-", "http://127.0.0.1/cart/1"];
    assert_snapshot!(text(&pointsman(&arguments, &manifests)));
}

#[test]
fn explain_prints_the_same_as_json() {
    let manifests = format!("{WELL}{CART}");
    let arguments = [
        "explain",
        "-f",
        "-",
        "-o",
        "json",
        "http://127.0.0.1/cart/1",
    ];
    assert_snapshot!(text(&pointsman(&arguments, &manifests)));
}
