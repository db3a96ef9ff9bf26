//! Precedence and status of policies.

mod common;

use common::certificates::{authority, bundle, fresh_authority, pair};
use common::{
    Bound, bind, condition, conditions, doc, document, key, message, port_tls, puts, service,
    slice, two_gateways,
};
use pointsman_binding::Change;
use pointsman_binding::bound::Trust;

const X: &str = "gateway.networking.x-k8s.io/v1alpha1";

fn tls(name: &str, targets: &str, validation: &str) -> String {
    doc(
        "BackendTLSPolicy",
        name,
        &format!("{{targetRefs: [{targets}], validation: {{hostname: x.example, {validation}}}}}"),
    )
}

const WEB: &str = "{group: '', kind: Service, name: web}";
const API: &str = "{group: '', kind: Service, name: api}";
const CA: &str = "caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]";

fn ca() -> String {
    fresh_authority("infra/ca")
}

#[test]
fn a_policy_has_an_ancestor_for_each_gateway_whose_routes_use_its_target() {
    let bound = two_gateways(&(tls("infra/p", WEB, CA) + &tls("infra/q", API, CA) + &ca()));
    let entry = |gateway: &str| {
        [
            format!("ancestor Gateway infra/{gateway}: Accepted=True/Accepted"),
            format!("ancestor Gateway infra/{gateway}: ResolvedRefs=True/ResolvedRefs"),
        ]
    };
    assert_eq!(
        conditions(&bound, "BackendTLSPolicy infra/p"),
        entry("edge")
    );
    assert_eq!(
        conditions(&bound, "BackendTLSPolicy infra/q"),
        [entry("edge"), entry("inner")].concat()
    );
    assert_eq!(port_tls(&bound, "web"), ["80 x.example", "443 x.example"]);
}

#[test]
fn ancestors_follow_routes() {
    let mut bound = two_gateways(&(tls("infra/q", API, CA) + &ca()));
    bound.apply(puts(&doc(
        "HTTPRoute",
        "infra/b",
        "{parentRefs: [{name: inner}], rules: [{backendRefs: [{name: api, port: 443}]}]}",
    )));
    assert!(
        conditions(&bound, "BackendTLSPolicy infra/q")
            .iter()
            .all(|line| line.starts_with("ancestor Gateway infra/inner"))
    );
    bound.apply([Change::Delete(key("HTTPRoute infra/b"))]);
    assert!(conditions(&bound, "BackendTLSPolicy infra/q").is_empty());
    assert!(bound.warnings().iter().any(|w| {
        w.message
            .contains("no Gateway sends traffic to its targets")
    }));
}

#[test]
fn a_policy_whose_target_only_mesh_routes_use_is_in_effect() {
    let budget = document(
        "gateway.networking.x-k8s.io/v1alpha1",
        "XBackendTrafficPolicy",
        "shop/p",
        "{targetRefs: [{group: '', kind: Service, name: web}]}",
    );
    let alone = service("shop/web", "{clusterIP: 10.0.0.1, ports: [{port: 80}]}") + &budget;
    let warned = |yaml: &str| {
        let all = bind(yaml).warnings();
        all.iter()
            .any(|w| w.message.contains("the policy has no effect"))
    };
    assert!(warned(&alone));
    let route = "{parentRefs: [{group: '', kind: Service, name: web}]}";
    assert!(!warned(&(alone + &doc("HTTPRoute", "shop/r", route))));
}

// A backend that a route may use only under its mesh parent does not make its Gateway an ancestor.
#[test]
fn a_gateway_without_permission_to_use_the_target_is_not_an_ancestor() {
    let route = doc(
        "HTTPRoute",
        "infra/both",
        "{parentRefs: [{name: edge}, {group: '', kind: Service, name: web}], rules: [{backendRefs: [{namespace: team, name: far, port: 80}]}]}",
    );
    let policy = doc(
        "BackendTLSPolicy",
        "team/p",
        "{targetRefs: [{group: '', kind: Service, name: far}], validation: {hostname: x.example, wellKnownCACertificates: System}}",
    );
    let bound = two_gateways(&(route + &policy + &service("team/far", "{ports: [{port: 80}]}")));
    assert!(conditions(&bound, "BackendTLSPolicy team/p").is_empty());
    assert_eq!(
        port_tls(&bound, "far"),
        ["80 x.example"],
        "in the mesh the policy applies"
    );
}

