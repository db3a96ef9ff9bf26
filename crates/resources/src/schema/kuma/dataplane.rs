//! Schema of Dataplane.

use super::super::rules::{items, text};
use super::super::{
    Findings, Schema, any, boolean, integer, list, map, object, one_of, open_object, string,
};
use super::patterns::{
    ADDRESS, LISTEN_ADDRESS, NAME, NO_OUTBOUND_KIND, OUTBOUND_KIND, SERVICE_ADDRESS,
};
use super::tags::{PROTOCOLS, key, service_tag_required, tags};
use crate::document::Node;
use crate::kuma::PROTOCOL_TAG;

/// Returns the schema of the spec of a Dataplane.
pub(super) fn dataplane() -> Schema {
    let gateway = object()
        .field("type", one_of(&["DELEGATED", "BUILTIN"]))
        .field("tags", tags().rule(protocol_of_gateway))
        .rule(service_of_builtin);
    let address = string().like(&ADDRESS).message("address can't be empty");
    let networking = object()
        .required("address", address)
        .field("advertisedAddress", string().like(&ADDRESS))
        .field("gateway", gateway)
        .field("inbound", list(inbound()))
        .field("outbound", list(outbound()))
        .field("transparentProxying", any())
        .field("admin", any())
        .rule(ports_of_gateway)
        .rule(service_address_differs);
    object()
        .required("networking", networking.message("must be defined"))
        .field("metrics", any())
        .field("probes", any())
        .field("envoy", any())
        .rule(no_probes)
}

fn port() -> Schema {
    integer(1..=65535).message("port must be in the range [1, 65535]")
}

fn inbound() -> Schema {
    object()
        .field("name", string())
        .required("port", port())
        .field("address", string().like(&LISTEN_ADDRESS))
        .field("servicePort", port())
        .field("serviceAddress", string().like(&SERVICE_ADDRESS))
        .field("tags", tags().rule(protocol))
        .field("protocol", string().rule(known_protocol))
        .field("health", open_object().field("ready", boolean()))
        .field("serviceProbe", any())
        .field("state", one_of(&["Ready", "NotReady", "Ignored"]))
}

fn outbound() -> Schema {
    let kind = string().like(&OUTBOUND_KIND).message(NO_OUTBOUND_KIND);
    let backend = object()
        .required("kind", kind)
        .field("name", string().like(&NAME))
        .field("labels", map(string()))
        .field("port", port())
        .rule(name_or_labels)
        .rule(port_required);
    object()
        .field("address", string().like(&LISTEN_ADDRESS))
        .required("port", port())
        .field("tags", tags())
        .field("service", string())
        .field("backendRef", backend)
        .rule(destination_required)
        .rule(single_destination)
}

/// A builtin gateway must have a service tag, by which MeshGateways select it.
fn service_of_builtin(gateway: &Node, findings: &mut Findings<'_>) {
    if text(gateway, "type") == Some("BUILTIN") {
        service_tag_required("tags")(gateway, findings);
    }
}

fn is_unknown_protocol(value: &str) -> bool {
    !PROTOCOLS.contains(&value.to_ascii_lowercase().as_str())
}

fn known_protocol(node: &Node, findings: &mut Findings<'_>) {
    if let Some(value) = node.as_str().filter(|value| is_unknown_protocol(value)) {
        let allowed = PROTOCOLS.join(", ");
        let message = format!("invalid value \"{value}\". Allowed values: {allowed}");
        findings.error(node, message);
    }
}

fn protocol(node: &Node, findings: &mut Findings<'_>) {
    let Some(tag) = node.get(PROTOCOL_TAG) else {
        return;
    };
    if let Some(value) = tag.as_str().filter(|value| is_unknown_protocol(value)) {
        let allowed = PROTOCOLS.join(", ");
        let message = format!(
            "tag \"{PROTOCOL_TAG}\" has an invalid value \"{value}\". Allowed values: {allowed}"
        );
        findings.error_in(&key(PROTOCOL_TAG), tag, message);
    }
}

