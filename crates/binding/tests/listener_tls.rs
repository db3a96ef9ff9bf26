//! TLS of listeners: validation of certificates, client certificates, and overlapping hostnames.

mod common;

use std::sync::Arc;

use common::certificates::{authority, bundle, fresh_authority, fresh_secret, pair, secret};
use common::{
    Bound, condition, doc, gateway_g, key, listener, message, own_conditions, puts, read,
};
use pointsman_binding::Change;
use pointsman_binding::bound::{PrivateKey, Protocol};
use pointsman_resources::Resource;

const G: &str = "Gateway infra/g";

fn https(references: &str) -> String {
    gateway_g(&format!(
        "listeners: [{{name: a, port: 443, protocol: HTTPS, tls: {{certificateRefs: {references}}}}}]"
    ))
}

fn grant(namespace: &str, kind: &str, to: &str) -> String {
    doc(
        "ReferenceGrant",
        &format!("{namespace}/grant"),
        &format!(
            "{{from: [{{group: gateway.networking.k8s.io, kind: {kind}, namespace: infra}}], to: [{to}]}}"
        ),
    )
}

#[test]
fn a_listener_has_the_certificate_and_key_of_its_secret() {
    let bound = Bound::of(&(https("[{name: c}]") + &fresh_secret("infra/c")));
    assert_eq!(
        listener(&bound, G, "a"),
        [
            "Accepted=True/Accepted",
            "ResolvedRefs=True/ResolvedRefs",
            "Programmed=True/Programmed"
        ]
    );
    let frontend = bound.frontends.values().next().expect("a frontend");
    assert_eq!(frontend.protocol, Protocol::Https);
    assert_eq!(
        frontend.tls.as_ref().map(|tls| tls.certificates.len()),
        Some(1)
    );
}

#[test]
fn keys_have_three_formats() {
    let (pkcs8_certificate, pkcs8) = pair("example.com");
    for (certificate, private, form) in [
        (pkcs8_certificate.as_str(), pkcs8.as_str(), "PKCS#8"),
        (
            include_str!("data/rsa.crt"),
            include_str!("data/rsa-pkcs1.key"),
            "PKCS#1",
        ),
        (
            include_str!("data/ec.crt"),
            include_str!("data/ec-sec1.key"),
            "SEC1",
        ),
    ] {
        let bound = Bound::of(&(https("[{name: c}]") + &secret("infra/c", certificate, private)));
        let frontend = bound.frontends.values().next().expect(form);
        let id = &frontend.tls.as_ref().expect("TLS").certificates[0];
        let found = match bound.secrets[id].key {
            PrivateKey::Pkcs8(_) => "PKCS#8",
            PrivateKey::Pkcs1(_) => "PKCS#1",
            PrivateKey::Sec1(_) => "SEC1",
        };
        assert_eq!(found, form);
    }
}

