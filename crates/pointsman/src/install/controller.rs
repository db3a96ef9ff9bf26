//! Deployment, Service and PodDisruptionBudget of the controller.

use std::net::SocketAddr;

use pointsman_kube::identity::tokens::AUDIENCE;
use serde_json::{Value, json};

use super::{NAME, labels, metadata};
use crate::cli::Install;

/// Port of the xDS server.
const XDS_PORT: u16 = 15010;
/// Port of probes and metrics.
const PROBES_PORT: u16 = 15021;
/// Folder of the token by which replicas know each other.
const TOKEN_FOLDER: &str = "/var/run/secrets/pointsman";
/// Lifetime of the token in seconds. The kubelet replaces it before it expires.
const TOKEN_LIFETIME: u32 = 3600;
/// User and group of the image.
const USER: u32 = 65532;

/// Returns the objects.
pub fn objects(arguments: &Install) -> [Value; 3] {
    [
        service(arguments),
        deployment(arguments),
        disruption_budget(arguments),
    ]
}

fn service(arguments: &Install) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(arguments, NAME),
        "spec": {
            "selector": labels(),
            "ports": [
                {"name": "xds", "port": XDS_PORT, "targetPort": "xds"},
                {"name": "metrics", "port": PROBES_PORT, "targetPort": "probes"},
            ],
        },
    })
}

fn disruption_budget(arguments: &Install) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(arguments, NAME),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels()}},
    })
}

fn deployment(arguments: &Install) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(arguments, NAME),
        "spec": {
            "replicas": arguments.replicas,
            "selector": {"matchLabels": labels()},
            // A new Pod serves proxies before an old one terminates.
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": labels()},
                "spec": {
                    "serviceAccountName": NAME,
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": USER,
                        "runAsGroup": USER,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [container(arguments)],
                    "volumes": [{"name": "token", "projected": {"sources": [
                        {"serviceAccountToken": {"audience": AUDIENCE, "expirationSeconds": TOKEN_LIFETIME, "path": "token"}},
                    ]}}],
                    "topologySpreadConstraints": [
                        spread("kubernetes.io/hostname"),
                        spread("topology.kubernetes.io/zone"),
                    ],
                },
            },
        },
    })
}

fn spread(topology_key: &str) -> Value {
    json!({
        "maxSkew": 1,
        "topologyKey": topology_key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels()},
    })
}

fn container(arguments: &Install) -> Value {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let probe = |path: &str, period: u32| json!({"httpGet": {"path": path, "port": "probes"}, "periodSeconds": period});
    json!({
        "name": "controller",
        "image": arguments.image,
        "imagePullPolicy": arguments.image_pull_policy.name(),
        "args": command_line(arguments),
        "env": [
            field("POD_NAME", "metadata.name"),
            field("POD_NAMESPACE", "metadata.namespace"),
            field("POD_IP", "status.podIP"),
            {"name": "RUST_LOG", "value": arguments.log_level},
        ],
        "ports": [
            {"name": "xds", "containerPort": XDS_PORT},
            {"name": "probes", "containerPort": PROBES_PORT},
        ],
        "volumeMounts": [{"name": "token", "mountPath": TOKEN_FOLDER, "readOnly": true}],
        "livenessProbe": probe("/healthz", 10),
        "readinessProbe": probe("/readyz", 5),
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"memory": "512Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
    })
}

fn command_line(arguments: &Install) -> Vec<String> {
    let listen = |port| SocketAddr::new(arguments.bind_address, port);
    let mut line = vec![
        "controller".to_owned(),
        format!("--controller-name={}", arguments.controller_name),
        format!("--xds={}", listen(XDS_PORT)),
        format!("--probes={}", listen(PROBES_PORT)),
        format!("--token={TOKEN_FOLDER}/token"),
        format!("--proxy-image={}", arguments.image),
        format!(
            "--proxy-image-pull-policy={}",
            arguments.image_pull_policy.name()
        ),
    ];
    if !arguments.watch_namespaces.is_empty() {
        line.push(format!("--gateway-class={}", arguments.gateway_class));
        let namespaces = arguments.watch_namespaces.iter();
        line.extend(namespaces.map(|namespace| format!("--watch-namespace={namespace}")));
    }
    line
}
