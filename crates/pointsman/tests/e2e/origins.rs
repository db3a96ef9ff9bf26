//! Requests that origin servers read differently from Pointsman: trailers, header names with underscores, methods in another case, ambiguous paths.

use crate::support::backend::{Backend, Saw, status};
use crate::support::gateway::Gateway;
use crate::support::manifests::*;
use crate::support::message::*;

/// Filters that set, add and remove headers at the rule, and set one at the backend; `more` are further filters of the rule.
fn edits(more: &str) -> String {
    format!(
        "
filters:
- type: RequestHeaderModifier
  requestHeaderModifier:
    set: [{{name: X-Set, value: rule}}]
    add: [{{name: X-Add, value: rule}}]
    remove: [X-Gone]{more}
backendRefs:
- name: web
  port: 80
  filters: [{{type: RequestHeaderModifier, requestHeaderModifier: {{set: [{{name: X-Own, value: backend}}]}}}}]"
    )
}

fn manifests(protocol: &str, backend: &Backend, rule: &str) -> String {
    let service = service_as("web", protocol, &[backend]);
    [plain(), service, route("web", &[rule])].concat()
}

/// Sends a request with headers that have underscores over both versions, and returns what the backend saw.
async fn underscored(gateway: &Gateway, backend: &Backend) -> Vec<Saw> {
    let ask = [
        "X_Forwarded_For",
        "x_forwarded-proto",
        "X-Forwarded_Host",
        "x_request_id",
        "Transfer_Encoding",
        "content_length",
        "Keep_Alive",
        "X_Set",
        "x_gone",
        "x_own",
        "X_Add",
        "X_Other",
    ]
    .into_iter()
    .fold(get("/"), |ask, name| ask.header(name, "client"));
    assert_eq!(gateway.ask(ask.clone()).await.status, 200);
    assert_eq!(gateway.ask_http2(ask).await.status, 200);
    backend.saw(2).await
}

/// RFC 3875 §4.1.18: "The HTTP header field name is converted to upper case, has all occurrences of "-" replaced with "_" and has "HTTP_" prepended": `X_User` and
/// `X-User` are one to CGI.
#[tokio::test]
async fn a_name_with_underscores_never_stands_for_one_that_is_set_or_removed_or_frames() {
    let kept = |saw: &Saw| -> Vec<String> {
        let names = saw
            .headers
            .iter()
            .map(|(name, _)| name.to_ascii_lowercase());
        let mut names: Vec<String> = names.filter(|name| name.contains('_')).collect();
        names.sort_unstable();
        names
    };
    let backend = Backend::http1("web").await;
    let gateway = Gateway::of(&manifests("http", &backend, &edits(""))).await;
    for saw in underscored(&gateway, &backend).await {
        assert_eq!(kept(&saw), ["x_add", "x_other"]);
        assert_eq!(saw.all("x-set"), ["rule"]);
        assert_eq!(saw.all("x-own"), ["backend"]);
        assert_eq!(saw.all("x-forwarded-for"), ["127.0.0.1"]);
    }
    // Without filters only Pointsman's own names and framing are guarded.
    let backend = Backend::http2_with("web", |_| status(200)).await;
    let gateway = Gateway::of(&manifests("kubernetes.io/h2c", &backend, &to("web"))).await;
    for saw in underscored(&gateway, &backend).await {
        let wanted = ["x_add", "x_gone", "x_other", "x_own", "x_set"];
        assert_eq!(kept(&saw), wanted);
    }
}
