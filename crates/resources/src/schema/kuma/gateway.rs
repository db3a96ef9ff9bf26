//! Schemas of MeshGateway and MeshGatewayInstance.

use std::collections::BTreeSet;

use super::super::patterns::BASE64;
use super::super::rules::{items, text};
use super::super::{
    Findings, Schema, any, boolean, integer, list, object, one_of, open_object, string,
};
use super::filters::exactly_one;
use super::patterns::SERVED_HOSTNAME;
use super::tags::{
    is_map, listener_tags, non_empty_selector, selector, service_tag_required, tags,
};
use crate::document::{Node, Value};

/// Sources of a certificate.
const CERTIFICATES: &[&str] = &["secret", "file", "inline", "inlineString"];

/// Returns the schema of the spec of a MeshGateway.
pub(super) fn mesh_gateway() -> Schema {
    let dataplanes = object()
        .field("match", selector().rule(non_empty_selector))
        .rule(service_tag_required("match"));
    let selectors = list(dataplanes)
        .size(1..=usize::MAX)
        .message("must have at least one element");
    let listeners = list(listener())
        .size(1..=usize::MAX)
        .message("cannot be empty")
        .rule(protocol_of_port)
        .rule(hostnames_of_port)
        .rule(limit_of_port)
        .rule(cross_mesh_of_port);
    object()
        .required("selectors", selectors)
        .field("tags", listener_tags())
        .required(
            "conf",
            object()
                .required("listeners", listeners)
                .message("cannot be empty"),
        )
        .rule(selector_of_cross_mesh)
}

fn listener() -> Schema {
    let protocols = &["HTTP", "HTTPS", "TCP", "TLS"];
    object()
        .field("hostname", string().like(&SERVED_HOSTNAME))
        .required(
            "port",
            integer(1..=65535).message("port must be in the range [1, 65535]"),
        )
        .required("protocol", one_of(protocols).message("cannot be empty"))
        .field("tls", tls())
        .field("tags", listener_tags())
        .field("crossMesh", boolean())
        .field(
            "resources",
            object().field("connectionLimit", integer(0..=4_294_967_295)),
        )
        .rule(protocol_of_cross_mesh)
        .rule(tls_required)
        .rule(mode_of_https)
        .rule(mode_required)
        .rule(certificates)
        .rule(tls_of_cross_mesh)
}

fn tls() -> Schema {
    let certificate = object()
        .field("secret", string().size(1..=usize::MAX))
        .field("file", string().size(1..=usize::MAX))
        .field("inline", string().like(&BASE64))
        .field("inlineString", string())
        .rule(exactly_one("certificate", CERTIFICATES));
    object()
        .field("mode", one_of(&["PASSTHROUGH", "TERMINATE"]))
        .field("certificates", list(certificate))
        .field("options", any())
}

fn is_cross_mesh(listener: &Node) -> bool {
    let field = listener.get("crossMesh");
    field.is_some_and(|field| field.value == Value::Bool(true))
}

/// Returns the TLS configuration of a listener. Cross-mesh listeners use the mTLS of the mesh and have none of their own.
fn own_tls(listener: &Node) -> Option<&Node> {
    let tls = listener.get("tls").filter(|tls| is_map(tls))?;
    (!is_cross_mesh(listener)).then_some(tls)
}

fn protocol_of_cross_mesh(node: &Node, findings: &mut Findings<'_>) {
    if let (true, Some("HTTPS")) = (is_cross_mesh(node), text(node, "protocol")) {
        let protocol = node.get("protocol").unwrap_or(node);
        findings.error_in(
            ".protocol",
            protocol,
            "protocol is not supported with crossMesh",
        );
    }
}

fn tls_required(node: &Node, findings: &mut Findings<'_>) {
    let is_required =
        matches!(text(node, "protocol"), Some("HTTPS" | "TLS")) && !is_cross_mesh(node);
    if is_required && node.get("tls").is_none() {
        findings.error_in(".tls", node, "cannot be empty");
    }
}

fn mode_of_https(node: &Node, findings: &mut Findings<'_>) {
    let mode = own_tls(node).and_then(|tls| tls.get("mode"));
    if let (Some("HTTPS"), Some(mode)) = (text(node, "protocol"), mode)
        && mode.as_str() == Some("PASSTHROUGH")
    {
        findings.error_in(
            ".tls.mode",
            mode,
            "mode is not supported on HTTPS listeners",
        );
    }
}

fn mode_required(node: &Node, findings: &mut Findings<'_>) {
    if let Some(tls) = own_tls(node).filter(|tls| tls.get("mode").is_none()) {
        findings.error_in(".tls.mode", tls, "cannot be empty");
    }
}

