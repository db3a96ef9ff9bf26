//! Schema of GatewayParameters. Fields of Pods are checked by the API server when the generated objects are applied.

use super::patterns::{IMAGE, IP_RANGE, LABEL_VALUE, SUBDOMAIN};
use super::rules::{duration_in, text};
use super::shared::duration;
use super::{Findings, Schema, int32, integer, list, map, object, one_of, open_object, string};
use crate::document::Node;

/// Returns the schema of the spec of GatewayParameters.
pub(super) fn gateway_parameters() -> Schema {
    let autoscaling = object()
        .field("minReplicas", int32(1))
        .required("maxReplicas", int32(1))
        .field("targetCPUUtilizationPercentage", integer(1..=1000))
        .rule(replica_range);
    object()
        .field("workload", one_of(&["Deployment", "DaemonSet"]))
        .field("replicas", int32(0))
        .field("autoscaling", autoscaling)
        .field("service", service())
        .field("pod", pod())
        .field("proxy", proxy())
        .field("patches", patches())
        .rule(scaling)
}

fn service() -> Schema {
    object()
        .field("type", one_of(&["LoadBalancer", "NodePort", "ClusterIP"]))
        .field("annotations", map(string()))
        .field("loadBalancerClass", string().size(1..=317))
        .field("loadBalancerSourceRanges", ranges())
        .field("externalTrafficPolicy", one_of(&["Cluster", "Local"]))
        .rule(service_fields)
}

fn pod() -> Schema {
    let secret = object().required("name", string().size(1..=253).like(&SUBDOMAIN));
    object()
        .field("image", string().size(1..=4096).like(&IMAGE))
        .field(
            "imagePullPolicy",
            one_of(&["Always", "IfNotPresent", "Never"]),
        )
        .field("imagePullSecrets", list(secret).max(16))
        .field("resources", open_object())
        .field("nodeSelector", map(string().max(63).like(&LABEL_VALUE)))
        .field("affinity", open_object())
        .field("tolerations", list(open_object()).max(64))
        .field("topologySpreadConstraints", list(open_object()).max(16))
        .field("priorityClassName", string().size(1..=253).like(&SUBDOMAIN))
}

fn proxy() -> Schema {
    object()
        .field("logLevel", string().size(1..=1024))
        .field("accessLog", one_of(&["Off", "Text", "JSON"]))
        .field("limits", map(string().size(1..=32)).max(64))
        .field("trustedProxies", ranges())
        .field("proxyProtocol", ranges())
        .field("drainDelay", drain_time())
        .field("drain", drain_time())
        .field("minTLSVersion", one_of(&["1.2", "1.3"]))
}

/// Time that a terminating proxy takes at most.
fn drain_time() -> Schema {
    duration().rule(duration_in(0, 3_600_000, "at most 1h"))
}

fn patches() -> Schema {
    object()
        .field("deployment", open_object())
        .field("daemonSet", open_object())
        .field("service", open_object())
        .field("serviceAccount", open_object())
        .field("podDisruptionBudget", open_object())
        .field("horizontalPodAutoscaler", open_object())
}

/// Ranges of IP addresses.
fn ranges() -> Schema {
    list(string().max(43).like(&IP_RANGE)).max(64)
}

fn replica_range(node: &Node, findings: &mut Findings<'_>) {
    let number = |field: &str| node.get(field).and_then(Node::as_int);
    if let (Some(least), Some(most)) = (number("minReplicas"), number("maxReplicas"))
        && least > most
    {
        let message =
            format!("minReplicas ({least}) must not be greater than maxReplicas ({most})");
        findings.error(node, message);
    }
}

fn scaling(node: &Node, findings: &mut Findings<'_>) {
    let is_daemon_set = text(node, "workload") == Some("DaemonSet");
    for field in ["replicas", "autoscaling"] {
        if let Some(set) = node.get(field).filter(|_| is_daemon_set) {
            let message = format!("`{field}` has no effect with workload DaemonSet");
            findings.error_in(&format!(".{field}"), set, message);
        }
    }
    if let (Some(_), Some(set)) = (node.get("autoscaling"), node.get("replicas")) {
        let message = "`replicas` has no effect with autoscaling; set autoscaling.minReplicas";
        findings.error_in(".replicas", set, message);
    }
}

fn service_fields(node: &Node, findings: &mut Findings<'_>) {
    // Without a type here, that of the class counts.
    let Some(kind) = text(node, "type") else {
        return;
    };
    let mut only = |field: &str, kinds: &[&str]| {
        if let Some(set) = node.get(field).filter(|_| !kinds.contains(&kind)) {
            let kinds = kinds.join(" or ");
            let message =
                format!("`{field}` is allowed only when type is {kinds}, but type is {kind}");
            findings.error_in(&format!(".{field}"), set, message);
        }
    };
    only("loadBalancerClass", &["LoadBalancer"]);
    only("loadBalancerSourceRanges", &["LoadBalancer"]);
    only("externalTrafficPolicy", &["LoadBalancer", "NodePort"]);
}
