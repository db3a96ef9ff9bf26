//! The admin server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use crate::support::*;

fn running() -> Running {
    let gateway = gateway("edge", free_port());
    Running::start(&[("all.yaml", &join(&[CLASS, &gateway, &route("one", "/one")]))])
}

#[test]
fn every_page_is_served() {
    let running = running();
    assert_eq!(running.get("/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(running.get("/readyz"), (200, "ready\n".to_owned()));
    assert_eq!(running.get("/metrics").0, 200);
    assert_eq!(running.json("/config")["frontends"][0]["name"], "edge");
    let (status, page) = running.get("/");
    assert_eq!(status, 200);
    assert!(page.starts_with("<!doctype html>") && page.contains("</html>"));
    assert!(
        !page.contains("src=\"http") && !page.contains("href=\"http"),
        "nothing from elsewhere"
    );
    assert_eq!(running.get("/nowhere").0, 404);
    assert_eq!(running.get("/statu").0, 404);
}

#[test]
fn status_is_what_check_prints() {
    let running = running();
    let output = Command::new(env!("CARGO_BIN_EXE_pointsman"))
        .args(["check", "-f", "m", "-o", "json"])
        .current_dir(running.folder.path())
        .output()
        .expect("the binary runs");
    let mut check: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut status = running.json("/status");
    // Transition times differ, only a running Gateway has an address, and only what runs is in effect.
    for list in [&mut check, &mut status] {
        forget_times(list);
        forget_effects(list);
        for item in list["items"].as_array_mut().into_iter().flatten() {
            if let Some(status) = item["status"].as_object_mut() {
                status.remove("addresses");
            }
        }
    }
    assert_eq!(check, status);
}

fn forget_effects(value: &mut serde_json::Value) {
    let is_effect = |value: &serde_json::Value| value["type"] == "pointsman.io/InEffect";
    match value {
        serde_json::Value::Object(map) => map.values_mut().for_each(forget_effects),
        serde_json::Value::Array(list) => {
            list.retain(|item| !is_effect(item));
            list.iter_mut().for_each(forget_effects);
        }
        _ => {}
    }
}

fn forget_times(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(map) => {
            map.remove("lastTransitionTime");
            map.values_mut().for_each(forget_times);
        }
        serde_json::Value::Array(list) => list.iter_mut().for_each(forget_times),
        _ => {}
    }
}

#[test]
fn the_explain_page_agrees_with_the_command() {
    let running = running();
    let page = running.json("/explain?url=http%3A%2F%2Fa.example%2Fone%2Ftwo&header=x-a%3A+b&method=PUT&gateway=infra/edge");
    let output = Command::new(env!("CARGO_BIN_EXE_pointsman"))
        .args([
            "explain", "-f", "m", "-o", "json", "-H", "x-a: b", "-X", "PUT",
        ])
        .args(["--gateway", "infra/edge", "http://a.example/one/two"])
        .current_dir(running.folder.path())
        .output()
        .expect("the binary runs");
    let command: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(page, command);
    assert_eq!(page["outcome"], "redirect");
    let by_server = |format: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_pointsman"))
            .args([
                "explain",
                "--server",
                &format!("http://{}", running.admin),
                "-o",
                format,
            ])
            .args(["-H", "x-a: b", "-X", "PUT", "--gateway", "infra/edge"])
            .arg("http://a.example/one/two")
            .output()
            .expect("the binary runs");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let command: serde_json::Value = serde_json::from_str(&by_server("json")).expect("JSON");
    assert_eq!(page, command);
    assert!(by_server("text").starts_with("frontend Gateway infra/edge"));
    let (status, body) =
        running.get("/explain?url=http://a.example/one&gateway=infra/edge&output=text");
    assert_eq!(status, 200);
    assert!(body.starts_with("frontend Gateway infra/edge"), "{body}");
    let (status, body) = running.get("/explain");
    assert!(
        status == 400 && body.contains("url is missing"),
        "{status} {body}"
    );
    let (status, body) = running.get("/explain?url=ftp://nonsense/");
    assert!(
        status == 400 && body.contains("nonsense"),
        "{status} {body}"
    );
}

#[test]
fn no_page_shows_a_key() {
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).expect("names");
    let certificate = certificate.self_signed(&key).expect("a certificate");
    let secret = serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": "own", "namespace": "infra"},
        "stringData": {"tls.crt": certificate.pem(), "tls.key": key.serialize_pem()},
    });
    let gateway = gateway("edge", free_port()).replace(
        "protocol: HTTP",
        "protocol: HTTPS, tls: {certificateRefs: [{name: own}]}",
    );
    let text = join(&[CLASS, &gateway]);
    let running = Running::start(&[("all.yaml", &text), ("secret.json", &secret.to_string())]);
    assert_eq!(
        running.json("/config")["frontends"][0]["certificates"][0],
        "infra/own"
    );
    let line = key
        .serialize_pem()
        .lines()
        .nth(1)
        .expect("a line")
        .to_owned();
    for page in [
        "/config",
        "/status",
        "/metrics",
        "/",
        "/explain?url=https://a.example/",
    ] {
        let (_, body) = running.get(page);
        assert!(
            !body.contains(&line) && !body.contains("PRIVATE KEY"),
            "{page}"
        );
    }
}

