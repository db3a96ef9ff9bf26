//! The log of `run`: problems at startup, changes, and listeners that are opened and closed. Nothing is logged twice.

use crate::support::*;

/// Returns the lines of the log that contain a text, without time and level.
fn lines<'a>(log: &'a str, text: &str) -> Vec<&'a str> {
    log.lines().filter(|line| line.contains(text)).collect()
}

fn until_logged(running: &Running, text: &str) -> String {
    until(&format!("`{text}` in the log"), || {
        let log = running.log();
        log.contains(text).then_some(log)
    })
}

/// Returns a route of the Gateway `edge` to a Service that does not exist.
fn lost_route(name: &str) -> String {
    route(name, "/").replace(
        "filters: [{type: RequestRedirect, requestRedirect: {statusCode: 302}}]",
        "backendRefs: [{name: nothing, port: 80}]",
    )
}

/// Returns a Gateway with an HTTPS listener that uses the Secret `cert`.
fn https(port: u16) -> String {
    gateway("edge", port).replace(
        "protocol: HTTP}",
        "protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}",
    )
}

fn secret(certificate: &str, key: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Secret, metadata: {{name: cert, namespace: infra}}, type: kubernetes.io/tls, stringData: {{tls.crt: {certificate:?}, tls.key: {key:?}}}}}\n"
    )
}

fn pair() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).expect("a pair");
    (made.cert.pem(), made.signing_key.serialize_pem())
}

// A value with a line end can neither forge an entry of the log nor hide the rest of the message.
#[test]
fn a_value_of_a_manifest_stays_on_the_line_of_its_problem() {
    let text = "{apiVersion: v1, kind: Service, metadata: {name: \"a\\nWARN forged\"}, spec: {ports: [{port: 80}]}}\n";
    let running = Running::start(&[("all.yaml", &join(&[CLASS, text]))]);
    let log = until_logged(&running, "must be an RFC 1035 label");
    let found = lines(&log, "forged");
    assert_eq!(found.len(), 1, "{log}");
    assert!(found[0].contains(r"`a\nWARN forged`: must be"), "{log}");
}

#[test]
fn the_startup_log_counts_resources_and_lists_problems() {
    let text = join(&[
        CLASS,
        &gateway("edge", free_port()),
        &lost_route("lost"),
        &route("well", "/well"),
    ]);
    let running = Running::start(&[("all.yaml", &text), ("broken.yaml", "kind: [")]);
    let log = until_logged(&running, "4 resources, 2 problems");
    assert_eq!(
        lines(&log, "INFO 4 resources, 2 problems").len(),
        1,
        "{log}"
    );
    let broken = lines(&log, "ERROR m/broken.yaml:");
    assert_eq!(broken.len(), 1, "{log}");
    let lost = lines(
        &log,
        "WARN m/all.yaml:5: HTTPRoute infra/lost: parent Gateway edge: ResolvedRefs=False BackendNotFound: Service infra/nothing does not exist",
    );
    assert_eq!(lost.len(), 1, "{log}");
    assert!(!log.contains("error:"), "the level says it: {log}");
}

#[test]
fn a_change_logs_one_line_and_new_and_resolved_problems() {
    let text = join(&[CLASS, &gateway("edge", free_port()), &route("one", "/one")]);
    let running = Running::start(&[("all.yaml", &text)]);
    until_logged(&running, "3 resources, 0 problems");
    running.write("lost.yaml", &lost_route("lost"));
    let log = until_logged(&running, "configuration 2: 1 changed, 1 problem, in ");
    assert!(lines(&log, "configuration 2")[0].ends_with(" ms"), "{log}");
    let log = until_logged(&running, "WARN m/lost.yaml:1: HTTPRoute infra/lost: parent");
    assert_eq!(lines(&log, "HTTPRoute infra/lost").len(), 1, "{log}");
    // The same problem on another line of the file is not logged again.
    running.write("lost.yaml", &format!("# moved\n{}", lost_route("lost")));
    running.write("two.yaml", &route("two", "/two"));
    let log = until_logged(&running, "configuration 3: ");
    assert_eq!(lines(&log, "HTTPRoute infra/lost").len(), 1, "{log}");
    running.write("lost.yaml", &route("lost", "/found"));
    let log = until_logged(
        &running,
        "INFO resolved: m/lost.yaml: HTTPRoute infra/lost: parent",
    );
    assert!(log.contains("changed, 0 problems, in "), "{log}");
}

