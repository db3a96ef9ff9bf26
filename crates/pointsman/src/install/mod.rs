//! `install`: prints the manifests of an installation, in the order in which `kubectl apply` needs them.
//!
//! `deploy/helm/pointsman` renders the same objects; a test compares both. Both share the CustomResourceDefinitions of `deploy/crds`, the dashboard of
//! `deploy/grafana`, and the rules of [`rbac`].

mod controller;
mod monitoring;
mod rbac;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use anyhow::{Result, ensure};
use pointsman_resources::to_yaml;
use serde_json::{Value, json};

use crate::cli::Install;
use crate::output;

/// Name of all objects of an installation, which has its own namespace.
const NAME: &str = "pointsman-controller";

/// Pointsman's CustomResourceDefinitions.
const CRDS: [&str; 2] = [
    include_str!("../../../../deploy/crds/pointsman.io_gatewayparameters.yaml"),
    include_str!("../../../../deploy/crds/pointsman.io_meshsettings.yaml"),
];
/// Minimal CustomResourceDefinitions of Kuma's kinds.
const KUMA_CRDS: &str = include_str!("../../../../deploy/kuma-crds/kuma.io.yaml");

/// Runs `install`.
pub fn run(arguments: &Install) -> Result<ExitCode> {
    output::print(&documents(arguments)?.join("---\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the YAML documents of an installation.
fn documents(arguments: &Install) -> Result<Vec<String>> {
    if let Some(parameters) = &arguments.parameters {
        let namespaces = &arguments.watch_namespaces;
        let is_watched = |namespace: &String| **namespace == *parameters.namespace;
        // They could not be read, and no Gateway of the class would be accepted.
        ensure!(
            namespaces.is_empty() || namespaces.iter().any(is_watched),
            "--parameters {parameters}: the namespace is not watched; add --watch-namespace {}",
            parameters.namespace
        );
    }
    let mut documents = Vec::new();
    if !is_shared(&arguments.namespace) {
        documents.push(to_yaml(&namespace(arguments)));
    }
    let crds = CRDS.iter().filter(|_| !arguments.skip_crds).copied();
    let crds = crds.chain(arguments.kuma_crds.then_some(KUMA_CRDS));
    documents.extend(crds.map(str::to_owned));
    let mut objects = rbac::objects(arguments);
    objects.extend(controller::objects(arguments));
    objects.push(gateway_class(arguments));
    objects.extend(monitoring::objects(arguments)?);
    documents.extend(objects.iter().map(to_yaml));
    Ok(documents)
}

/// Returns whether a namespace exists in every cluster. To delete the manifests must not delete it.
fn is_shared(namespace: &str) -> bool {
    namespace == "default" || namespace.starts_with("kube-")
}

fn namespace(arguments: &Install) -> Value {
    let name = &arguments.namespace;
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": {
                "app.kubernetes.io/name": "pointsman",
                "pod-security.kubernetes.io/enforce": "restricted",
            },
        },
    })
}

fn gateway_class(arguments: &Install) -> Value {
    let mut class = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": {"name": arguments.gateway_class, "labels": labels()},
        "spec": {"controllerName": arguments.controller_name},
    });
    if let Some(parameters) = &arguments.parameters {
        class["spec"]["parametersRef"] = json!({
            "group": "pointsman.io",
            "kind": "GatewayParameters",
            "namespace": &*parameters.namespace,
            "name": &*parameters.name,
        });
    }
    class
}

/// Labels of all objects, by which the controller's Pods are selected too.
fn labels() -> Value {
    json!({
        "app.kubernetes.io/name": "pointsman",
        "app.kubernetes.io/component": "controller",
    })
}

/// Returns an object's metadata in the controller's namespace.
fn metadata(arguments: &Install, name: &str) -> Value {
    json!({"name": name, "namespace": arguments.namespace, "labels": labels()})
}
