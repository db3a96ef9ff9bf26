//! Dataplane.

use super::super::rules::{items, text};
use super::super::{
    Report, Schema, any, boolean, integer, list, map, object, one_of, open_object, string,
};
use super::tags::{PROTOCOLS, is_map, key, names_a_service, tags};
use super::text::{
    ADDRESS, LISTEN_ADDRESS, NAME, NO_OUTBOUND_KIND, OUTBOUND_KIND, SERVICE_ADDRESS,
};
use crate::document::{Node, Value};
use crate::kuma::{PROTOCOL_TAG, SERVICE_TAG};

/// The spec of a Dataplane.
pub(super) fn dataplane() -> Schema {
    let gateway = object()
        .field("type", one_of(&["DELEGATED", "BUILTIN"]))
        .field("tags", tags().rule(protocol_of_gateway))
        .rule(names_a_service("tags"));
    let address = string().like(&ADDRESS).said("address can't be empty");
    let networking = object()
        .required("address", address)
        .field("advertisedAddress", string().like(&ADDRESS))
        .field("gateway", gateway)
        .field("inbound", list(inbound()))
        .field("outbound", list(outbound()))
        .field("transparentProxying", any())
        .field("admin", any())
        .rule(sidecar_or_gateway)
        .rule(another_address);
    object()
        .required("networking", networking.said("must be defined"))
        .field("metrics", any())
        .field("probes", any())
        .field("envoy", any())
        .rule(no_probes)
}

fn port() -> Schema {
    integer(1..=65535).said("port must be in the range [1, 65535]")
}

fn inbound() -> Schema {
    object()
        .field("name", string())
        .required("port", port())
        .field("address", string().like(&LISTEN_ADDRESS))
        .field("servicePort", port())
        .field("serviceAddress", string().like(&SERVICE_ADDRESS))
        .field("tags", tags().rule(protocol))
        .field("protocol", string())
        .field("health", open_object().field("ready", boolean()))
        .field("serviceProbe", any())
        .field("state", one_of(&["Ready", "NotReady", "Ignored"]))
        .rule(service_tag)
}

fn outbound() -> Schema {
    let kind = string().like(&OUTBOUND_KIND).said(NO_OUTBOUND_KIND);
    let backend = object()
        .required("kind", kind)
        .field("name", string().like(&NAME))
        .field("labels", map(string()))
        .field("port", port())
        .rule(named_or_labelled)
        .rule(port_needed);
    object()
        .field("address", string().like(&LISTEN_ADDRESS))
        .required("port", port())
        .field("tags", tags())
        .field("service", string())
        .field("backendRef", backend)
        .rule(destination)
        .rule(one_destination)
}

/// Tags name the service of an inbound.
fn service_tag(node: &Node, report: &mut Report<'_>) {
    let tags = node.get("tags");
    if tags.is_none_or(|tags| is_map(tags) && tags.get(SERVICE_TAG).is_none()) {
        let part = format!(".tags{}", key(SERVICE_TAG));
        report.error_in(&part, tags.unwrap_or(node), "tag has to exist");
    }
}

fn protocol(node: &Node, report: &mut Report<'_>) {
    let Some(tag) = node.get(PROTOCOL_TAG) else {
        return;
    };
    let unknown = |value: &&str| !PROTOCOLS.contains(&value.to_ascii_lowercase().as_str());
    if let Some(value) = tag.as_str().filter(unknown) {
        let allowed = PROTOCOLS.join(", ");
        let says = format!(
            "tag \"{PROTOCOL_TAG}\" has an invalid value \"{value}\". Allowed values: {allowed}"
        );
        report.error_in(&key(PROTOCOL_TAG), tag, says);
    }
}

fn protocol_of_gateway(node: &Node, report: &mut Report<'_>) {
    let Some(tag) = node.get(PROTOCOL_TAG) else {
        return;
    };
    if let Some(value) = tag.as_str().filter(|value| !matches!(*value, "" | "tcp")) {
        let says = format!("other values than tcp are not allowed, provided value \"{value}\"");
        report.error_in(&key(PROTOCOL_TAG), tag, says);
    }
}

fn is_builtin(networking: &Node) -> bool {
    let gateway = networking.get("gateway");
    gateway.and_then(|gateway| text(gateway, "type")) == Some("BUILTIN")
}

/// A sidecar has inbounds. A gateway has none, and a builtin one, whose ports its MeshGateway says, no outbounds either.
fn sidecar_or_gateway(node: &Node, report: &mut Report<'_>) {
    let some = |field| node.get(field).filter(|list| !list.items().is_empty());
    let kind = match node.get("gateway") {
        Some(_) if is_builtin(node) => "builtin",
        Some(_) => "delegated",
        None => {
            let inbound = node.get("inbound");
            if inbound
                .is_none_or(|list| matches!(&list.value, Value::List(items) if items.is_empty()))
            {
                report.error(
                    node,
                    "has to contain at least one inbound interface or gateway",
                );
            }
            return;
        }
    };
    if let Some(inbound) = some("inbound") {
        let says = format!("inbound cannot be defined for {kind} gateways");
        report.error_in(".inbound", inbound, says);
    }
    if let Some(outbound) = some("outbound").filter(|_| kind == "builtin") {
        report.error_in(
            ".outbound",
            outbound,
            "outbound cannot be defined for builtin gateways",
        );
    }
}

fn no_probes(node: &Node, report: &mut Report<'_>) {
    if let (Some(probes), Some(networking)) = (node.get("probes"), node.get("networking"))
        && is_builtin(networking)
    {
        report.error_in(
            ".probes",
            probes,
            "probes cannot be defined for builtin gateways",
        );
    }
}

/// An inbound that leads to itself would go round for ever.
fn another_address(node: &Node, report: &mut Report<'_>) {
    for (index, inbound) in items(node, "inbound") {
        let own = text(inbound, "address").or(text(node, "address"));
        let number = |field| inbound.get(field).and_then(Node::as_int);
        let same_port = number("servicePort").is_none_or(|port| Some(port) == number("port"));
        if let Some(service) = inbound.get("serviceAddress")
            && service.as_str().is_some()
            && service.as_str() == own
            && same_port
        {
            report.error_in(
                &format!(".inbound[{index}].serviceAddress"),
                service,
                "serviceAddress and servicePort has to differ from address and port",
            );
        }
    }
}

fn named_or_labelled(node: &Node, report: &mut Report<'_>) {
    let set = |field| {
        node.get(field)
            .is_some_and(|value| value.as_str() != Some(""))
    };
    if !set("name") && !set("labels") {
        report.error(node, "either 'name' or 'labels' should be specified");
    }
}

/// A MeshExternalService has one port only.
fn port_needed(node: &Node, report: &mut Report<'_>) {
    let one = text(node, "kind") == Some("MeshExternalService");
    if node.get("port").is_none() && !one {
        report.error_in(".port", node, "port must be in the range [1, 65535]");
    }
}

fn destination(node: &Node, report: &mut Report<'_>) {
    if node.get("backendRef").is_none() && node.get("service").is_none() {
        names_a_service("tags")(node, report);
    }
}

fn one_destination(node: &Node, report: &mut Report<'_>) {
    let tags = node
        .get("tags")
        .is_some_and(|tags| !tags.entries().is_empty());
    if let Some(backend) = node.get("backendRef")
        && (tags || node.get("service").is_some())
    {
        let says = "both backendRef and tags/service cannot be defined";
        report.error_in(".backendRef", backend, says);
    }
}
