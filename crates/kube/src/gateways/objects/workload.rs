//! The Deployment or DaemonSet of a Gateway.
//!
//! A rollout loses no request: an old proxy is stopped only once a new one is ready, that is, has its configuration. It keeps accepting connections until load
//! balancers have removed it.

use std::net::SocketAddr;
use std::time::Duration;

use pointsman_binding::bound::duration;
use pointsman_resources::parameters::{AccessLog, Workload};
use serde_json::{Value, json};

use super::{Context, LOW_PORT_OFFSET, PROBES_PORT, REPLICAS};
use crate::identity::tokens::AUDIENCE;

/// User and group of the image.
const USER: u32 = 65532;
/// Default time for which a terminating proxy accepts connections, until EndpointSlices and load balancers no longer contain it.
const DRAIN_DELAY: &str = "5s";
/// Default time for which it finishes its requests afterwards.
const DRAIN: &str = "30s";
/// Time from the end of the drain period to SIGKILL.
const EXIT: Duration = Duration::from_secs(5);
/// Lifetime of a token in seconds; kubelets renew it before.
const TOKEN_LIFETIME: u32 = 3600;

/// Returns the spec.
pub fn spec(context: &Context<'_>) -> Value {
    let mut spec = json!({
        "selector": {"matchLabels": context.selector()},
        "template": {
            "metadata": {"labels": context.labels, "annotations": context.annotations},
            "spec": pod(context),
        },
    });
    // A new proxy serves before an old one ends.
    let rolling =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    match context.parameters.workload {
        Workload::DaemonSet => spec["updateStrategy"] = rolling,
        Workload::Deployment => {
            spec["strategy"] = rolling;
            // With autoscaling, the autoscaler owns the field.
            if context.parameters.autoscaling.is_none() {
                spec["replicas"] = context.parameters.replicas.unwrap_or(REPLICAS).into();
            }
        }
    }
    spec
}

fn pod(context: &Context<'_>) -> Value {
    let parameters = &context.parameters.pod;
    let mut pod = json!({
        "serviceAccountName": context.name,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": grace_period(context),
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container(context)],
        "volumes": [
            {"name": "authority", "configMap": {"name": context.name}},
            {"name": "token", "projected": {"sources": [
                {"serviceAccountToken": {"audience": AUDIENCE, "expirationSeconds": TOKEN_LIFETIME, "path": "token"}},
            ]}},
        ],
        "topologySpreadConstraints": spread(context),
    });
    let mut set = |field: &str, value: Option<Value>| {
        if let Some(value) = value {
            pod[field] = value;
        }
    };
    let secrets = parameters.image_pull_secrets.clone();
    set("imagePullSecrets", secrets.map(Value::from));
    let selector = parameters.node_selector.as_ref();
    set("nodeSelector", selector.map(|selector| json!(selector)));
    set("affinity", parameters.affinity.clone());
    let tolerations = parameters.tolerations.clone();
    set("tolerations", tolerations.map(Value::from));
    let class = parameters.priority_class_name.as_deref();
    set("priorityClassName", class.map(Value::from));
    pod
}

/// Returns how long a terminating proxy accepts connections, and how long it finishes requests afterwards.
fn drain_times<'c>(context: &'c Context<'_>) -> (&'c str, &'c str) {
    let parameters = &context.parameters.proxy;
    (
        parameters.drain_delay.as_deref().unwrap_or(DRAIN_DELAY),
        parameters.drain.as_deref().unwrap_or(DRAIN),
    )
}

/// Returns the time from SIGTERM to SIGKILL in seconds.
fn grace_period(context: &Context<'_>) -> u64 {
    let (drain_delay, drain) = drain_times(context);
    let times = [drain_delay, drain].into_iter().filter_map(duration);
    let total = times.sum::<Duration>() + EXIT;
    total
        .as_millis()
        .div_ceil(1000)
        .try_into()
        .unwrap_or(u64::MAX)
}

