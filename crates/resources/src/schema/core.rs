//! Schemas of core Kubernetes kinds. Only the fields in use are validated; other fields are accepted silently.

use serde_json::json;

use super::patterns::{
    BASE64, DATA_KEY, LABEL, LABEL_VALUE, PORT_NAME, QUALIFIED_NAME, SUBDOMAIN, is_ip,
};
use super::rules::{items, qualified_keys, text, unique_names, valid_keys};
use super::validate::range_message;
use super::{
    Findings, Schema, Shape, boolean, int_or_string, integer, list, map, one_of, open_object,
    string,
};
use crate::document::Node;
use crate::meta::Kind;

const DISTRIBUTIONS: &[&str] = &["PreferClose", "PreferSameZone", "PreferSameNode"];

const PROTOCOLS: &[&str] = &["TCP", "UDP", "SCTP"];

/// Adds the fields of a kind to those that every object has.
pub(super) fn fields(kind: Kind, mut object: Schema) -> Schema {
    if let Shape::Object { open, .. } = &mut object.shape {
        *open = true;
    }
    match kind {
        Kind::Service => object.required("spec", service()),
        Kind::ServiceImport => object.field("spec", service_import()),
        Kind::EndpointSlice => endpoint_slice(object),
        Kind::Secret => secret(object),
        Kind::Pod => object.field("spec", pod_spec()),
        Kind::ConfigMap => object.field("data", map(string()).rule(data_keys)),
        Kind::ClusterTrustBundle => object.required(
            "spec",
            open_object().required("trustBundle", string().size(1..=1_048_576)),
        ),
        _ => object,
    }
}

fn service() -> Schema {
    let kinds = &["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"];
    open_object()
        .field("type", one_of(kinds).default(json!("ClusterIP")))
        .field("clusterIP", string().rule(cluster_ip))
        .field("clusterIPs", list(string().rule(cluster_ip)).max(2))
        .field("ports", service_ports())
        .field(
            "selector",
            map(string().max(63).like(&LABEL_VALUE)).rule(qualified_keys),
        )
        .field("externalName", string().max(253))
        .field("trafficDistribution", one_of(DISTRIBUTIONS))
        .rule(external_name)
        .rule(ports_required)
        .rule(headless_is_not_published)
}

fn service_import() -> Schema {
    open_object()
        .field(
            "type",
            one_of(&["ClusterSetIP", "Headless"]).default(json!("ClusterSetIP")),
        )
        .field("ips", list(string()).max(2))
        .field("ports", service_ports())
}

fn service_ports() -> Schema {
    let port = open_object()
        .field("name", string().max(63).rule(port_name))
        .required("port", integer(1..=65535))
        .field("protocol", one_of(PROTOCOLS).default(json!("TCP")))
        .field("appProtocol", string().like(&QUALIFIED_NAME))
        .field("targetPort", int_or_string().rule(target_port));
    list(port)
        .rule(unique_names)
        .rule(names_of_several_ports)
        .rule(unique_ports)
}

/// An empty name counts as unset.
fn port_name(node: &Node, findings: &mut Findings<'_>) {
    if let Some(name) = node
        .as_str()
        .filter(|name| !name.is_empty() && !LABEL.matches(name))
    {
        findings.error(node, LABEL.message(name));
    }
}

fn target_port(node: &Node, findings: &mut Findings<'_>) {
    match (node.as_int(), node.as_str()) {
        (Some(number), _) if !(1..=65535).contains(&number) => {
            findings.error(node, range_message(number, 1, 65535));
        }
        (_, Some(name)) if !PORT_NAME.matches(name) => {
            findings.error(node, PORT_NAME.message(name));
        }
        _ => {}
    }
}

fn names_of_several_ports(node: &Node, findings: &mut Findings<'_>) {
    for (index, port) in node
        .items()
        .iter()
        .enumerate()
        .filter(|_| node.items().len() > 1)
    {
        if text(port, "name").is_none_or(str::is_empty) {
            findings.error_in(
                &format!("[{index}].name"),
                port,
                "required field is missing: a Service with several ports must name each of them",
            );
        }
    }
}

fn unique_ports(node: &Node, findings: &mut Findings<'_>) {
    let key = |port: &Node| {
        Some((
            port.get("port")?.as_int()?,
            text(port, "protocol")?.to_owned(),
        ))
    };
    for (index, port) in node.items().iter().enumerate() {
        if let Some(ours) = key(port)
            && node.items()[..index]
                .iter()
                .any(|other| key(other).as_ref() == Some(&ours))
        {
            findings.error_in(
                &format!("[{index}]"),
                port,
                format!("duplicate port {} with protocol {}", ours.0, ours.1),
            );
        }
    }
}

fn cluster_ip(node: &Node, findings: &mut Findings<'_>) {
    if let Some(address) = node
        .as_str()
        .filter(|ip| !ip.is_empty() && *ip != "None" && !is_ip(ip))
    {
        findings.error(
            node,
            format!("invalid value `{address}`: must be empty, `None` or an IP address"),
        );
    }
}

fn external_name(node: &Node, findings: &mut Findings<'_>) {
    if text(node, "type") != Some("ExternalName") {
        return;
    }
    match text(node, "externalName").map(|name| name.strip_suffix('.').unwrap_or(name)) {
        None | Some("") => findings.error_in(
            ".externalName",
            node,
            "`externalName` is required when type is ExternalName",
        ),
        Some(name) if !SUBDOMAIN.matches(name) => {
            findings.error_in(".externalName", node, SUBDOMAIN.message(name));
        }
        _ => {}
    }
}