#[test]
fn a_thousand_problems_are_logged_as_a_count_and_the_first_ten() {
    let all: Vec<String> = (0..1000).map(|n| lost_route(&format!("r{n}"))).collect();
    let documents: Vec<&str> = all.iter().map(String::as_str).collect();
    let text = join(&[CLASS, &gateway("edge", free_port()), &join(&documents)]);
    let running = Running::start(&[("all.yaml", &text)]);
    until_logged(&running, "1002 resources, 1000 problems");
    let log = until_logged(&running, "990 more; /status lists all of them");
    let logged = lines(&log, "Service infra/nothing does not exist");
    assert_eq!(logged.len(), 10, "{log}");
    let first = |text: &str| logged[0].contains(text) && logged[9].contains("infra/r9:");
    assert!(first("infra/r0:"), "from top to bottom: {log}");
    running.write("all.yaml", &join(&[CLASS, &gateway("edge", free_port())]));
    let log = until_logged(&running, "resolved: 990 more");
    assert_eq!(
        lines(&log, "resolved: m/all.yaml: HTTPRoute").len(),
        10,
        "{log}"
    );
}

#[test]
fn opened_and_closed_listeners_are_logged() {
    let (one, two) = (free_port(), free_port());
    let text = join(&[CLASS, &gateway("edge", one)]);
    let running = Running::start(&[("all.yaml", &text)]);
    running.write("more.yaml", &gateway("more", two));
    let log = until_logged(
        &running,
        "listening: Gateway infra/more listener http: HTTP on ",
    );
    assert!(!log.contains("listening: Gateway infra/edge"), "{log}");
    std::fs::remove_file(running.path("m/more.yaml")).expect("removed");
    until_logged(
        &running,
        "no longer listening: Gateway infra/more listener http: HTTP on ",
    );
}

/// "No WARN repeats every five seconds (`--address-pool` unusable)."
#[test]
fn retries_do_not_report_an_unusable_address_pool_again() {
    let text = join(&[CLASS, &gateway("edge", free_port())]);
    let running = Running::with(
        &[("all.yaml", &text)],
        &["--address-pool", "203.0.113.0/30"],
    );
    let line = "no address of 203.0.113.0/30 is free and can be bound on this machine";
    assert!(running.lines[0].contains(line), "{:?}", running.lines);
    until_logged(&running, line);
    for _ in 0..3 {
        // A reload retries the same operations as the timer.
        let before = lines(&running.log(), "reloading all files").len();
        running.signal("HUP");
        until("read again", || {
            (lines(&running.log(), "reloading all files").len() > before).then_some(())
        });
    }
    // This change is logged after the retries.
    running.write("one.yaml", &route("one", "/one"));
    let log = until_logged(&running, "1 changed");
    assert_eq!(lines(&log, line).len(), 1, "{log}");
    let gateway = running.object("Gateway", "edge").expect("the Gateway");
    assert!(gateway["status"].to_string().contains(line), "{gateway}");
}

#[test]
fn a_gateway_with_an_invalid_certificate_is_not_reported_as_missing() {
    let (certificate, key) = (pair().0, pair().1);
    let text = join(&[CLASS, &https(free_port()), &secret(&certificate, &key)]);
    let running = Running::start(&[("all.yaml", &text)]);
    let printed = running.lines.join("\n");
    assert!(
        !printed.contains("no Gateway of a GatewayClass"),
        "{printed}"
    );
    let why = "the private key in tls.key does not belong to the certificate in tls.crt";
    assert!(
        printed.contains("Gateway infra/edge: listener http: ") && printed.contains(why),
        "{printed}"
    );
    let log = until_logged(&running, why);
    assert!(
        log.contains("WARN m/all.yaml:3: Gateway infra/edge: listener http: "),
        "{log}"
    );
    // Two conditions report it, the line once.
    let line =
        "ResolvedRefs=False InvalidCertificateRef, Programmed=False Invalid: TLS handshakes ";
    let logged = lines(&log, line);
    assert_eq!(logged.len(), 1, "{log}");
    assert_eq!(logged[0].matches(why).count(), 1, "{log}");
}

