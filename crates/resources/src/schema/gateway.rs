//! Schemas of GatewayClass, Gateway and ListenerSet.

use serde_json::json;

use super::patterns::{
    ADDRESS_TYPE, CONTROLLER, HOSTNAME, LABEL_KEY, LABEL_VALUE, PROTOCOL, SUBDOMAIN, is_ip,
};
use super::rules::{only_with, text, union};
use super::shared::{
    external_auth, group, hostname, kind, label_selector, local_reference, namespace, namespaces,
    object_name, object_reference, options, port, secret_reference, section_name,
};
use super::{Findings, Schema, list, map, object, one_of, string};
use crate::document::Node;
use crate::meta::{CERTIFICATES_GROUP, GATEWAY_GROUP};

/// Returns the schema of the spec of a GatewayClass, and of an XMesh.
pub(super) fn class() -> Schema {
    object()
        .required("controllerName", string().size(1..=253).like(&CONTROLLER))
        .field("parametersRef", object_reference())
        .field("description", string().max(64))
}

/// Returns the schema of the spec of a Gateway.
pub(super) fn gateway() -> Schema {
    let infrastructure = object()
        .field(
            "labels",
            map(string().max(63).like(&LABEL_VALUE))
                .max(8)
                .rule(label_keys),
        )
        .field(
            "annotations",
            map(string().max(4096)).max(16).rule(label_keys),
        )
        .field("parametersRef", local_reference());
    let allowed = object().field(
        "namespaces",
        namespaces(&["All", "Selector", "Same", "None"], "None"),
    );
    object()
        .required("gatewayClassName", object_name())
        .required(
            "listeners",
            listeners(listener().rule(only_with("filters", "protocol", &["HTTP", "HTTPS"]))),
        )
        .field("addresses", addresses())
        .field("infrastructure", infrastructure)
        .field("allowedListeners", allowed)
        .field("tls", tls())
        .field("defaultScope", one_of(&["All", "None"]))
}

/// Returns the schema of the spec of a ListenerSet.
pub(super) fn listener_set() -> Schema {
    let parent = object()
        .field("group", group().default(json!(GATEWAY_GROUP)))
        .field("kind", kind().default(json!("Gateway")))
        .required("name", object_name())
        .field("namespace", namespace());
    object()
        .required("parentRef", parent)
        .required("listeners", listeners(listener()))
}

fn listeners(listener: Schema) -> Schema {
    list(listener)
        .size(1..=64)
        .keyed(&["name"])
        .rule(unique_listeners)
}

fn listener() -> Schema {
    let kinds = object()
        .field("group", group().default(json!(GATEWAY_GROUP)))
        .required("kind", kind());
    let allowed = object()
        .field(
            "namespaces",
            namespaces(&["All", "Selector", "Same"], "Same"),
        )
        .field("kinds", list(kinds).max(8))
        .default(json!({"namespaces": {"from": "Same"}}));
    let filter = object()
        .required("type", one_of(&["ExternalAuth", "ExtensionRef"]))
        .field("externalAuth", external_auth())
        .field("extensionRef", local_reference())
        .rule(union(
            "type",
            &[
                ("ExternalAuth", "externalAuth"),
                ("ExtensionRef", "extensionRef"),
            ],
        ));
    object()
        .required("name", section_name())
        .field("hostname", hostname())
        .required("port", port())
        .required("protocol", string().size(1..=255).like(&PROTOCOL))
        .field("tls", listener_tls())
        .field("allowedRoutes", allowed)
        .field("filters", object().field("requests", list(filter).max(16)))
        .rule(tls_of_protocol)
        .rule(hostname_of_protocol)
}

fn listener_tls() -> Schema {
    object()
        .field(
            "mode",
            one_of(&["Terminate", "Passthrough"]).default(json!("Terminate")),
        )
        .field("certificateRefs", list(secret_reference()).max(64))
        .field("options", options())
        .rule(certificates_required)
}

fn certificates_required(node: &Node, findings: &mut Findings<'_>) {
    let has = |field| {
        node.get(field)
            .is_some_and(|node| !node.items().is_empty() || !node.entries().is_empty())
    };
    if text(node, "mode") == Some("Terminate") && !has("certificateRefs") && !has("options") {
        findings.error(
            node,
            "`certificateRefs` or `options` is required when mode is Terminate",
        );
    }
}

fn tls_of_protocol(node: &Node, findings: &mut Findings<'_>) {
    let Some(protocol) = text(node, "protocol") else {
        return;
    };
    let tls = node.get("tls");
    match (protocol, tls) {
        ("HTTP" | "TCP" | "UDP", Some(tls)) => {
            findings.error_in(
                ".tls",
                tls,
                format!("`tls` must not be set when protocol is {protocol}"),
            );
        }
        ("TLS", None) => findings.error_in(".tls", node, "`tls` is required when protocol is TLS"),
        ("HTTPS", Some(tls)) if text(tls, "mode") == Some("Passthrough") => {
            let mode = tls.get("mode").unwrap_or(tls);
            findings.error_in(
                ".tls.mode",
                mode,
                "must be Terminate when protocol is HTTPS",
            );
        }
        _ => {}
    }
}

fn hostname_of_protocol(node: &Node, findings: &mut Findings<'_>) {
    if let (Some(protocol @ ("TCP" | "UDP")), Some(name)) =
        (text(node, "protocol"), node.get("hostname"))
    {
        findings.error_in(
            ".hostname",
            name,
            format!("`hostname` must not be set when protocol is {protocol}"),
        );
    }
}