#[test]
fn invalid_requests_are_rejected() {
    let running = running();
    let host = format!("Host: {}\r\n", running.admin);
    for (request, status) in [
        (
            format!("POST / HTTP/1.1\r\n{host}Content-Length: 2\r\n\r\nhi"),
            405,
        ),
        (format!("DELETE /status HTTP/1.1\r\n{host}\r\n"), 405),
        ("nonsense\r\n\r\n".to_owned(), 400),
        (
            format!("GET / HTTP/1.1\r\n{host}Content-Length: 99999999\r\n\r\n"),
            413,
        ),
        (
            format!("GET / HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n"),
            501,
        ),
        (
            format!(
                "GET /healthz HTTP/1.1\r\n{host}X: {}\r\n\r\n",
                "x".repeat(20_000)
            ),
            431,
        ),
        (
            "GET /config HTTP/1.1\r\nHost: evil.example:15000\r\n\r\n".to_owned(),
            421,
        ),
        (
            "GET /healthz HTTP/1.1\r\nHost: localhost:15000\r\n\r\n".to_owned(),
            200,
        ),
        (
            "GET /healthz HTTP/1.1\r\nHost: [::1]:15000\r\n\r\n".to_owned(),
            200,
        ),
        ("GET /healthz HTTP/1.0\r\n\r\n".to_owned(), 200),
    ] {
        assert_eq!(
            running.exchange(&request).0,
            status,
            "{}",
            &request[..request.len().min(80)]
        );
    }
    let (status, head, body) = running.exchange(&format!("HEAD /healthz HTTP/1.1\r\n{host}\r\n"));
    assert_eq!((status, body.as_str()), (200, ""));
    assert!(head.contains("content-length: 3"), "{head}");
}

#[test]
fn connections_and_the_time_for_a_request_are_limited() {
    let running = running();
    let slow = |_| {
        let mut stream = TcpStream::connect(running.admin).ok()?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\n").ok()?;
        Some(stream)
    };
    // A connection beyond the limit gets 503 or is closed.
    let slow = until("over the limit", || {
        let slow: Vec<TcpStream> = (0..80).filter_map(slow).collect();
        (running.is_ready() != Some(true)).then_some(slow)
    });
    let timed_out = slow.into_iter().any(|mut stream| {
        let _ = stream.set_read_timeout(Some(std::time::Duration::from_secs(30)));
        let mut response = String::new();
        let _ = stream.read_to_string(&mut response);
        response.starts_with("HTTP/1.1 408")
    });
    assert!(timed_out, "an incomplete head times out");
    until("room again", || {
        (running.get("/healthz").0 == 200).then_some(())
    });
}
