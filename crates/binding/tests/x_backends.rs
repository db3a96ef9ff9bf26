//! XBackends (GEP-4894): external hostnames, and Pods selected by label.

mod common;

use common::certificates::fresh_secret;
use common::{condition, conditions, doc, document, port_tls, two_gateways};
use pointsman_binding::Change;
use pointsman_binding::bound::Endpoints;
use pointsman_resources::Name;

const X: &str = "gateway.networking.x-k8s.io/v1alpha1";

fn x_backend(name: &str, spec: &str) -> String {
    document(X, "XBackend", name, spec)
}

fn to_x(name: &str) -> String {
    doc(
        "HTTPRoute",
        "infra/x",
        &format!(
            "{{parentRefs: [{{name: edge}}], rules: [{{backendRefs: [{{group: gateway.networking.x-k8s.io, kind: XBackend, name: {name}}}]}}]}}"
        ),
    )
}

#[test]
fn an_x_backend_can_be_a_backend() {
    let bound = two_gateways(
        &(x_backend(
            "infra/out",
            "{type: ExternalHostname, externalHostname: {hostname: api.example.com}, port: {number: 443}, tls: {mode: ServerOnly, validation: {hostname: api.example.com, wellKnownCACertificates: System}}}",
        ) + &to_x("out")),
    );
    assert_eq!(
        condition(&bound, "HTTPRoute infra/x", "ResolvedRefs"),
        "True/ResolvedRefs"
    );
    assert_eq!(
        conditions(&bound, "XBackend infra/out"),
        ["ancestor Gateway infra/edge: Accepted=True/Accepted"]
    );
    assert_eq!(bound.addresses("infra/out", 443), ["api.example.com:443"]);
    assert_eq!(port_tls(&bound, "out"), ["443 api.example.com"]);
}

#[test]
fn an_x_backend_selects_ready_pods_of_its_namespace() {
    let pod = |name: &str, ip: &str, status: &str| {
        let (namespace, name) = name.split_once('/').expect("namespace and name");
        format!(
            "\n---\n{{apiVersion: v1, kind: Pod, metadata: {{namespace: {namespace}, name: {name}, labels: {{app: x}}}}, status: {{podIP: {ip}{status}}}}}"
        )
    };
    let backend = x_backend(
        "infra/pods",
        "{type: EndpointSelector, endpointSelector: {matchLabels: {app: x}}, port: {number: 8080}}",
    );
    let ready = |is: &str| format!(", conditions: [{{type: Ready, status: '{is}'}}]");
    let bound = two_gateways(
        &(backend
            + &to_x("pods")
            + &pod("infra/a", "10.1.0.1", &ready("True"))
            + &pod("infra/b", "10.1.0.2", &ready("False"))
            + &pod("infra/c", "10.1.0.3", "")
            + &pod("team/d", "10.1.0.4", "")),
    );
    assert_eq!(
        bound.addresses("infra/pods", 8080),
        ["10.1.0.1:8080", "10.1.0.3:8080"]
    );
}

// Unsupported fields and unresolved references are rejected in status, never ignored.
#[test]
fn an_unusable_x_backend_reports_it_in_its_own_status() {
    let host = "type: ExternalHostname, externalHostname: {hostname: api.example.com}, port: {number: 443}";
    for (spec, accepted, resolved) in [
        (format!("{{{host}, protocol: MCP}}"), "False/UnsupportedValue", "False/UnsupportedProtocol"),
        (
            "{type: EndpointSelector, endpointSelector: {matchLabels: {app: x}}, port: {number: 80}, sessionPersistence: {cookie: {name: c}}}".to_owned(),
            "False/UnsupportedValue",
            "False/UnsupportedProtocol",
        ),
        (
            format!("{{{host}, tls: {{mode: ServerOnly, validation: {{hostname: a.example, caCertificateRefs: [{{group: '', kind: ConfigMap, name: nothing}}]}}}}}}"),
            "False/NoValidCACertificate",
            "True/ResolvedRefs",
        ),
        (
            format!("{{{host}, tls: {{mode: ClientAndServer, clientCertificateRef: {{name: nothing}}, validation: {{hostname: a.example, wellKnownCACertificates: System}}}}}}"),
            "False/InvalidClientCertificateRef",
            "True/ResolvedRefs",
        ),
    ] {
        let bound = two_gateways(&(x_backend("infra/out", &spec) + &to_x("out")));
        assert_eq!(condition(&bound, "XBackend infra/out", "Accepted"), accepted, "{spec}");
        assert_eq!(condition(&bound, "HTTPRoute infra/x", "ResolvedRefs"), resolved, "{spec}");
    }
}

#[test]
fn an_x_backend_is_limited_to_its_namespace_and_protocol() {
    let host = "{type: ExternalHostname, externalHostname: {hostname: api.example.com}, port: {number: 443}, protocol: TCP}";
    let away = doc(
        "HTTPRoute",
        "infra/x",
        "{parentRefs: [{name: edge}], rules: [{backendRefs: [{group: gateway.networking.x-k8s.io, kind: XBackend, name: out, namespace: team}]}]}",
    );
    let bound = two_gateways(&(x_backend("team/out", host) + &away));
    assert_eq!(
        condition(&bound, "HTTPRoute infra/x", "ResolvedRefs"),
        "False/RefNotPermitted"
    );
    let bound = two_gateways(&(x_backend("infra/out", host) + &to_x("out")));
    assert_eq!(
        condition(&bound, "HTTPRoute infra/x", "ResolvedRefs"),
        "False/UnsupportedProtocol"
    );
}

#[test]
fn an_x_backend_has_a_client_certificate() {
    let spec = "{type: ExternalHostname, externalHostname: {hostname: api.example.com}, port: {number: 443}, tls: {mode: ClientAndServer, clientCertificateRef: {name: c}, validation: {hostname: a.example, wellKnownCACertificates: System}}}";
    let mut bound =
        two_gateways(&(x_backend("infra/out", spec) + &to_x("out") + &fresh_secret("infra/c")));
    let (id, _) = bound
        .endpoints
        .iter()
        .find(|(_, endpoints)| matches!(***endpoints, Endpoints::Dns(..)))
        .expect("a backend");
    let backend = &bound.backends[id];
    let port_tls = backend
        .tls
        .as_ref()
        .expect("TLS")
        .as_ref()
        .expect("no fault");
    let certificate = port_tls.client_certificate.as_ref().expect("a certificate");
    assert!(bound.secrets.contains_key(certificate));
    let why = Some("the private key is corrupt".to_owned());
    bound.apply([Change::RetainSecret(Name::new("infra", "c"), why)]);
    assert_eq!(
        conditions(&bound, "XBackend infra/out"),
        [
            "ancestor Gateway infra/edge: Accepted=True/Accepted",
            "ancestor Gateway infra/edge: ResolvedRefs=False/InvalidClientCertificateRef"
        ],
        "its last valid certificate stays in effect"
    );
}
