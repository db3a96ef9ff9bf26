//! Manifests as text.

/// A managed GatewayClass, and a Gateway `infra/edge` with an HTTP listener for routes of all namespaces. A macro, so that `concat!` can extend it.
#[macro_export]
macro_rules! edge_gateway {
    () => {
        "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: pointsman}
spec: {controllerName: pointsman.io/controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: infra}
spec:
  gatewayClassName: pointsman
  listeners:
  - {name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
"
    };
}

/// Creates a document of any group. `name` is `NAMESPACE/NAME`, or `NAME` for a cluster-scoped object.
pub fn document(api_version: &str, kind: &str, name: &str, spec: &str) -> String {
    let metadata = metadata(name);
    format!(
        "\n---\n{{apiVersion: {api_version}, kind: {kind}, metadata: {metadata}, spec: {spec}}}"
    )
}

/// Creates a document of the Gateway API's group: `doc("HTTPRoute", "shop/cart", "{…}")`.
pub fn doc(kind: &str, name: &str, spec: &str) -> String {
    document("gateway.networking.k8s.io/v1", kind, name, spec)
}

/// Creates a Service: `service("shop/web", "{ports: [{port: 80}]}")`.
pub fn service(name: &str, spec: &str) -> String {
    document("v1", "Service", name, spec)
}

/// Creates a Secret with a certificate and a key, in PEM.
pub fn tls_secret(name: &str, certificate: &str, key: &str) -> String {
    let metadata = metadata(name);
    format!(
        "\n---\n{{apiVersion: v1, kind: Secret, metadata: {metadata}, type: kubernetes.io/tls, stringData: {{tls.crt: {certificate:?}, tls.key: {key:?}}}}}\n"
    )
}

/// Creates a ConfigMap with the certificate of an authority, in PEM.
pub fn ca_config_map(name: &str, pem: &str) -> String {
    let metadata = metadata(name);
    format!(
        "\n---\n{{apiVersion: v1, kind: ConfigMap, metadata: {metadata}, data: {{ca.crt: {pem:?}}}}}\n"
    )
}

fn metadata(name: &str) -> String {
    match name.split_once('/') {
        Some((namespace, name)) => format!("{{namespace: {namespace}, name: {name}}}"),
        None => format!("{{name: {name}}}"),
    }
}