// "certificateRef missing/wrong group/kind/malformed: listener ResolvedRefs=False/InvalidCertificateRef."
// "Permission is judged before existence."
#[test]
fn a_certificate_reference_that_does_not_resolve_reports_the_reason() {
    let (certificate, private) = pair("example.com");
    let truncated = certificate.replace("\nMII", "\nMIJ");
    for (reference, objects, reason, words) in [
        (
            "{name: c}",
            String::new(),
            "InvalidCertificateRef",
            "Secret infra/c does not exist",
        ),
        (
            "{kind: ConfigMap, name: c}",
            String::new(),
            "InvalidCertificateRef",
            "ConfigMap c is not a supported certificate reference",
        ),
        (
            "{group: wrong.io, name: c}",
            String::new(),
            "InvalidCertificateRef",
            "Secret c: the group of Secret is \"\", not \"wrong.io\"",
        ),
        (
            "{name: c}",
            secret("infra/c", "hello", &private),
            "InvalidCertificateRef",
            "tls.crt contains no PEM certificate",
        ),
        (
            "{name: c}",
            secret("infra/c", "", &private),
            "InvalidCertificateRef",
            "tls.crt",
        ),
        (
            "{name: c}",
            secret("infra/c", &truncated, &private),
            "InvalidCertificateRef",
            "tls.crt",
        ),
        (
            "{name: c}",
            secret("infra/c", &certificate, "hello"),
            "InvalidCertificateRef",
            "tls.key contains no PEM private key",
        ),
        (
            "{name: c}",
            secret("infra/c", &certificate, &certificate),
            "InvalidCertificateRef",
            "tls.key",
        ),
        (
            "{name: c, namespace: team}",
            fresh_secret("team/c"),
            "RefNotPermitted",
            "kind: ReferenceGrant",
        ),
        (
            "{name: nothing, namespace: team}",
            String::new(),
            "RefNotPermitted",
            "kind: ReferenceGrant",
        ),
        (
            "{name: c, namespace: team}",
            fresh_secret("team/c")
                + &grant(
                    "team",
                    "Gateway",
                    "{group: '', kind: Secret, name: another}",
                ),
            "RefNotPermitted",
            "kind: ReferenceGrant",
        ),
        (
            "{name: c, namespace: team}",
            fresh_secret("team/c") + &grant("team", "ListenerSet", "{group: '', kind: Secret}"),
            "RefNotPermitted",
            "kind: ReferenceGrant",
        ),
        (
            "{name: nothing, namespace: team}",
            grant("team", "Gateway", "{group: '', kind: Secret}"),
            "InvalidCertificateRef",
            "Secret team/nothing does not exist",
        ),
    ] {
        let bound = Bound::of(&(https(&format!("[{reference}]")) + &objects));
        assert_eq!(
            listener(&bound, G, "a"),
            [
                "Accepted=True/Accepted".to_owned(),
                format!("ResolvedRefs=False/{reason}"),
                "Programmed=False/Invalid".to_owned()
            ],
            "{reference} {words}"
        );
        let status = bound.status(&key(G)).expect("a status");
        let reported = status
            .conditions()
            .iter()
            .any(|(place, c)| place == "listener a" && c.message.contains(words));
        assert!(reported, "{words}");
        assert!(bound.frontend_names().is_empty());
    }
}

// "This reason is used with the "Accepted" condition when one or more Listeners have an invalid or unsupported configuration and cannot be
// configured on the Gateway."
#[test]
fn a_gateway_names_the_listener_without_a_certificate() {
    let a = "{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: c}]}}";
    let plain = "{name: plain, port: 80, protocol: HTTP}";
    for (listeners, accepted) in [
        (format!("{a}, {plain}"), "True/ListenersNotValid"),
        (a.to_owned(), "False/ListenersNotValid"),
    ] {
        let mut bound = Bound::of(&gateway_g(&format!("listeners: [{listeners}]")));
        assert_eq!(listener(&bound, G, "a")[2], "Programmed=False/Invalid");
        assert_eq!(condition(&bound, G, "Accepted"), accepted);
        assert_eq!(message(&bound, G, "Accepted"), "invalid listeners: a");
        bound.apply(puts(fresh_secret("infra/c").trim_start_matches("\n---\n")));
        assert_eq!(condition(&bound, G, "Accepted"), "True/Accepted");
    }
}

