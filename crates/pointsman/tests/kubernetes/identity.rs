//! Authorization of proxies by their tokens.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::support::{Lab, Process, backend, eventually, http_get};
use crate::traffic::address;

/// An expired token that no API server has issued.
fn expired() -> String {
    let claims = r#"{"aud": ["pointsman"], "exp": 1700000000}"#;
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
}

/// Waits until a proxy is refused, and returns the error that it logs.
fn refusal(proxy: &Process) -> String {
    eventually("the proxy is refused", || {
        let log = proxy.log();
        let line = log
            .lines()
            .find(|line| line.contains("control plane https://"))?;
        Some(line.to_owned())
    })
}

#[test]
#[ignore = "needs a cluster"]
fn a_proxy_gets_nothing_without_the_token_of_its_own_gateway() {
    let lab = Lab::new("identity");
    for gateway in ["edge", "other"] {
        lab.gateway(gateway, 80);
    }
    lab.service("hello", backend("hello"));
    lab.route("hello", "edge", "hello.example");
    let controller = lab.controller("one");
    let (edge, other) = (lab.account("edge"), lab.account("other"));
    let forged = lab.path("expired");
    std::fs::write(&forged, expired()).expect("written");
    let cases = [
        (
            "wrong-audience",
            lab.token(&edge, "other-audience"),
            "its audience is other-audience",
        ),
        ("expired", forged, "it expired"),
        (
            "other-gateway",
            lab.token(&other, "pointsman"),
            "not permitted to subscribe to any",
        ),
        (
            "other-account",
            lab.token("default", "pointsman"),
            "does not belong to a Gateway",
        ),
    ];
    for (name, token, why) in &cases {
        let proxy = lab.proxy(name, "edge", token, &[&controller]);
        let error = refusal(&proxy);
        assert!(error.contains(why), "{name}: {error}");
        assert!(!proxy.is_ready(), "{name}: it has no configuration");
        let log = format!("proxy {name} (");
        assert!(controller.log().contains(&log), "{name}: it is logged");
    }
    let counted = |series: &str| controller.metric(series).unwrap_or_default();
    assert!(counted("pointsman_xds_rejected_credentials_total") >= 2.0);
    assert!(counted("pointsman_xds_refused_subscriptions_total") >= 2.0);
    let token = lab.token(&edge, "pointsman");
    let proxy = lab.proxy("proxy", "edge", &token, &[&controller]);
    let address = address(&proxy);
    eventually("the right one is served", || {
        let (_, body) = http_get(address, "hello.example", "/")?;
        (body == "hello").then_some(())
    });
    let (_, page) = controller.page("/proxies").expect("a page");
    let identity = format!("system:serviceaccount:{}:{edge}", lab.namespace);
    assert!(page.contains(&identity), "{page}");
}

// "Secrets reach only the proxies of Gateways that name them."
#[test]
#[ignore = "needs a cluster"]
fn a_secret_reaches_only_the_proxies_of_gateways_that_name_it() {
    let lab = Lab::new("secrets");
    let key = rcgen::generate_simple_self_signed(["hello.example".to_owned()]);
    let key = key.expect("a certificate");
    let (certificate, key) = (key.cert.pem(), key.signing_key.serialize_pem());
    let (crt, pem) = (lab.path("tls.crt"), lab.path("tls.key"));
    std::fs::write(&crt, certificate).expect("written");
    std::fs::write(&pem, key).expect("written");
    for gateway in ["one", "two"] {
        let files = [&crt, &pem].map(|path| path.display().to_string());
        let arguments = ["create", "secret", "tls", gateway, "-n", &lab.namespace];
        let files = [
            format!("--cert={}", files[0]),
            format!("--key={}", files[1]),
        ];
        let arguments: Vec<&str> = arguments
            .into_iter()
            .chain(files.iter().map(String::as_str))
            .collect();
        crate::support::kubectl(&arguments, "");
        lab.apply(&format!(
            "{{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {{name: {gateway}}},
              spec: {{gatewayClassName: {class}, listeners: [
                {{name: https, port: 443, protocol: HTTPS, tls: {{certificateRefs: [{{name: {gateway}}}]}}}}]}}}}
---
{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {account}}}}}
",
            class = lab.namespace,
            account = lab.account(gateway),
        ));
    }
    let controller = lab.controller("one");
    for (gateway, foreign) in [("one", "two"), ("two", "one")] {
        let token = lab.token(&lab.account(gateway), "pointsman");
        let cache = lab.path(&format!("cache-{gateway}"));
        // Regardless of the proxy's subscription.
        let proxy = lab.proxy(&format!("proxy-{gateway}"), gateway, &token, &[&controller]);
        proxy.ready();
        let (_, config) = proxy.page("/config").expect("a page");
        assert!(
            config.contains(&format!("{}/{gateway}", lab.namespace)),
            "{config}"
        );
        assert!(
            !config.contains(&format!("{}/{foreign}", lab.namespace)),
            "{config}"
        );
        drop(cache);
    }
}