#[test]
fn a_policy_for_a_port_takes_precedence_over_one_for_the_service() {
    let named = tls(
        "infra/port",
        "{group: '', kind: Service, name: web, sectionName: tls}",
        CA,
    )
    .replace("x.example", "port.example");
    let bound = two_gateways(&(tls("infra/whole", WEB, CA) + &named + &ca()));
    assert_eq!(
        port_tls(&bound, "web"),
        ["80 x.example", "443 port.example"]
    );
    for name in ["infra/whole", "infra/port"] {
        assert_eq!(
            condition(&bound, &format!("BackendTLSPolicy {name}"), "Accepted"),
            "True/Accepted"
        );
    }
}

// "2 policies on same Service(+sectionName): older/alphabetical one Accepted, other Accepted=False/Conflicted."
#[test]
fn the_older_of_two_policies_wins_and_then_the_name() {
    let aged = |name: &str, at: &str| {
        tls(name, WEB, CA)
            .replace(
                "metadata: {",
                &format!("metadata: {{creationTimestamp: '{at}', "),
            )
            .replace("x.example", &name.replace("infra/", "").replace('/', ""))
    };
    let mut bound = two_gateways(
        &(aged("infra/c.example", "2024-01-02T00:00:00Z")
            + &aged("infra/b.example", "2024-01-01T00:00:00Z")
            + &aged("infra/a.example", "2024-01-01T00:00:00Z")
            + &ca()),
    );
    let verdicts = |bound: &Bound| {
        ["a", "b", "c"].map(|n| {
            condition(
                bound,
                &format!("BackendTLSPolicy infra/{n}.example"),
                "Accepted",
            )
        })
    };
    assert_eq!(
        verdicts(&bound),
        ["True/Accepted", "False/Conflicted", "False/Conflicted"]
    );
    assert_eq!(port_tls(&bound, "web"), ["80 a.example", "443 a.example"]);
    assert!(
        message(&bound, "BackendTLSPolicy infra/b.example", "Accepted")
            .contains("overridden by BackendTLSPolicy infra/a.example, which is older")
    );
    bound.apply([Change::Delete(key("BackendTLSPolicy infra/a.example"))]);
    assert_eq!(
        verdicts(&bound),
        ["not set", "True/Accepted", "False/Conflicted"]
    );
}

#[test]
fn a_policy_overridden_on_some_targets_applies_to_the_others() {
    let bound = two_gateways(
        &(tls("infra/first", WEB, CA)
            + &tls("infra/second", &format!("{WEB}, {API}"), CA)
                .replace("x.example", "second.example")
            + &ca()),
    );
    assert_eq!(
        condition(&bound, "BackendTLSPolicy infra/second", "Accepted"),
        "True/Accepted"
    );
    assert!(
        message(&bound, "BackendTLSPolicy infra/second", "Accepted")
            .contains("Service infra/web: overridden by BackendTLSPolicy")
    );
    assert_eq!(port_tls(&bound, "api"), ["443 second.example"]);
    assert_eq!(port_tls(&bound, "web"), ["80 x.example", "443 x.example"]);
}

#[test]
fn a_missing_target_is_named() {
    let bound = two_gateways(
        &(tls(
            "infra/p",
            "{group: '', kind: Service, name: web, sectionName: nothing}",
            CA,
        ) + &ca()),
    );
    assert_eq!(
        condition(&bound, "BackendTLSPolicy infra/p", "Accepted"),
        "False/TargetNotFound"
    );
    assert!(
        message(&bound, "BackendTLSPolicy infra/p", "Accepted")
            .contains("has no port named nothing")
    );
    assert_eq!(port_tls(&bound, "web"), ["80 plain", "443 plain"]);
}

