//! Concise manifests. By default objects are in namespace `default` and routes attach to Gateway `edge`.

use super::backend::Backend;

/// The class and a Gateway with these listeners, each as YAML in one line.
pub fn gateway(listeners: &[&str]) -> String {
    gateway_with("", listeners)
}

/// The same with more fields of the Gateway's spec, each a line of YAML indented by two.
pub fn gateway_with(more: &str, listeners: &[&str]) -> String {
    let listeners: String = listeners
        .iter()
        .map(|listener| format!("  - {listener}\n"))
        .collect();
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {{name: pointsman}}\nspec: {{controllerName: pointsman.io/controller}}\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: edge, namespace: default}}\nspec:\n  gatewayClassName: pointsman\n{more}  listeners:\n{listeners}"
    )
}

/// A Gateway with one HTTP listener.
pub fn plain() -> String {
    gateway(&["{name: http, port: 8080, protocol: HTTP}"])
}

/// A Service (port 80) with one endpoint for each backend.
pub fn service(name: &str, backends: &[&Backend]) -> String {
    service_as(name, "http", backends)
}

/// The same with an `appProtocol`.
pub fn service_as(name: &str, protocol: &str, backends: &[&Backend]) -> String {
    let addresses: Vec<std::net::SocketAddr> = backends.iter().map(|one| one.address).collect();
    service_at(name, protocol, &addresses)
}

/// The same for addresses.
pub fn service_at(name: &str, protocol: &str, addresses: &[std::net::SocketAddr]) -> String {
    let mut text = format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: default}}\nspec: {{clusterIP: None, ports: [{{name: main, port: 80, appProtocol: {protocol}}}]}}\n"
    );
    text.push_str(&slices(name, addresses));
    text
}

/// The EndpointSlices of a Service: one for each address, because their ports differ.
pub fn slices(name: &str, addresses: &[std::net::SocketAddr]) -> String {
    addresses
        .iter()
        .enumerate()
        .map(|(number, address)| {
            let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
            format!(
                "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}-{number}, namespace: default, labels: {{kubernetes.io/service-name: {name}}}}}\n\
                 addressType: {family}\nendpoints: [{{addresses: ['{}']}}]\nports: [{{name: main, port: {}}}]\n",
                address.ip(),
                address.port()
            )
        })
        .collect()
}

/// A UDP Service with its endpoints.
pub fn udp_service(name: &str, backends: &[&Backend]) -> String {
    service(name, backends)
        .replace("port: 80, appProtocol: http", "port: 80, protocol: UDP")
        .replace(
            "ports: [{name: main, port",
            "ports: [{name: main, protocol: UDP, port",
        )
        .replace(
            "protocol: UDP, port: 80, protocol: UDP",
            "port: 80, protocol: UDP",
        )
}

/// An HTTPRoute with these rules, each as YAML to follow `- `.
pub fn route(name: &str, rules: &[&str]) -> String {
    route_of("HTTPRoute", name, "", rules)
}

/// An HTTPRoute for one hostname.
pub fn route_for(name: &str, hostname: &str, rules: &[&str]) -> String {
    route_of(
        "HTTPRoute",
        name,
        &format!("  hostnames: ['{hostname}']\n"),
        rules,
    )
}

/// A route of any kind, with more fields of its spec.
pub fn route_of(kind: &str, name: &str, more: &str, rules: &[&str]) -> String {
    route_on("[{name: edge}]", kind, name, more, rules)
}

/// A route on other parents.
pub fn route_on(parents: &str, kind: &str, name: &str, more: &str, rules: &[&str]) -> String {
    let version = match kind {
        "TCPRoute" | "UDPRoute" => "v1alpha2",
        _ => "v1",
    };
    let rules: String = rules
        .iter()
        .map(|rule| format!("  - {}\n", rule.trim().replace('\n', "\n    ")))
        .collect();
    format!(
        "---\napiVersion: gateway.networking.k8s.io/{version}\nkind: {kind}\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  parentRefs: {parents}\n{more}  rules:\n{rules}"
    )
}

/// A rule that forwards all requests to Service `name`.
pub fn to(name: &str) -> String {
    format!("backendRefs: [{{name: {name}, port: 80}}]")
}

/// A rule that forwards matching requests to Service `name`.
pub fn matching(matches: &str, name: &str) -> String {
    format!("{{matches: [{matches}], backendRefs: [{{name: {name}, port: 80}}]}}")
}

/// A rule with filters.
pub fn filtered(filters: &str, name: &str) -> String {
    format!("{{filters: [{filters}], backendRefs: [{{name: {name}, port: 80}}]}}")
}
