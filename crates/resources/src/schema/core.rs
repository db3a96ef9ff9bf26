//! Kubernetes' own kinds: the fields in use are checked, all others pass.

use serde_json::json;

use super::gateway::is_ip;
use super::patterns::{BASE64, DATA_KEY, LABEL, LABEL_VALUE, PORT_NAME, QUALIFIED_NAME, SUBDOMAIN};
use super::rules::{items, qualified_keys, text, unique_names};
use super::{
    Findings, Schema, Shape, boolean, int_or_string, integer, list, map, one_of, open_object,
    string,
};
use crate::document::Node;
use crate::meta::Kind;

const PROTOCOLS: &[&str] = &["TCP", "UDP", "SCTP"];

/// Adds a kind's fields to those that every object has.
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
        .rule(external_name)
        .rule(ports_needed)
        .rule(headless_is_internal)
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
        .rule(several_ports_have_names)
        .rule(distinct_ports)
}

/// An empty name is none.
fn port_name(node: &Node, findings: &mut Findings<'_>) {
    if let Some(name) = node
        .as_str()
        .filter(|name| !name.is_empty() && !LABEL.matches(name))
    {
        findings.error(node, format!("`{name}` is not {}", LABEL.description));
    }
}

fn target_port(node: &Node, findings: &mut Findings<'_>) {
    match (node.as_int(), node.as_str()) {
        (Some(number), _) if !(1..=65535).contains(&number) => {
            findings.error(node, format!("{number} is not between 1 and 65535"));
        }
        (_, Some(name)) if !PORT_NAME.matches(name) => {
            findings.error(node, format!("`{name}` is not {}", PORT_NAME.description));
        }
        _ => {}
    }
}

fn several_ports_have_names(node: &Node, findings: &mut Findings<'_>) {
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
                "where there are several ports, each needs a name",
            );
        }
    }
}

fn distinct_ports(node: &Node, findings: &mut Findings<'_>) {
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
                format!(
                    "an earlier port has the number {} and protocol {} too",
                    ours.0, ours.1
                ),
            );
        }
    }
}

fn cluster_ip(node: &Node, findings: &mut Findings<'_>) {
    if let Some(address) = node
        .as_str()
        .filter(|ip| !ip.is_empty() && *ip != "None" && !is_ip(ip))
    {
        findings.error(node, format!("`{address}` is not an IP address or `None`"));
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
            "type ExternalName needs `externalName`",
        ),
        Some(name) if !SUBDOMAIN.matches(name) => {
            findings.error_in(
                ".externalName",
                node,
                format!("`{name}` is not {}", SUBDOMAIN.description),
            );
        }
        _ => {}
    }
}

/// A Service has ports unless it has no address to have them on.
fn ports_needed(node: &Node, findings: &mut Findings<'_>) {
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
            "a Service with an address needs at least one port",
        );
    }
}

/// What has no address within the cluster can't be published outside it.
fn headless_is_internal(node: &Node, findings: &mut Findings<'_>) {
    if let (Some(kind @ ("NodePort" | "LoadBalancer")), Some("None")) =
        (text(node, "type"), text(node, "clusterIP"))
    {
        findings.error_in(
            ".clusterIP",
            node,
            format!("type {kind} needs an address, so not `None`"),
        );
    }
}

fn endpoint_slice(object: Schema) -> Schema {
    let conditions = open_object()
        .field("ready", boolean())
        .field("serving", boolean())
        .field("terminating", boolean());
    let endpoint = open_object()
        .required("addresses", list(string()).size(1..=100))
        .field("conditions", conditions);
    let port = open_object()
        .field("name", string().max(63).rule(port_name).default(json!("")))
        .field("port", integer(1..=65535))
        .field("protocol", one_of(PROTOCOLS).default(json!("TCP")))
        .field("appProtocol", string().like(&QUALIFIED_NAME));
    object
        .required("addressType", one_of(&["IPv4", "IPv6", "FQDN"]))
        .field("endpoints", list(endpoint).max(1000))
        .field("ports", list(port).max(20_000).rule(unique_names))
        .rule(addresses_fit_type)
}

/// In files an address may also be a loopback one, which the API server refuses: without a cluster it is often the only one.
fn addresses_fit_type(node: &Node, findings: &mut Findings<'_>) {
    let Some(kind) = text(node, "addressType") else {
        return;
    };
    let fits: fn(&str) -> bool = match kind {
        "IPv4" => |text| text.parse::<std::net::Ipv4Addr>().is_ok(),
        "IPv6" => |text| text.parse::<std::net::Ipv6Addr>().is_ok(),
        "FQDN" => |text| SUBDOMAIN.matches(text.strip_suffix('.').unwrap_or(text)),
        _ => return,
    };
    for (index, endpoint) in items(node, "endpoints") {
        for (place, address) in items(endpoint, "addresses") {
            if let Some(wrong) = address.as_str().filter(|address| !fits(address)) {
                findings.error_in(
                    &format!(".endpoints[{index}].addresses[{place}]"),
                    address,
                    format!("`{wrong}` is not of addressType {kind}"),
                );
            }
        }
    }
}

/// Of a Pod's spec the ports of its containers are read, for Services that refer to them by name.
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

/// The status of a Pod is read, unlike that of other kinds.
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
    for entry in node.entries() {
        if entry.key.len() > 253
            || !DATA_KEY.matches(&entry.key)
            || entry.key == "."
            || entry.key.starts_with("..")
        {
            findings.error_in(
                &format!("[{}]", entry.key),
                &entry.node,
                format!("the key is not {}", DATA_KEY.description),
            );
        }
    }
}

/// A Secret for TLS holds a certificate and its key.
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
                format!("type kubernetes.io/tls needs `{key}`"),
            );
        }
    }
}