// "ResolvedRefs … indicates whether the controller was able to resolve all the object references for the Listener": this one has no reference.
#[test]
fn a_listener_without_tls_settings_is_not_accepted() {
    for protocol in ["HTTPS", "TLS"] {
        let mut objects = read(&gateway_g(&format!(
            "listeners: [{{name: a, port: 443, protocol: {protocol}, tls: {{certificateRefs: [{{name: c}}]}}}}, {{name: plain, port: 80, protocol: HTTP}}]"
        )));
        for object in &mut objects {
            // The API server rejects such a TLS listener, but not every source of objects validates.
            if let Resource::Gateway(gateway) = object {
                Arc::make_mut(gateway).spec.listeners[0].tls = None;
            }
        }
        let mut bound = Bound::default();
        bound.apply(objects.into_iter().map(Change::Put));
        assert_eq!(
            listener(&bound, G, "a"),
            [
                "Accepted=False/Invalid",
                "ResolvedRefs=True/ResolvedRefs",
                "Programmed=False/Invalid"
            ]
        );
        let status = bound.status(&key(G)).expect("a status");
        let reported = format!("protocol {protocol} requires tls.certificateRefs");
        let conditions = status.conditions();
        let reported = conditions
            .iter()
            .filter(|(_, c)| c.message.ends_with(&reported));
        assert_eq!(reported.count(), 2, "in Accepted and in Programmed");
        assert_eq!(
            own_conditions(&bound, G),
            [
                "Accepted=True/ListenersNotValid",
                "Programmed=True/Programmed",
                "ResolvedRefs=True/ResolvedRefs"
            ]
        );
    }
}

#[test]
fn grants_permit_one_secret_or_all() {
    for to in [
        "{group: '', kind: Secret}",
        "{group: '', kind: Secret, name: c}",
    ] {
        let bound = Bound::of(
            &(https("[{name: c, namespace: team}]")
                + &fresh_secret("team/c")
                + &grant("team", "Gateway", to)),
        );
        assert_eq!(bound.frontend_names(), ["infra/g a"], "{to}");
    }
}

#[test]
fn a_listener_serves_with_its_valid_certificates() {
    let bound = Bound::of(&(https("[{name: nothing}, {name: c}]") + &fresh_secret("infra/c")));
    assert_eq!(
        listener(&bound, G, "a"),
        [
            "Accepted=True/Accepted",
            "ResolvedRefs=False/InvalidCertificateRef",
            "Programmed=True/Programmed"
        ]
    );
}

#[test]
fn a_secret_that_is_created_later_is_used() {
    let mut bound = Bound::of(&https("[{name: c}]"));
    assert!(bound.frontend_names().is_empty());
    bound.apply(puts(fresh_secret("infra/c").trim_start_matches("\n---\n")));
    assert_eq!(bound.frontend_names(), ["infra/g a"]);
}

const TWO: &str = "listeners: [{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: c}]}}, {name: b, port: 8443, protocol: HTTPS, tls: {certificateRefs: [{name: c}]}}, {name: plain, port: 80, protocol: HTTP}]";

fn validating(frontend: &str) -> Bound {
    let objects = fresh_secret("infra/c")
        + &fresh_authority("infra/ca")
        + &fresh_authority("infra/ca-2")
        + &fresh_authority("team/far");
    Bound::of(&(gateway_g(&format!("tls: {{frontend: {frontend}}}, {TWO}")) + &objects))
}

fn authorities(bound: &Bound) -> Vec<usize> {
    let count = |f: &std::sync::Arc<pointsman_binding::bound::Frontend>| {
        let clients = f.tls.as_ref()?.clients.as_ref()?;
        Some(clients.authorities.len())
    };
    bound
        .frontends
        .values()
        .map(|f| count(f).unwrap_or(0))
        .collect()
}

#[test]
fn clients_are_verified_by_default_and_by_port() {
    let ca = |name: &str| {
        format!(
            "{{validation: {{caCertificateRefs: [{{kind: ConfigMap, group: '', name: {name}}}]}}}}"
        )
    };
    let bound = validating(&format!("{{default: {}}}", ca("ca")));
    assert_eq!(
        authorities(&bound),
        [1, 1, 0],
        "the default is for every HTTPS port"
    );
    let bound = validating(&format!(
        "{{default: {}, perPort: [{{port: 8443, tls: {{}}}}]}}",
        ca("ca")
    ));
    assert_eq!(
        authorities(&bound),
        [1, 0, 0],
        "a port's own setting replaces the default"
    );
    let both = "{validation: {caCertificateRefs: [{kind: ConfigMap, group: '', name: ca}, {kind: ConfigMap, group: '', name: ca-2}]}}";
    let bound = validating(&format!(
        "{{default: {{}}, perPort: [{{port: 8443, tls: {both}}}]}}"
    ));
    assert_eq!(authorities(&bound), [0, 2, 0]);
}