/// Returns the topology spread constraints. They select the Pods of this Gateway unless they have a selector.
fn spread(context: &Context<'_>) -> Vec<Value> {
    let default = |topology: &str| json!({"maxSkew": 1, "topologyKey": topology, "whenUnsatisfiable": "ScheduleAnyway"});
    let constraints = context.parameters.pod.topology_spread_constraints.clone();
    let mut constraints = constraints.unwrap_or_else(|| {
        vec![
            default("kubernetes.io/hostname"),
            default("topology.kubernetes.io/zone"),
        ]
    });
    for constraint in &mut constraints {
        if constraint["labelSelector"].is_null() {
            constraint["labelSelector"] = json!({"matchLabels": context.selector()});
        }
    }
    constraints
}

fn container(context: &Context<'_>) -> Value {
    let (settings, parameters) = (context.settings, &context.parameters.pod);
    let image = parameters.image.as_deref().unwrap_or(&settings.image);
    let pull_policy = parameters.image_pull_policy.as_deref();
    let log_level = context.parameters.proxy.log_level.as_deref();
    let resources = parameters.resources.clone();
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let probe = |path: &str, period: u32| json!({"httpGet": {"path": path, "port": "probes"}, "periodSeconds": period});
    json!({
        "name": "proxy",
        "image": image,
        "imagePullPolicy": pull_policy.unwrap_or(&settings.pull_policy),
        "args": command_line(context),
        "env": [
            field("POD_NAME", "metadata.name"),
            field("NODE_NAME", "spec.nodeName"),
            // Kubernetes 1.35 and later copy it from the node; it is empty otherwise.
            field("NODE_ZONE", "metadata.labels['topology.kubernetes.io/zone']"),
            {"name": "RUST_LOG", "value": log_level.unwrap_or("info")},
        ],
        "ports": [{"name": "probes", "containerPort": PROBES_PORT, "protocol": "TCP"}],
        "readinessProbe": probe("/readyz", 2),
        "livenessProbe": probe("/healthz", 10),
        "resources": resources.unwrap_or_else(|| json!({
            "requests": {"cpu": cpu_request(context), "memory": "64Mi"},
            "limits": {"memory": "512Mi"},
        })),
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
        "volumeMounts": [
            {"name": "authority", "mountPath": "/etc/pointsman/authority", "readOnly": true},
            {"name": "token", "mountPath": "/var/run/secrets/pointsman", "readOnly": true},
        ],
    })
}

/// Returns the requested CPU. An idle proxy needs next to none, but autoscaling measures utilization relative to the request, which then has to be realistic.
fn cpu_request(context: &Context<'_>) -> &'static str {
    match context.parameters.autoscaling {
        Some(_) => "500m",
        None => "10m",
    }
}

fn command_line(context: &Context<'_>) -> Vec<String> {
    let settings = context.settings;
    let parameters = &context.parameters.proxy;
    let (drain_delay, drain) = drain_times(context);
    let mut line = vec![
        "proxy".to_owned(),
        format!("--control-plane={}", settings.control_plane),
        "--control-plane-ca=/etc/pointsman/authority/ca.crt".to_owned(),
        "--token=/var/run/secrets/pointsman/token".to_owned(),
        "--name=$(POD_NAME)".to_owned(),
        format!("--gateway={}", context.gateway.gateway),
        "--all-addresses".to_owned(),
        format!("--low-port-offset={LOW_PORT_OFFSET}"),
        format!("--probes={}", SocketAddr::new(settings.probes, PROBES_PORT)),
        format!("--drain-delay={drain_delay}"),
        format!("--drain={drain}"),
    ];
    line.extend(settings.endpoint_flags.iter().cloned());
    match parameters.access_log {
        AccessLog::Off => {}
        AccessLog::Text => line.push("--access-log=text".to_owned()),
        AccessLog::Json => line.push("--access-log=json".to_owned()),
    }
    let limits = parameters.limits.iter();
    line.extend(limits.map(|(name, value)| format!("--limit={name}={value}")));
    let trusted = parameters.trusted_proxies.iter().flatten();
    line.extend(trusted.map(|range| format!("--trusted-proxies={range}")));
    let balancers = parameters.proxy_protocol.iter().flatten();
    line.extend(balancers.map(|range| format!("--proxy-protocol={range}")));
    let version = parameters.min_tls_version.iter();
    line.extend(version.map(|version| format!("--min-tls={version}")));
    line
}