#[test]
fn a_listener_that_loses_its_secret_no_longer_listens() {
    let (certificate, key) = pair();
    let text = join(&[CLASS, &https(free_port())]);
    let secret = secret(&certificate, &key);
    let running = Running::start(&[("all.yaml", &text), ("cert.yaml", &secret)]);
    std::fs::remove_file(running.path("m/cert.yaml")).expect("removed");
    until_logged(
        &running,
        "no longer listening: Gateway infra/edge listener http: HTTPS on ",
    );
    running.write("cert.yaml", &secret);
    let listening = " INFO listening: Gateway infra/edge listener http: HTTPS on ";
    until_logged(&running, listening);
}

#[test]
fn a_certificate_that_becomes_invalid_and_valid_again_is_logged() {
    let (certificate, key) = pair();
    let text = join(&[CLASS, &https(free_port())]);
    let files = [
        ("all.yaml", &*text),
        ("cert.yaml", &secret(&certificate, &key)),
    ];
    let running = Running::start(&files);
    until_logged(&running, "3 resources, 0 problems");
    running.write("cert.yaml", &secret(&certificate, &pair().1));
    let log = until_logged(&running, "its last valid certificate stays in effect");
    assert!(
        log.contains("WARN m/all.yaml:3: Gateway infra/edge: listener http: ResolvedRefs=False InvalidCertificateRef: Secret infra/cert: the private key in tls.key does not belong"),
        "{log}"
    );
    assert!(!log.contains("no longer listening"), "{log}");
    let gateway = running.object("Gateway", "edge").expect("the Gateway");
    let listener = &gateway["status"]["listeners"][0];
    assert_eq!(condition(listener, "Programmed"), "True/Programmed");
    assert_eq!(
        condition(listener, "ResolvedRefs"),
        "False/InvalidCertificateRef"
    );
    running.write("cert.yaml", &secret(&certificate, &key));
    until_logged(
        &running,
        "INFO resolved: m/all.yaml: Gateway infra/edge: listener http: ",
    );
}

/// "The last good certificate stays in effect …, with a condition and a WARN": also where the new version of the Secret or its file is invalid.
#[test]
fn a_secret_that_is_rejected_while_in_use_is_reported_by_its_listeners() {
    let (certificate, key) = pair();
    let text = join(&[CLASS, &https(free_port())]);
    let valid = secret(&certificate, &key);
    let files = [("all.yaml", &*text), ("cert.yaml", &*valid)];
    let running = Running::start(&files);
    until_logged(&running, "3 resources, 0 problems");
    let without_key = "{apiVersion: v1, kind: Secret, metadata: {namespace: infra, name: cert}, type: kubernetes.io/tls}";
    for (count, broken) in [without_key, "[", without_key].into_iter().enumerate() {
        running.write("cert.yaml", broken);
        let line = "WARN m/all.yaml:3: Gateway infra/edge: listener http: ResolvedRefs=False InvalidCertificateRef: \
            Secret infra/cert was rejected as invalid at m/cert.yaml:1:1; its last valid certificate stays in effect";
        until("the condition in the log", || {
            (lines(&running.log(), line).len() == count + 1).then_some(())
        });
        let gateway = running.object("Gateway", "edge").expect("the Gateway");
        let listener = &gateway["status"]["listeners"][0];
        assert_eq!(condition(listener, "Programmed"), "True/Programmed");
        assert_eq!(
            condition(listener, "ResolvedRefs"),
            "False/InvalidCertificateRef"
        );
        running.write("cert.yaml", &valid);
        let resolved = "INFO resolved: m/all.yaml: Gateway infra/edge: listener http: ";
        until("its end in the log", || {
            (lines(&running.log(), resolved).len() == count + 1).then_some(())
        });
    }
    let log = running.log();
    assert!(!log.contains("no longer listening"), "{log}");
}

#[test]
fn an_expired_certificate_is_logged() {
    let mut params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).expect("a name");
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate").pem();
    let held = secret(&certificate, &key.serialize_pem());
    let text = join(&[CLASS, &https(free_port()), &held]);
    let running = Running::start(&[("all.yaml", &text)]);
    let log = until_logged(&running, "3 resources, 0 problems, 1 warning");
    let line = "spec.listeners[0].tls.certificateRefs[0]: the certificate of Secret infra/cert expired at 2020-01-01T00:00:00Z";
    assert_eq!(lines(&log, line).len(), 1, "{log}");
    let warnings = running.findings("warnings");
    assert!(
        warnings.iter().any(|text| text.contains("expired at 2020")),
        "{warnings:?}"
    );
}