// "missing/malformed ConfigMap: Accepted=False/NoValidCACertificate, ResolvedRefs=False/InvalidCACertificateRef"; "unknown CA ref kind:
// … ResolvedRefs=False/InvalidKind". Requests to the backend then fail.
#[test]
fn authorities_are_validated() {
    let good = pair("authority").0;
    for (validation, objects, accepted, resolved, spoken_to) in [
        (CA, ca(), "True/Accepted", "True/ResolvedRefs", "x.example"),
        (
            CA,
            String::new(),
            "False/NoValidCACertificate",
            "False/InvalidCACertificateRef",
            "502 NoValidCACertificate",
        ),
        (
            CA,
            authority("infra/ca", ""),
            "False/NoValidCACertificate",
            "False/InvalidCACertificateRef",
            "502 NoValidCACertificate",
        ),
        (
            CA,
            authority("infra/ca", "hello"),
            "False/NoValidCACertificate",
            "False/InvalidCACertificateRef",
            "502 NoValidCACertificate",
        ),
        (
            "caCertificateRefs: [{group: x.io, kind: InvalidKind, name: ca}]",
            String::new(),
            "False/NoValidCACertificate",
            "False/InvalidKind",
            "502 NoValidCACertificate",
        ),
        (
            "caCertificateRefs: [{group: '', kind: ConfigMap, name: nothing}, {group: '', kind: ConfigMap, name: ca}]",
            ca(),
            "True/Accepted",
            "False/InvalidCACertificateRef",
            "x.example",
        ),
        (
            "caCertificateRefs: [{group: certificates.k8s.io, kind: ClusterTrustBundle, name: roots}]",
            bundle("roots", &good),
            "True/Accepted",
            "True/ResolvedRefs",
            "x.example",
        ),
        (
            "wellKnownCACertificates: System",
            String::new(),
            "True/Accepted",
            "True/ResolvedRefs",
            "x.example",
        ),
        (
            "wellKnownCACertificates: example.com/Other",
            String::new(),
            "False/Invalid",
            "True/ResolvedRefs",
            "502 NoValidCACertificate",
        ),
    ] {
        let bound = two_gateways(&(tls("infra/p", API, validation) + &objects));
        assert_eq!(
            condition(&bound, "BackendTLSPolicy infra/p", "Accepted"),
            accepted,
            "{validation}"
        );
        assert_eq!(
            condition(&bound, "BackendTLSPolicy infra/p", "ResolvedRefs"),
            resolved,
            "{validation}"
        );
        assert_eq!(
            port_tls(&bound, "api"),
            [format!("443 {spoken_to}")],
            "{validation}"
        );
    }
}

#[test]
fn policies_follow_added_and_emptied_authorities() {
    let mut bound = two_gateways(&tls("infra/p", API, CA));
    for (object, accepted) in [
        (ca(), "True/Accepted"),
        (authority("infra/ca", ""), "False/NoValidCACertificate"),
        (ca(), "True/Accepted"),
    ] {
        bound.apply(puts(&object));
        assert_eq!(
            condition(&bound, "BackendTLSPolicy infra/p", "Accepted"),
            accepted
        );
    }
}

#[test]
fn options_are_rejected() {
    let policy = doc(
        "BackendTLSPolicy",
        "infra/p",
        &format!(
            "{{targetRefs: [{API}], validation: {{hostname: x.example, {CA}}}, options: {{example.com/x: z}}}}"
        ),
    );
    let bound = two_gateways(&(policy + &ca()));
    assert_eq!(
        condition(&bound, "BackendTLSPolicy infra/p", "Accepted"),
        "False/Invalid"
    );
    assert_eq!(port_tls(&bound, "api"), ["443 502 Invalid"]);
}

#[test]
fn subject_alt_names_are_bound() {
    let sans = "subjectAltNames: [{type: Hostname, hostname: a.example}, {type: URI, uri: 'spiffe://a/b'}], wellKnownCACertificates: System";
    let bound = two_gateways(&tls("infra/p", API, sans));
    let backend = bound
        .backends
        .values()
        .find(|b| *b.id.object.name.name == *"api")
        .expect("a backend");
    let port_tls = backend
        .tls
        .as_ref()
        .expect("TLS")
        .as_ref()
        .expect("no fault");
    assert_eq!((port_tls.names.len(), &port_tls.trust), (2, &Trust::System));
}