// "per-port bad CA refs: InvalidCACertificateRef / InvalidCACertificateKind / RefNotPermitted + Accepted=False/NoValidCACertificate,
// valid listener unaffected."
#[test]
fn a_port_without_a_valid_authority_is_rejected() {
    for (reference, reason) in [
        (
            "{kind: ConfigMap, group: '', name: nothing}",
            "InvalidCACertificateRef",
        ),
        (
            "{kind: Service, group: '', name: ca}",
            "InvalidCACertificateKind",
        ),
        (
            "{kind: ConfigMap, group: '', name: far, namespace: team}",
            "RefNotPermitted",
        ),
        (
            "{kind: ConfigMap, group: '', name: nothing, namespace: team}",
            "RefNotPermitted",
        ),
    ] {
        let tls = format!("{{validation: {{caCertificateRefs: [{reference}]}}}}");
        let bound = validating(&format!(
            "{{default: {{}}, perPort: [{{port: 8443, tls: {tls}}}]}}"
        ));
        assert_eq!(
            listener(&bound, G, "b"),
            [
                "Accepted=False/NoValidCACertificate".to_owned(),
                format!("ResolvedRefs=False/{reason}"),
                "Programmed=False/Invalid".to_owned()
            ],
            "{reference}"
        );
        assert_eq!(bound.frontend_names(), ["infra/g a", "infra/g plain"]);
        let bound = validating(&format!("{{default: {tls}}}"));
        assert_eq!(
            bound.frontend_names(),
            ["infra/g plain"],
            "plain HTTP still works"
        );
    }
}

#[test]
fn one_valid_authority_of_two_suffices() {
    let bound = validating(
        "{default: {validation: {caCertificateRefs: [{kind: ConfigMap, group: '', name: ca}, {kind: ConfigMap, group: '', name: nothing}]}}}",
    );
    assert_eq!(
        listener(&bound, G, "a"),
        [
            "Accepted=True/Accepted",
            "ResolvedRefs=False/InvalidCACertificateRef",
            "Programmed=True/Programmed"
        ]
    );
    assert_eq!(authorities(&bound), [1, 1, 0]);
}

#[test]
fn the_insecure_fallback_mode_is_reported() {
    let validation = "{validation: {mode: AllowInsecureFallback, caCertificateRefs: [{kind: ConfigMap, group: '', name: ca}]}}";
    for frontend in [
        format!("{{default: {validation}}}"),
        format!("{{default: {{}}, perPort: [{{port: 8443, tls: {validation}}}]}}"),
    ] {
        let bound = validating(&frontend);
        assert_eq!(
            condition(&bound, G, "InsecureFrontendValidationMode"),
            "True/ConfigurationChanged"
        );
        assert_eq!(condition(&bound, G, "Accepted"), "True/Accepted");
    }
    let bound = validating(
        "{default: {validation: {caCertificateRefs: [{kind: ConfigMap, group: '', name: ca}]}}}",
    );
    assert_eq!(
        condition(&bound, G, "InsecureFrontendValidationMode"),
        "not set"
    );
}

// "PEM from spec.trustBundle; no ReferenceGrant; missing, empty or unparsable: ResolvedRefs=False/InvalidCACertificateRef."
#[test]
fn a_cluster_trust_bundle_contains_authorities() {
    let frontend = "tls: {frontend: {default: {validation: {caCertificateRefs: [{group: certificates.k8s.io, kind: ClusterTrustBundle, name: roots}]}}}}";
    let two = pair("one").0 + &pair("two").0;
    let base = gateway_g(&format!("{frontend}, {TWO}")) + &fresh_secret("infra/c");
    let mut bound = Bound::of(&(base.clone() + &bundle("roots", &two)));
    assert_eq!(authorities(&bound), [2, 2, 0]);
    bound.apply([pointsman_binding::Change::Delete(key(
        "ClusterTrustBundle roots",
    ))]);
    assert_eq!(
        bound.frontend_names(),
        ["infra/g plain"],
        "after deletion nothing is kept"
    );
    assert_eq!(
        listener(&bound, G, "a")[1],
        "ResolvedRefs=False/InvalidCACertificateRef"
    );
    let bound = Bound::of(&(base + &bundle("roots", "hello")));
    assert_eq!(
        listener(&bound, G, "a")[1],
        "ResolvedRefs=False/InvalidCACertificateRef"
    );
}

