//! MeshGateway and MeshGatewayInstance.

use std::collections::BTreeSet;

use super::super::patterns::BASE64;
use super::super::rules::{items, text};
use super::super::{
    Findings, Schema, any, boolean, integer, list, object, one_of, open_object, string,
};
use super::filters::exactly_one;
use super::patterns::SERVED_HOSTNAME;
use super::tags::{is_map, listener_tags, names_a_service, selector, selects_something, tags};
use crate::document::{Node, Value};

/// Where a certificate comes from.
const CERTIFICATES: &[&str] = &["secret", "file", "inline", "inlineString"];

/// The spec of a MeshGateway.
pub(super) fn mesh_gateway() -> Schema {
    let one = object()
        .field("match", selector().rule(selects_something))
        .rule(names_a_service("match"));
    let selectors = list(one)
        .size(1..=usize::MAX)
        .message("must have at least one element");
    let listeners = list(listener())
        .size(1..=usize::MAX)
        .message("cannot be empty")
        .rule(one_protocol)
        .rule(different_hostnames)
        .rule(one_limit)
        .rule(one_audience);
    object()
        .required("selectors", selectors)
        .field("tags", listener_tags())
        .required(
            "conf",
            object()
                .required("listeners", listeners)
                .message("cannot be empty"),
        )
        .rule(one_selector)
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
        .rule(tls_needed)
        .rule(ends_at_the_gateway)
        .rule(mode_needed)
        .rule(certificates)
        .rule(no_tls_of_its_own)
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

/// The TLS of a listener that is not for other meshes: theirs is the mesh's.
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

fn tls_needed(node: &Node, findings: &mut Findings<'_>) {
    let needs = matches!(text(node, "protocol"), Some("HTTPS" | "TLS")) && !is_cross_mesh(node);
    if needs && node.get("tls").is_none() {
        findings.error_in(".tls", node, "cannot be empty");
    }
}

fn ends_at_the_gateway(node: &Node, findings: &mut Findings<'_>) {
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

fn mode_needed(node: &Node, findings: &mut Findings<'_>) {
    if let Some(tls) = own_tls(node).filter(|tls| tls.get("mode").is_none()) {
        findings.error_in(".tls.mode", tls, "cannot be empty");
    }
}

/// One certificate, or one RSA and one ECDSA.
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

fn no_tls_of_its_own(node: &Node, findings: &mut Findings<'_>) {
    let Some(tls) = node.get("tls").filter(|_| is_cross_mesh(node)) else {
        return;
    };
    let certificates = tls.get("certificates");
    if tls.get("mode").is_some() || certificates.is_some_and(|list| !list.items().is_empty()) {
        findings.error_in(".tls", tls, "must be empty with crossMesh");
    }
}

/// A listener for other meshes has one service that they know it by.
fn one_selector(node: &Node, findings: &mut Findings<'_>) {
    let conf = node.get("conf");
    let crosses = conf
        .is_some_and(|conf| items(conf, "listeners").any(|(_, listener)| is_cross_mesh(listener)));
    for (index, selector) in items(node, "selectors").skip(1).filter(|_| crosses) {
        let message = "there can be at most one selector";
        findings.error_in(&format!(".selectors[{index}]"), selector, message);
    }
}

/// Listeners with the port of one of them, itself included.
fn on_port<'n>(listeners: &'n Node, of: &Node) -> impl Iterator<Item = &'n Node> {
    let port = of.get("port").and_then(Node::as_int);
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

fn one_protocol(node: &Node, findings: &mut Findings<'_>) {
    let message = "protocol conflicts with other listeners on this port";
    each_listener(node, findings, "", message, |listener| {
        let protocols: BTreeSet<_> = on_port(node, listener)
            .filter_map(|other| text(other, "protocol"))
            .collect();
        protocols.len() > 1
    });
}

fn different_hostnames(node: &Node, findings: &mut Findings<'_>) {
    // An empty hostname is all, as `*` is; what is no text has its own finding.
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

/// Listeners of one port share its connections; 0 is no limit.
fn one_limit(node: &Node, findings: &mut Findings<'_>) {
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

/// A port is for the proxies of meshes or for everybody.
fn one_audience(node: &Node, findings: &mut Findings<'_>) {
    let message = "conflicting values for this port";
    each_listener(node, findings, ".crossMesh", message, |listener| {
        let audiences: BTreeSet<bool> = on_port(node, listener).map(is_cross_mesh).collect();
        audiences.len() > 1
    });
}

/// The spec of a MeshGatewayInstance: what routing uses of it.
pub(super) fn instance() -> Schema {
    open_object()
        .field("tags", tags())
        .field("replicas", integer(1..=i64::from(i32::MAX)))
        .field(
            "serviceType",
            one_of(&["LoadBalancer", "ClusterIP", "NodePort"]),
        )
}
