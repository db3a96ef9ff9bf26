//! Tests of service names, percentages and port protocols.

use super::*;

#[test]
fn kubernetes_service_names_are_parsed_into_their_parts() {
    let parts = |name| {
        let service = KubernetesService::parse(name)?;
        assert_eq!(service.to_string(), name);
        Some((service.name, service.namespace, service.port))
    };
    // MADR 045: `name: backend_kuma-demo_svc_3001`.
    assert_eq!(
        parts("backend_kuma-demo_svc_3001"),
        Some(("backend", "kuma-demo", Some(3001)))
    );
    assert_eq!(
        parts("edge-gateway_kuma-demo_svc"),
        Some(("edge-gateway", "kuma-demo", None))
    );
    for other in [
        "",
        "backend",
        "backend_kuma-demo",
        "backend_kuma-demo_srv_3001",
        "backend_kuma-demo_svc_http",
        "backend_kuma-demo_svc_03001",
        "backend_kuma-demo_svc_70000",
        "backend_kuma-demo_svc_3001_",
        "_kuma-demo_svc_3001",
        "backend__svc_3001",
    ] {
        assert_eq!(parts(other), None, "{other}");
    }
}

#[test]
fn percentages_are_integers_or_decimal_numbers() {
    let parts = |text| fraction(text).map(|part| (part.numerator, part.denominator));
    assert_eq!(parts("0"), Some((0, 1000)));
    assert_eq!(parts("100"), Some((1000, 1000)));
    assert_eq!(parts("12.5"), Some((125, 1000)));
    assert_eq!(parts("0.0001"), Some((1, 1_000_000)));
    assert_eq!(parts("0.00019"), Some((1, 1_000_000)));
    for invalid in [
        "",
        ".",
        "5.",
        ".5",
        "-1",
        "1e1",
        "101",
        "100.1",
        "a",
        "99999999999",
    ] {
        assert_eq!(parts(invalid), None, "{invalid}");
    }
}

// "`kuma.io/protocol` (from `appProtocol`, else annotation `<port>.service.kuma.io/protocol`, else `tcp`)".
#[test]
fn the_protocol_of_a_port_comes_from_app_protocol_or_the_annotation() {
    let service: crate::core::Service = serde_json::from_value(serde_json::json!({
        "metadata": {
            "name": "a",
            "annotations": {"80.service.kuma.io/protocol": "http", "81.service.kuma.io/protocol": "http", "other": "x"},
        },
        "spec": {"ports": [{"port": 80}, {"port": 81, "appProtocol": "grpc"}, {"port": 82}]},
    }))
    .unwrap();
    let ports = service.spec.ports.iter();
    let protocols: Vec<_> = ports.map(|port| service.kuma_protocol(port)).collect();
    assert_eq!(protocols, [Some("http"), Some("grpc"), None]);
    assert_eq!(service.metadata.annotations.get("other"), None);
}
