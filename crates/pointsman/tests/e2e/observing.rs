//! The access log and metrics.

use bytes::Bytes;
use serde_json::Value;

use crate::support::backend::{BackendResponse, Backend, status};
use crate::support::gateway::Gateway;
use crate::support::http1::Http1;
use crate::support::http2::Http2;
use crate::support::manifests::*;
use crate::support::message::*;
use crate::support::{eventually, within};

fn manifests(backend: &Backend) -> String {
    let rule =
        "{name: pages, matches: [{path: {value: /a}}], backendRefs: [{name: web, port: 80}]}";
    [plain(), service("web", &[backend]), route("web", &[rule])].concat()
}

#[tokio::test]
async fn the_access_log_has_one_line_per_request() {
    let backend = Backend::http1_with("web", |_| status(201)).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("requests");
    let setup = Gateway::setup(&manifests(&backend));
    let gateway = setup
        .argument("--access-log", &format!("json:{}", file.display()))
        .start()
        .await;
    assert_eq!(gateway.ask(post("/a?b=c", "four")).await.status, 201);
    assert_eq!(gateway.ask(get("/none")).await.status, 404);
    let lines = || -> Vec<Value> {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        // The last line may be incomplete.
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    };
    eventually("two lines", || async { lines().len() == 2 }).await;
    let lines = lines();
    let text = lines[0].to_string();
    for expected in [
        "POST",
        "/a?b=c",
        "201",
        "HTTPRoute/default/web",
        "Service/default/web:80",
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    assert!(text.contains(&backend.address.to_string()), "{text}");
    assert_eq!(
        (&lines[0]["rule"], &lines[0]["match"]),
        (&0.into(), &0.into())
    );
    assert_eq!(lines[0]["request_bytes"], 4);
    let text = lines[1].to_string();
    for expected in ["404", "NoRoute"] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
}

#[tokio::test]
async fn rejected_requests_are_logged_and_counted() {
    let backend = Backend::http1("web").await;
    let gateway = Gateway::setup(&manifests(&backend))
        .argument("--access-log", "json")
        .limit("body-bytes", "10")
        .start()
        .await;
    let mut client = Http1::connect(gateway.at(8080)).await;
    client
        .send("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
        .await;
    let length = client.response().await.text().len();
    let chunks = "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n12345678\r\n8\r\n12345678\r\n";
    let mut client = Http1::connect(gateway.at(8080)).await;
    client.send(chunks).await;
    assert_eq!(client.response().await.status, 413);
    assert_eq!(gateway.ask(get("/%zz")).await.status, 400);
    let http2 = get("/a?b").header("host", "elsewhere");
    assert_eq!(gateway.ask_http2(http2).await.status, 400);
    let find = |reason: &str| {
        let log = gateway.log();
        let mut lines = log
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        lines.find(|line: &Value| line["reason"] == reason)
    };
    eventually("four lines", || async {
        let reasons = ["DuplicateHost", "BodyTooLarge", "BadPath", "HostMismatch"];
        reasons.iter().all(|reason| find(reason).is_some())
    })
    .await;
    let line = find("DuplicateHost").expect("a line");
    assert_eq!(
        (&line["status"], &line["protocol"]),
        (&400.into(), &"HTTP/1.1".into())
    );
    assert_eq!(line["response_bytes"], length);
    assert_eq!(line["path"], Value::Null);
    let line = find("BodyTooLarge").expect("a line");
    assert_eq!(
        (&line["status"], &line["request_bytes"]),
        (&413.into(), &8.into())
    );
    let line = find("HostMismatch").expect("a line");
    assert_eq!(
        (&line["method"], &line["path"]),
        (&"GET".into(), &"/a?b".into())
    );
    let text = gateway.ask_admin("/metrics").await.text();
    let counted = "pointsman_listener_requests_total{kind=\"Gateway\",namespace=\"default\",name=\"edge\",listener=\"http\",code=\"4xx\"} 4";
    assert!(text.contains(counted), "{text}");
}

#[tokio::test]
async fn metrics_count_requests_and_connections() {
    let backend = Backend::http1("web").await;
    let gateway = Gateway::of(&manifests(&backend)).await;
    for _ in 0..7 {
        assert_eq!(gateway.ask(get("/a")).await.status, 200);
    }
    for _ in 0..3 {
        assert_eq!(gateway.ask(get("/none")).await.status, 404);
    }
    let value = |text: &str, name: &str, labels: &[&str]| -> f64 {
        let lines = text.lines().filter(|line| line.starts_with(name));
        let lines = lines.filter(|line| labels.iter().all(|label| line.contains(label)));
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    };
    eventually("the metrics", || async {
        let text = gateway.ask_admin("/metrics").await.text();
        value(
            &text,
            "pointsman_route_requests_total",
            &["name=\"web\"", "code=\"2xx\""],
        ) == 7.0
            && value(
                &text,
                "pointsman_listener_requests_total",
                &["code=\"4xx\""],
            ) == 3.0
            && value(
                &text,
                "pointsman_backend_requests_total",
                &["name=\"web\"", "code=\"2xx\""],
            ) == 7.0
            && value(&text, "pointsman_answers_total", &["NoRoute"]) == 3.0
    })
    .await;
}

#[tokio::test]
async fn bytes_of_requests_closed_at_shutdown_are_reported() {
    let backend = Backend::http1_with("web", |_| BackendResponse::Echo).await;
    let setup = Gateway::setup(&manifests(&backend)).argument("--access-log", "json");
    let mut gateway = setup.argument("--drain", "100ms").start().await;
    let client = Http2::connect(gateway.at(8080)).await;
    let (response, mut body) = client.open(&ask("POST", "/a")).await;
    body.send_data(Bytes::from_static(b"four"), false)
        .expect("sent");
    let response = within("a response", response).await.expect("a response");
    let mut incoming = response.into_body();
    let came = within("its body", incoming.data()).await.expect("open");
    assert_eq!(came.expect("data"), "four");
    gateway.signal("TERM");
    assert_eq!(gateway.ended().await.code(), Some(1));
    let log = gateway.log();
    let mut lines = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let line = lines.find(|line: &Value| line["reason"] == "Drained");
    let line = line.expect("a line");
    let bytes = (&line["request_bytes"], &line["response_bytes"]);
    assert_eq!(bytes, (&4.into(), &4.into()), "{line}");
}