#[test]
fn a_malformed_authority_is_ignored() {
    let bound = Bound::of(
        &(gateway_g(&format!(
            "tls: {{frontend: {{default: {{validation: {{caCertificateRefs: [{{kind: ConfigMap, group: '', name: bad}}]}}}}}}}}, {TWO}"
        )) + &fresh_secret("infra/c")
            + &authority(
                "infra/bad",
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            )),
    );
    assert_eq!(
        listener(&bound, G, "a")[..2],
        [
            "Accepted=False/NoValidCACertificate",
            "ResolvedRefs=False/InvalidCACertificateRef"
        ]
    );
}

// "spec.tls.backend.clientCertificateRef missing/wrong kind/group/malformed: Gateway ResolvedRefs=False/InvalidClientCertificateRef (or
// RefNotPermitted), Accepted stays True."
#[test]
fn a_gateway_may_present_a_certificate_to_backends() {
    for (reference, resolved) in [
        ("{name: c}", "True/ResolvedRefs"),
        ("{name: nothing}", "False/InvalidClientCertificateRef"),
        (
            "{kind: ConfigMap, name: c}",
            "False/InvalidClientCertificateRef",
        ),
        (
            "{group: wrong.io, name: c}",
            "False/InvalidClientCertificateRef",
        ),
        ("{name: bad}", "False/InvalidClientCertificateRef"),
        ("{name: c, namespace: team}", "False/RefNotPermitted"),
    ] {
        let bound = Bound::of(
            &(gateway_g(&format!(
                "tls: {{backend: {{clientCertificateRef: {reference}}}}}, listeners: [{{name: a, port: 80, protocol: HTTP}}]"
            )) + &fresh_secret("infra/c")
                + &secret("infra/bad", "x", "y")),
        );
        assert_eq!(
            own_conditions(&bound, G),
            [
                "Accepted=True/Accepted".to_owned(),
                "Programmed=True/Programmed".to_owned(),
                format!("ResolvedRefs={resolved}")
            ],
            "{reference}"
        );
        let shown = bound
            .frontends
            .values()
            .all(|f| f.client_certificate.is_some());
        assert_eq!(shown, resolved.starts_with("True"));
    }
}

// GEP-3567: OverlappingTLSConfig, and it MUST NOT be set when False.
#[test]
fn overlapping_hostnames_of_https_listeners_are_reported() {
    let tls = "protocol: HTTPS, tls: {certificateRefs: [{name: c}]}";
    for (a, b, overlaps) in [
        ("port: 443", "port: 443, hostname: b.example", true),
        (
            "port: 443, hostname: '*.example'",
            "port: 443, hostname: b.example",
            true,
        ),
        (
            "port: 443, hostname: a.example",
            "port: 443, hostname: b.example",
            false,
        ),
        ("port: 443", "port: 8443, hostname: b.example", false),
    ] {
        let bound = Bound::of(
            &(gateway_g(&format!(
                "listeners: [{{name: a, {a}, {tls}}}, {{name: b, {b}, {tls}}}]"
            )) + &fresh_secret("infra/c")),
        );
        for name in ["a", "b"] {
            let reported = listener(&bound, G, name)
                .contains(&"OverlappingTLSConfig=True/OverlappingHostnames".to_owned());
            assert_eq!(reported, overlaps, "{a} {b}");
        }
    }
}