/// The combination of port, protocol and hostname must be unique.
fn unique_listeners(node: &Node, findings: &mut Findings<'_>) {
    let address = |listener: &Node| {
        let port = listener.get("port")?.as_int()?;
        Some((
            port,
            text(listener, "protocol")?.to_owned(),
            text(listener, "hostname").map(str::to_owned),
        ))
    };
    for (index, listener) in node.items().iter().enumerate() {
        let Some(ours) = address(listener) else {
            continue;
        };
        let earlier = node.items()[..index]
            .iter()
            .position(|other| address(other).as_ref() == Some(&ours));
        if let Some(earlier) = earlier {
            findings.error_in(
                &format!("[{index}]"),
                listener,
                format!(
                    "duplicate listener: item {earlier} has the same port, protocol and hostname"
                ),
            );
        }
    }
}

fn addresses() -> Schema {
    let address = object()
        .field(
            "type",
            string()
                .size(1..=253)
                .like(&ADDRESS_TYPE)
                .default(json!("IPAddress")),
        )
        .field("value", string().max(253))
        .field("routability", string().max(253).rule(routability))
        .rule(address_value);
    list(address).max(16).rule(unique_addresses)
}

fn address_value(node: &Node, findings: &mut Findings<'_>) {
    let Some(value) = node.get("value") else {
        return;
    };
    let Some(address) = value.as_str() else {
        return;
    };
    match text(node, "type") {
        Some("IPAddress") if !is_ip(address) && !is_padded_ip(address) => {
            findings.error_in(
                ".value",
                value,
                format!("invalid value `{address}`: must be an IP address when type is IPAddress"),
            );
        }
        Some("Hostname") if !HOSTNAME.matches(address) => {
            findings.error_in(".value", value, HOSTNAME.message(address));
        }
        _ => {}
    }
}

/// Returns whether a text is an IPv4 address with leading zeros, which the API server accepts.
fn is_padded_ip(text: &str) -> bool {
    let number = |part: &str| {
        part.bytes().all(|b| b.is_ascii_digit()) && part.parse::<u64>().is_ok_and(|n| n <= 255)
    };
    text.split('.').count() == 4 && text.split('.').all(number)
}

fn unique_addresses(node: &Node, findings: &mut Findings<'_>) {
    for (index, address) in node.items().iter().enumerate() {
        let (Some(kind @ ("IPAddress" | "Hostname")), Some(value)) =
            (text(address, "type"), text(address, "value"))
        else {
            continue;
        };
        let same = |other: &&Node| {
            text(other, "type") == Some(kind) && text(other, "value") == Some(value)
        };
        if node.items()[..index].iter().any(|other| same(&other)) {
            findings.error_in(
                &format!("[{index}].value"),
                address,
                format!("duplicate {kind} `{value}`"),
            );
        }
    }
}

/// Must be empty, `Cluster`, or an implementation-specific name with a domain prefix outside k8s.io.
fn routability(node: &Node, findings: &mut Findings<'_>) {
    let Some(value) = node.as_str() else { return };
    let is_prefixed = value.split_once('/').is_some_and(|(domain, rest)| {
        let reserved = domain == "k8s.io" || domain.ends_with(".k8s.io");
        !rest.is_empty() && domain.len() <= 253 && SUBDOMAIN.matches(domain) && !reserved
    });
    if !value.is_empty() && value != "Cluster" && !is_prefixed {
        findings.error(
            node,
            format!(
                "invalid value `{value}`: must be `Cluster` or a domain-prefixed name such as `example.com/zone` outside k8s.io"
            ),
        );
    }
}

/// Keys must be label keys whose prefix is shorter than 253 characters.
fn label_keys(node: &Node, findings: &mut Findings<'_>) {
    for entry in node.entries() {
        let prefix = entry.key.split('/').next().unwrap_or_default();
        if !LABEL_KEY.matches(&entry.key) {
            findings.error_in(
                &format!("[{}]", entry.key),
                &entry.node,
                LABEL_KEY.key_message(&entry.key),
            );
        } else if prefix.chars().count() >= 253 {
            findings.error_in(
                &format!("[{}]", entry.key),
                &entry.node,
                "invalid key: the prefix before `/` must have at most 252 characters",
            );
        }
    }
}

fn tls() -> Schema {
    let settings = || object().field("validation", client_validation());
    let per_port = object()
        .required("port", port())
        .required("tls", settings());
    let frontend = object()
        .required("default", settings())
        .field("perPort", list(per_port).max(64).keyed(&["port"]));
    object()
        .field(
            "backend",
            object().field("clientCertificateRef", secret_reference()),
        )
        .field("frontend", frontend)
}

fn client_validation() -> Schema {
    let modes = &["AllowValidOnly", "AllowInsecureFallback"];
    object()
        .required(
            "caCertificateRefs",
            list(object_reference())
                .size(1..=16)
                .rule(bundles_have_no_namespace),
        )
        .field("mode", one_of(modes).default(json!("AllowValidOnly")))
}

fn bundles_have_no_namespace(node: &Node, findings: &mut Findings<'_>) {
    for (index, item) in node.items().iter().enumerate() {
        let bundle = text(item, "group") == Some(CERTIFICATES_GROUP)
            && text(item, "kind") == Some("ClusterTrustBundle");
        if let Some(namespace) = item.get("namespace").filter(|_| bundle) {
            findings.error_in(
                &format!("[{index}].namespace"),
                namespace,
                "`namespace` must not be set: ClusterTrustBundle is cluster-scoped",
            );
        }
    }
}

/// Namespaces whose routes may attach to Services, in [`crate::policy::MeshSettings`].
pub(super) fn mesh_namespaces() -> Schema {
    object()
        .field(
            "from",
            one_of(&["All", "Selector", "None"]).default(json!("All")),
        )
        .field("selector", label_selector())
}
