//! Objects for the Prometheus operator and for Grafana.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{NAME, labels, metadata};
use crate::cli::Install;

/// Dashboard for Grafana.
const DASHBOARD: &str = include_str!("../../../../deploy/grafana/pointsman.json");
/// API version of the Prometheus operator's kinds.
const OPERATOR: &str = "monitoring.coreos.com/v1";

/// Returns the objects that the arguments ask for.
pub fn objects(arguments: &Install) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    if arguments.service_monitor {
        objects.push(json!({
            "apiVersion": OPERATOR,
            "kind": "ServiceMonitor",
            "metadata": metadata(arguments, NAME),
            "spec": {
                "selector": {"matchLabels": labels()},
                "endpoints": [{"port": "metrics", "path": "/metrics"}],
            },
        }));
        objects.push(json!({
            "apiVersion": OPERATOR,
            "kind": "PodMonitor",
            "metadata": metadata(arguments, "pointsman-proxies"),
            "spec": {
                "namespaceSelector": namespace_selector(arguments),
                "selector": {"matchExpressions": [
                    {"key": "gateway.networking.k8s.io/gateway-name", "operator": "Exists"},
                    {"key": "app.kubernetes.io/managed-by", "operator": "In", "values": ["pointsman"]},
                ]},
                "podMetricsEndpoints": [{"port": "probes", "path": "/metrics"}],
            },
        }));
    }
    if arguments.grafana_dashboard {
        serde_json::from_str::<Value>(DASHBOARD).context("the dashboard")?;
        let mut metadata = metadata(arguments, "pointsman-dashboard");
        // The label that Grafana's sidecar looks for.
        metadata["labels"]["grafana_dashboard"] = "1".into();
        objects.push(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {"pointsman.json": DASHBOARD},
        }));
    }
    Ok(objects)
}

fn namespace_selector(arguments: &Install) -> Value {
    match arguments.watch_namespaces.is_empty() {
        true => json!({"any": true}),
        false => json!({"matchNames": arguments.watch_namespaces}),
    }
}