fn protocol_of_gateway(node: &Node, findings: &mut Findings<'_>) {
    let Some(tag) = node.get(PROTOCOL_TAG) else {
        return;
    };
    if let Some(value) = tag.as_str().filter(|value| !matches!(*value, "" | "tcp")) {
        let message = format!("other values than tcp are not allowed, provided value \"{value}\"");
        findings.error_in(&key(PROTOCOL_TAG), tag, message);
    }
}

fn is_builtin(networking: &Node) -> bool {
    let gateway = networking.get("gateway");
    gateway.and_then(|gateway| text(gateway, "type")) == Some("BUILTIN")
}

/// Inbounds are for sidecars only (and optional as of Kuma 3.0). A builtin gateway, whose ports are those of its MeshGateway, must not have
/// outbounds either.
fn ports_of_gateway(node: &Node, findings: &mut Findings<'_>) {
    let non_empty = |field| node.get(field).filter(|list| !list.items().is_empty());
    let kind = match node.get("gateway") {
        Some(_) if is_builtin(node) => "builtin",
        Some(_) => "delegated",
        None => return,
    };
    if let Some(inbound) = non_empty("inbound") {
        let message = format!("inbound cannot be defined for {kind} gateways");
        findings.error_in(".inbound", inbound, message);
    }
    if let Some(outbound) = non_empty("outbound").filter(|_| kind == "builtin") {
        findings.error_in(
            ".outbound",
            outbound,
            "outbound cannot be defined for builtin gateways",
        );
    }
}

fn no_probes(node: &Node, findings: &mut Findings<'_>) {
    if let (Some(probes), Some(networking)) = (node.get("probes"), node.get("networking"))
        && is_builtin(networking)
    {
        findings.error_in(
            ".probes",
            probes,
            "probes cannot be defined for builtin gateways",
        );
    }
}

/// An inbound must not forward to itself, which would be an infinite loop.
fn service_address_differs(node: &Node, findings: &mut Findings<'_>) {
    for (index, inbound) in items(node, "inbound") {
        let own = text(inbound, "address").or(text(node, "address"));
        let number = |field| inbound.get(field).and_then(Node::as_int);
        let same_port = number("servicePort").is_none_or(|port| Some(port) == number("port"));
        if let Some(service) = inbound.get("serviceAddress")
            && service.as_str().is_some()
            && service.as_str() == own
            && same_port
        {
            findings.error_in(
                &format!(".inbound[{index}].serviceAddress"),
                service,
                "serviceAddress and servicePort has to differ from address and port",
            );
        }
    }
}

fn name_or_labels(node: &Node, findings: &mut Findings<'_>) {
    let set = |field| {
        node.get(field)
            .is_some_and(|value| value.as_str() != Some(""))
    };
    if !set("name") && !set("labels") {
        findings.error(node, "either 'name' or 'labels' should be specified");
    }
}

/// The port is required except for a MeshExternalService, which has a single port.
fn port_required(node: &Node, findings: &mut Findings<'_>) {
    let is_external = text(node, "kind") == Some("MeshExternalService");
    if node.get("port").is_none() && !is_external {
        findings.error_in(".port", node, "port must be in the range [1, 65535]");
    }
}

fn destination_required(node: &Node, findings: &mut Findings<'_>) {
    if node.get("backendRef").is_none() && node.get("service").is_none() {
        service_tag_required("tags")(node, findings);
    }
}

fn single_destination(node: &Node, findings: &mut Findings<'_>) {
    let tags = node
        .get("tags")
        .is_some_and(|tags| !tags.entries().is_empty());
    if let Some(backend) = node.get("backendRef")
        && (tags || node.get("service").is_some())
    {
        let message = "both backendRef and tags/service cannot be defined";
        findings.error_in(".backendRef", backend, message);
    }
}