fn traffic(name: &str, spec: &str) -> String {
    document(X, "XBackendTrafficPolicy", name, spec)
}

#[test]
fn a_traffic_policy_sets_the_retry_budget() {
    let budget = "retryConstraint: {budget: {percent: 30, interval: 5s}, minRetryRate: {count: 3, interval: 1s}}";
    let bound = two_gateways(&traffic(
        "infra/t",
        &format!("{{targetRefs: [{API}], {budget}}}"),
    ));
    assert_eq!(
        condition(&bound, "XBackendTrafficPolicy infra/t", "Accepted"),
        "True/Accepted"
    );
    let backend = bound
        .backends
        .values()
        .find(|b| *b.id.object.name.name == *"api")
        .expect("a backend");
    assert_eq!(
        backend.retry_budget.map(|b| (b.percent, b.min_count)),
        Some((30, 3))
    );
}

#[test]
fn traffic_policies_conflict_by_age_and_unsupported_fields_are_rejected() {
    let spec = format!("{{targetRefs: [{API}], retryConstraint: {{}}}}");
    let bound = two_gateways(&(traffic("infra/t", &spec) + &traffic("infra/u", &spec)));
    assert_eq!(
        condition(&bound, "XBackendTrafficPolicy infra/t", "Accepted"),
        "True/Accepted"
    );
    assert_eq!(
        condition(&bound, "XBackendTrafficPolicy infra/u", "Accepted"),
        "False/Conflicted"
    );
    let bound = two_gateways(&traffic(
        "infra/t",
        &format!("{{targetRefs: [{API}], sessionPersistence: {{cookie: {{name: c}}}}}}"),
    ));
    assert_eq!(
        condition(&bound, "XBackendTrafficPolicy infra/t", "Accepted"),
        "False/Invalid"
    );
}

// "One policy per Gateway: oldest, then namespace/name; others Accepted=False/Conflicted."
#[test]
fn one_telemetry_policy_applies_to_each_gateway_and_tracing_is_rejected() {
    let policy = |name: &str, targets: &str, tracing: &str| {
        document(
            X,
            "XTelemetryPolicy",
            name,
            &format!("{{targetRefs: [{targets}], tracing: {tracing}}}"),
        )
    };
    let gateway =
        |name: &str| format!("{{group: gateway.networking.k8s.io, kind: Gateway, name: {name}}}");
    let bound = two_gateways(
        &(policy("infra/a", &gateway("edge"), "{mode: Disabled}")
            + &policy(
                "infra/b",
                &format!("{}, {}", gateway("edge"), gateway("inner")),
                "{}",
            )
            + &policy("infra/c", &gateway("nowhere"), "{}")),
    );
    assert_eq!(
        condition(&bound, "XTelemetryPolicy infra/a", "Accepted"),
        "True/Accepted"
    );
    let accepted: Vec<String> = conditions(&bound, "XTelemetryPolicy infra/b")
        .into_iter()
        .filter(|l| l.contains("Accepted="))
        .collect();
    assert_eq!(
        accepted,
        [
            "ancestor Gateway infra/edge: Accepted=False/Conflicted",
            "ancestor Gateway infra/inner: Accepted=True/Accepted"
        ]
    );
    assert!(conditions(&bound, "XTelemetryPolicy infra/c").is_empty());
    let bound = two_gateways(&policy(
        "infra/a",
        &gateway("edge"),
        "{mode: Enabled, provider: {backendRef: {name: api, port: 80}}}",
    ));
    assert_eq!(
        condition(&bound, "XTelemetryPolicy infra/a", "Accepted"),
        "False/Invalid"
    );
}

#[test]
fn changed_endpoints_change_no_route() {
    let mut bound = two_gateways("");
    let delta = bound.apply(puts(&slice("infra/api", "tls", 8443, "10.1.0.1")));
    assert_eq!(
        (
            delta.endpoints.len(),
            delta.backends.len(),
            delta.attachments.len() + delta.routes.len() + delta.rules.len(),
            delta.frontends.len(),
            delta.statuses.len()
        ),
        (1, 0, 0, 0, 0)
    );
    assert_eq!(bound.addresses("infra/api", 443), ["10.1.0.1:8443"]);
}
