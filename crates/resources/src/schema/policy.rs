//! Schemas of ReferenceGrant, BackendTLSPolicy, XBackend, XBackendTrafficPolicy and MeshSettings.

use serde_json::json;

use super::gateway::mesh_namespaces;
use super::patterns::LABEL_VALUE;
use super::rules::{duration_in, only_with, qualified_keys, required_with, text, union};
use super::shared::{
    backend_validation, distinct, duration, group, kind, local_reference, namespace, object_name,
    options, port, precise_hostname, secret_reference, section_name, session_persistence,
};
use super::{Findings, Schema, integer, list, map, object, one_of, string};
use crate::document::Node;

/// One hour in milliseconds.
const HOUR: u64 = 3_600_000;

/// Returns the schema of the spec of a ReferenceGrant.
pub(super) fn reference_grant() -> Schema {
    let from = object()
        .required("group", group())
        .required("kind", kind())
        .required("namespace", namespace());
    let to = object()
        .required("group", group())
        .required("kind", kind())
        .field("name", object_name());
    object()
        .required("from", list(from).size(1..=16))
        .required("to", list(to).size(1..=16))
}

/// Returns the schema of the spec of a BackendTLSPolicy.
pub(super) fn backend_tls() -> Schema {
    let targets = list(local_reference().field("sectionName", section_name()))
        .size(1..=16)
        .rule(|node, findings| {
            distinct(node, findings, &["group", "kind", "name"], &["sectionName"])
        });
    object()
        .required("targetRefs", targets)
        .required("validation", backend_validation())
        .field("options", options())
}

/// Returns the schema of the spec of an XBackend.
pub(super) fn backend() -> Schema {
    let labels = map(string().max(63).like(&LABEL_VALUE))
        .size(1..=64)
        .rule(qualified_keys);
    let protocols = &[
        "TCP", "HTTP", "HTTP2", "HTTP11", "H2C", "MCP", "GRPC", "WSS",
    ];
    object()
        .required("type", one_of(&["ExternalHostname", "EndpointSelector"]))
        .field(
            "externalHostname",
            object().required("hostname", precise_hostname().rule(outside_the_cluster)),
        )
        .field("endpointSelector", object().required("matchLabels", labels))
        .required("port", object().field("number", port()).at_least(1))
        .field("protocol", one_of(protocols))
        .field("tls", backend_tls_settings())
        .field("sessionPersistence", session_persistence())
        .rule(union(
            "type",
            &[
                ("ExternalHostname", "externalHostname"),
                ("EndpointSelector", "endpointSelector"),
            ],
        ))
        .rule(tls_of_protocol)
        .rule(only_with(
            "sessionPersistence",
            "type",
            &["EndpointSelector"],
        ))
}

fn backend_tls_settings() -> Schema {
    object()
        .required("mode", one_of(&["None", "ServerOnly", "ClientAndServer"]))
        .field("validation", backend_validation())
        .field("clientCertificateRef", secret_reference())
        .default(json!({"mode": "None"}))
        .rule(required_with(
            "clientCertificateRef",
            "mode",
            &["ClientAndServer"],
        ))
        .rule(only_with(
            "clientCertificateRef",
            "mode",
            &["ClientAndServer"],
        ))
        .rule(required_with(
            "validation",
            "mode",
            &["ServerOnly", "ClientAndServer"],
        ))
        .rule(only_with(
            "validation",
            "mode",
            &["ServerOnly", "ClientAndServer"],
        ))
}

fn tls_of_protocol(node: &Node, findings: &mut Findings<'_>) {
    let (Some(protocol), Some(tls)) = (text(node, "protocol"), node.get("tls")) else {
        return;
    };
    let Some(mode) = text(tls, "mode") else {
        return;
    };
    match (protocol, mode) {
        ("H2C", "ServerOnly" | "ClientAndServer") => findings.error_in(
            ".tls.mode",
            tls,
            "must be None when protocol is H2C; for HTTP/2 with TLS, use protocol HTTP2",
        ),
        ("HTTP2", "None") => {
            findings.error_in(
                ".tls.mode",
                tls,
                "must not be None when protocol is HTTP2; for HTTP/2 without TLS, use protocol H2C",
            );
        }
        ("WSS", "None") => {
            findings.error_in(".tls.mode", tls, "must not be None when protocol is WSS");
        }
        _ => {}
    }
}

fn outside_the_cluster(node: &Node, findings: &mut Findings<'_>) {
    if node
        .as_str()
        .is_some_and(|name| name.ends_with(".cluster.local"))
    {
        findings.error(
            node,
            "must be a hostname outside the cluster, without the suffix `.cluster.local`",
        );
    }
}

/// Returns the schema of the spec of an XBackendTrafficPolicy.
pub(super) fn backend_traffic() -> Schema {
    let budget = object()
        .field("percent", integer(0..=100).default(json!(20)))
        .field(
            "interval",
            duration()
                .default(json!("10s"))
                .rule(duration_in(1_000, HOUR, "between 1s and 1h")),
        )
        .default(json!({"percent": 20, "interval": "10s"}));
    let rate = object()
        .field("count", integer(1..=1_000_000))
        .field(
            "interval",
            duration().rule(duration_in(1, HOUR, "greater than 0s and at most 1h")),
        )
        .default(json!({"count": 10, "interval": "1s"}));
    object()
        .required(
            "targetRefs",
            list(local_reference())
                .size(1..=16)
                .keyed(&["group", "kind", "name"]),
        )
        .field(
            "retryConstraint",
            object().field("budget", budget).field("minRetryRate", rate),
        )
        .field("sessionPersistence", session_persistence())
}

/// Returns the schema of the spec of MeshSettings.
pub(super) fn mesh_settings() -> Schema {
    let scope = || object().field("namespaces", mesh_namespaces());
    object()
        .field(
            "allowedRoutes",
            object()
                .field("producers", scope())
                .field("consumers", scope()),
        )
        .field(
            "binding",
            one_of(&["Merge", "Strict"]).default(json!("Merge")),
        )
        .field(
            "referenceGrants",
            one_of(&["Ignored", "Required"]).default(json!("Ignored")),
        )
}