/// TLS termination requires one or two certificates. Two are for RSA and ECDSA.
fn certificates(node: &Node, findings: &mut Findings<'_>) {
    let Some(tls) = own_tls(node).filter(|tls| text(tls, "mode") == Some("TERMINATE")) else {
        return;
    };
    let certificates = tls.get("certificates");
    let message = match certificates.map(|certificates| &certificates.value) {
        None => "cannot be empty in TLS termination mode",
        Some(Value::List(items)) if items.is_empty() => "cannot be empty in TLS termination mode",
        Some(Value::List(items)) if items.len() > 2 => "cannot have more than 2 certificates",
        _ => return,
    };
    findings.error_in(".tls.certificates", certificates.unwrap_or(tls), message);
}

fn tls_of_cross_mesh(node: &Node, findings: &mut Findings<'_>) {
    let Some(tls) = node.get("tls").filter(|_| is_cross_mesh(node)) else {
        return;
    };
    let certificates = tls.get("certificates");
    if tls.get("mode").is_some() || certificates.is_some_and(|list| !list.items().is_empty()) {
        findings.error_in(".tls", tls, "must be empty with crossMesh");
    }
}

/// A gateway with cross-mesh listeners must have a single selector, whose service other meshes refer to.
fn selector_of_cross_mesh(node: &Node, findings: &mut Findings<'_>) {
    let conf = node.get("conf");
    let has_cross_mesh = conf
        .is_some_and(|conf| items(conf, "listeners").any(|(_, listener)| is_cross_mesh(listener)));
    for (index, selector) in items(node, "selectors").skip(1).filter(|_| has_cross_mesh) {
        let message = "there can be at most one selector";
        findings.error_in(&format!(".selectors[{index}]"), selector, message);
    }
}

/// Iterates over the listeners with the same port as `listener`, including itself.
fn on_port<'n>(listeners: &'n Node, listener: &Node) -> impl Iterator<Item = &'n Node> {
    let port = listener.get("port").and_then(Node::as_int);
    let all = listeners.items().iter();
    all.filter(move |other| port.is_some() && other.get("port").and_then(Node::as_int) == port)
}

fn each_listener(
    node: &Node,
    findings: &mut Findings<'_>,
    part: &str,
    message: &str,
    conflicts: impl Fn(&Node) -> bool,
) {
    for (index, listener) in node.items().iter().enumerate() {
        if conflicts(listener) {
            findings.error_in(&format!("[{index}]{part}"), listener, message);
        }
    }
}

fn protocol_of_port(node: &Node, findings: &mut Findings<'_>) {
    let message = "protocol conflicts with other listeners on this port";
    each_listener(node, findings, "", message, |listener| {
        let protocols: BTreeSet<_> = on_port(node, listener)
            .filter_map(|other| text(other, "protocol"))
            .collect();
        protocols.len() > 1
    });
}

fn hostnames_of_port(node: &Node, findings: &mut Findings<'_>) {
    // An empty hostname matches all hostnames, as `*` does. A hostname of the wrong type is reported separately.
    let hostname = |listener: &Node| match listener.get("hostname") {
        Some(hostname) => {
            let name = hostname.as_str()?;
            Some(if name.is_empty() { "*" } else { name }.to_owned())
        }
        None => Some("*".to_owned()),
    };
    let message = "multiple listeners for hostname on this port";
    each_listener(node, findings, "", message, |listener| {
        let own = hostname(listener);
        let same = |other: &&Node| own.is_some() && hostname(other) == own;
        on_port(node, listener).filter(same).count() > 1
    });
}

/// Listeners on the same port share its connections and must have the same limit. 0 means no limit.
fn limit_of_port(node: &Node, findings: &mut Findings<'_>) {
    let limit = |listener: &Node| {
        let limit = listener.get("resources")?.get("connectionLimit")?;
        limit.as_int().filter(|limit| *limit != 0)
    };
    let (part, message) = (
        ".resources.connectionLimit",
        "conflicting values for this port",
    );
    each_listener(node, findings, part, message, |listener| {
        let limits: BTreeSet<_> = on_port(node, listener).filter_map(limit).collect();
        limit(listener).is_some() && limits.len() > 1
    });
}

/// Cross-mesh and other listeners must not share a port.
fn cross_mesh_of_port(node: &Node, findings: &mut Findings<'_>) {
    let message = "conflicting values for this port";
    each_listener(node, findings, ".crossMesh", message, |listener| {
        let kinds: BTreeSet<bool> = on_port(node, listener).map(is_cross_mesh).collect();
        kinds.len() > 1
    });
}

/// Returns the schema of the spec of a MeshGatewayInstance, reduced to the fields that routing uses.
pub(super) fn instance() -> Schema {
    open_object()
        .field("tags", tags())
        .field("replicas", integer(1..=i64::from(i32::MAX)))
        .field(
            "serviceType",
            one_of(&["LoadBalancer", "ClusterIP", "NodePort"]),
        )
}