/// A Service with a virtual address must have ports.
fn ports_required(node: &Node, findings: &mut Findings<'_>) {
    let kind = text(node, "type");
    if kind.is_some_and(|kind| kind != "ExternalName")
        && text(node, "clusterIP") != Some("None")
        && items(node, "ports").next().is_none()
        && node
            .get("ports")
            .is_none_or(|ports| matches!(ports.value, crate::document::Value::List(_)))
    {
        findings.error_in(
            ".ports",
            node,
            "at least one port is required, unless the Service is headless or of type ExternalName",
        );
    }
}

/// A headless Service can't be published outside the cluster.
fn headless_is_not_published(node: &Node, findings: &mut Findings<'_>) {
    if let (Some(kind @ ("NodePort" | "LoadBalancer")), Some("None")) =
        (text(node, "type"), text(node, "clusterIP"))
    {
        findings.error_in(
            ".clusterIP",
            node,
            format!("must not be `None` when type is {kind}"),
        );
    }
}

fn endpoint_slice(object: Schema) -> Schema {
    let conditions = open_object()
        .field("ready", boolean())
        .field("serving", boolean())
        .field("terminating", boolean());
    let names = || list(open_object().required("name", string())).max(8);
    let hints = open_object()
        .field("forZones", names())
        .field("forNodes", names());
    let endpoint = open_object()
        .required("addresses", list(string()).size(1..=100))
        .field("conditions", conditions)
        .field("nodeName", string())
        .field("zone", string())
        .field("hints", hints);
    let port = open_object()
        .field("name", string().max(63).rule(port_name).default(json!("")))
        .field("port", integer(1..=65535))
        .field("protocol", one_of(PROTOCOLS).default(json!("TCP")))
        .field("appProtocol", string().like(&QUALIFIED_NAME));
    object
        .required("addressType", one_of(&["IPv4", "IPv6", "FQDN"]))
        .field("endpoints", list(endpoint).max(1000))
        .field("ports", list(port).max(20_000).rule(unique_names))
        .rule(addresses_of_type)
}

/// The addresses must have the address type of the slice. Loopback addresses, which the API server rejects, are accepted for use without a
/// cluster.
fn addresses_of_type(node: &Node, findings: &mut Findings<'_>) {
    let Some(kind) = text(node, "addressType") else {
        return;
    };
    let (is_valid, required): (fn(&str) -> bool, &str) = match kind {
        "IPv4" => (
            |text| text.parse::<std::net::Ipv4Addr>().is_ok(),
            "an IPv4 address",
        ),
        "IPv6" => (
            |text| text.parse::<std::net::Ipv6Addr>().is_ok(),
            "an IPv6 address",
        ),
        "FQDN" => (
            |text| SUBDOMAIN.matches(text.strip_suffix('.').unwrap_or(text)),
            "a lowercase DNS name",
        ),
        _ => return,
    };
    for (index, endpoint) in items(node, "endpoints") {
        for (number, address) in items(endpoint, "addresses") {
            if let Some(text) = address.as_str().filter(|address| !is_valid(address)) {
                findings.error_in(
                    &format!(".endpoints[{index}].addresses[{number}]"),
                    address,
                    format!(
                        "invalid value `{text}`: must be {required} when addressType is {kind}"
                    ),
                );
            }
        }
    }
}

/// Returns the schema of the spec of a Pod: only container ports, to which Services can refer by name.
fn pod_spec() -> Schema {
    let container = || {
        let port = open_object()
            .field("name", string())
            .required("containerPort", integer(1..=65535))
            .field("protocol", one_of(PROTOCOLS).default(json!("TCP")));
        open_object()
            .field("ports", list(port))
            .field("restartPolicy", string())
    };
    open_object()
        .field("containers", list(container()))
        .field("initContainers", list(container()))
}

/// Returns the schema of the status of a Pod, which is the only status that is read.
pub(super) fn pod_status() -> Schema {
    let condition = open_object()
        .required("type", string())
        .required("status", string());
    open_object()
        .field("podIP", string())
        .field("phase", string())
        .field("conditions", list(condition))
}

fn secret(object: Schema) -> Schema {
    object
        .field("type", string().default(json!("Opaque")))
        .field("data", map(string().like(&BASE64)).rule(data_keys))
        .field("stringData", map(string()).rule(data_keys))
        .rule(tls_secret)
}

fn data_keys(node: &Node, findings: &mut Findings<'_>) {
    valid_keys(node, findings, &DATA_KEY, |key| {
        key.len() <= 253 && DATA_KEY.matches(key) && key != "." && !key.starts_with("..")
    });
}

/// A Secret of type `kubernetes.io/tls` must contain a certificate and its key.
fn tls_secret(node: &Node, findings: &mut Findings<'_>) {
    if text(node, "type") != Some("kubernetes.io/tls") {
        return;
    }
    for key in ["tls.crt", "tls.key"] {
        let has = |field| {
            node.get(field)
                .is_some_and(|data: &Node| data.get(key).is_some())
        };
        if !has("data") && !has("stringData") {
            findings.error_in(
                &format!(".data[{key}]"),
                node,
                format!("`{key}` is required when type is kubernetes.io/tls"),
            );
        }
    }
}
