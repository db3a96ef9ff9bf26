//! The objects of a Gateway, as a pure function of the Gateway, its parameters, the settings of the installation and its certificate authority.

mod patch;
mod service;
#[cfg(test)]
mod tests;
mod workload;

use std::collections::BTreeMap;

use kube::core::{ApiResource, GroupVersionKind};
use pointsman_binding::bound::Infrastructure;
use pointsman_resources::meta::GATEWAY_GROUP;
use pointsman_resources::parameters::{GatewayParametersSpec, Workload};
use serde_json::{Value, json};

use super::{InfrastructureSettings, label_value, object_name};

/// Label with the name of the Gateway (GEP-1762).
pub const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";
/// Label with the name of the GatewayClass (GEP-1762).
pub const GATEWAY_CLASS_NAME: &str = "gateway.networking.k8s.io/gateway-class-name";
/// Label with the name of the program that manages an object.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "pointsman");
/// Annotation with the full name of the Gateway, which a label may have to shorten.
pub const GATEWAY: &str = "pointsman.io/gateway";
/// Annotation with the controller name of the installation.
pub const CONTROLLER_NAME: &str = "pointsman.io/controller-name";

/// Offset from a listener port below 1024 to the port that the proxy binds, which needs no privilege. The result is above the ephemeral ports of common systems.
pub const LOW_PORT_OFFSET: u16 = 64512;
/// Port of probes and metrics.
pub const PROBES_PORT: u16 = 15021;

/// Number of proxies by default: one may be lost without losing traffic.
const REPLICAS: u32 = 2;
/// Average use of CPU time in percent at which proxies are added by default.
const TARGET_CPU: u32 = 70;

/// Kind of a generated object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each variant is the kind of that name")]
pub enum ObjectKind {
    ServiceAccount,
    ConfigMap,
    Deployment,
    DaemonSet,
    Service,
    PodDisruptionBudget,
    HorizontalPodAutoscaler,
}

impl ObjectKind {
    /// All kinds, in the order in which objects are created.
    pub const ALL: [ObjectKind; 7] = [
        ObjectKind::ServiceAccount,
        ObjectKind::ConfigMap,
        ObjectKind::Deployment,
        ObjectKind::DaemonSet,
        ObjectKind::Service,
        ObjectKind::PodDisruptionBudget,
        ObjectKind::HorizontalPodAutoscaler,
    ];

    /// Returns whether objects of the kind run proxies.
    pub fn is_workload(self) -> bool {
        matches!(self, ObjectKind::Deployment | ObjectKind::DaemonSet)
    }

    /// Returns the kind's group, version, name and plural.
    pub fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = match self {
            ObjectKind::ServiceAccount => ("", "v1", "ServiceAccount", "serviceaccounts"),
            ObjectKind::ConfigMap => ("", "v1", "ConfigMap", "configmaps"),
            ObjectKind::Deployment => ("apps", "v1", "Deployment", "deployments"),
            ObjectKind::DaemonSet => ("apps", "v1", "DaemonSet", "daemonsets"),
            ObjectKind::Service => ("", "v1", "Service", "services"),
            ObjectKind::PodDisruptionBudget => (
                "policy",
                "v1",
                "PodDisruptionBudget",
                "poddisruptionbudgets",
            ),
            ObjectKind::HorizontalPodAutoscaler => (
                "autoscaling",
                "v2",
                "HorizontalPodAutoscaler",
                "horizontalpodautoscalers",
            ),
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }
}

/// A generated object. All objects of a Gateway have the same name.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Kind of the object.
    pub kind: ObjectKind,
    /// The object, with all fields that the controller manages and no others.
    pub value: Value,
}

impl Object {
    /// Returns the object's name.
    pub fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }
}

/// Returns the objects of a Gateway, in the order in which they are created. `authority` has the certificates that proxies trust, in PEM.
pub fn generate(
    gateway: &Infrastructure,
    settings: &InfrastructureSettings,
    authority: &str,
) -> Vec<Object> {
    let context = Context::new(gateway, settings);
    let parameters = context.parameters;
    let patches = &parameters.patches;
    let (workload, workload_patch) = match parameters.workload {
        Workload::Deployment => (ObjectKind::Deployment, &patches.deployment),
        Workload::DaemonSet => (ObjectKind::DaemonSet, &patches.daemon_set),
    };
    let mut all = vec![
        context.object(
            ObjectKind::ServiceAccount,
            &patches.service_account,
            // The Pods mount a token of their own, with another audience.
            json!({"automountServiceAccountToken": false}),
        ),
        context.object(
            ObjectKind::ConfigMap,
            &None,
            json!({"data": {"ca.crt": authority}}),
        ),
        context.object(
            workload,
            workload_patch,
            json!({"spec": workload::spec(&context)}),
        ),
        service::service(&context),
    ];
    all.extend(disruption_budget(&context));
    all.extend(autoscaler(&context));
    all
}

/// Returns the limit to the eviction of proxies. Those of a DaemonSet are not evicted when a node is drained, and a limit for them can't be computed.
fn disruption_budget(context: &Context<'_>) -> Option<Object> {
    let is_limited = context.parameters.workload == Workload::Deployment;
    let patch = &context.parameters.patches.pod_disruption_budget;
    let fields = json!({"spec": {
        "maxUnavailable": 1,
        "selector": {"matchLabels": context.selector()},
        // A proxy that does not serve may always be evicted.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }});
    is_limited.then(|| context.object(ObjectKind::PodDisruptionBudget, patch, fields))
}

fn autoscaler(context: &Context<'_>) -> Option<Object> {
    let autoscaling = context.parameters.autoscaling.as_ref()?;
    let least = autoscaling.min_replicas.unwrap_or(REPLICAS);
    let kind = ObjectKind::HorizontalPodAutoscaler;
    let patch = &context.parameters.patches.horizontal_pod_autoscaler;
    Some(context.object(
        kind,
        patch,
        json!({"spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": context.name},
            "minReplicas": least.min(autoscaling.max_replicas),
            "maxReplicas": autoscaling.max_replicas,
            "metrics": [{
                "type": "Resource",
                "resource": {
                    "name": "cpu",
                    "target": {
                        "type": "Utilization",
                        "averageUtilization": autoscaling.target_cpu.unwrap_or(TARGET_CPU),
                    },
                },
            }],
        }}),
    ))
}

/// Data that all objects of a Gateway share.
struct Context<'a> {
    gateway: &'a Infrastructure,
    settings: &'a InfrastructureSettings,
    parameters: &'a GatewayParametersSpec,
    /// Name of all objects.
    name: String,
    labels: BTreeMap<&'a str, String>,
    annotations: BTreeMap<&'a str, String>,
}

impl<'a> Context<'a> {
    fn new(gateway: &'a Infrastructure, settings: &'a InfrastructureSettings) -> Self {
        let owned = |(key, value): (&'a String, &'a String)| (key.as_str(), value.clone());
        let mut labels: BTreeMap<&str, String> = gateway.labels.iter().map(owned).collect();
        // Labels by which objects are selected can't be overridden.
        labels.insert(GATEWAY_NAME, label_value(&gateway.gateway.name));
        labels.insert(GATEWAY_CLASS_NAME, label_value(&gateway.class));
        labels.insert(MANAGED_BY.0, MANAGED_BY.1.to_owned());
        let mut annotations: BTreeMap<&str, String> =
            gateway.annotations.iter().map(owned).collect();
        annotations.insert(GATEWAY, gateway.gateway.name.to_string());
        annotations.insert(CONTROLLER_NAME, settings.controller_name.clone());
        Context {
            gateway,
            settings,
            parameters: &gateway.parameters,
            name: object_name(&gateway.gateway, &gateway.class),
            labels,
            annotations,
        }
    }

    /// Labels by which the Pods are selected. They must never change: the selector of a Deployment is immutable.
    fn selector(&self) -> Value {
        json!({
            GATEWAY_NAME: self.labels[GATEWAY_NAME],
            MANAGED_BY.0: MANAGED_BY.1,
        })
    }

    /// Creates an object from its fields beside `metadata`, and a patch.
    fn object(&self, kind: ObjectKind, patch: &Option<Value>, fields: Value) -> Object {
        let metadata = json!({"labels": self.labels, "annotations": self.annotations});
        self.object_with(kind, patch, fields, metadata)
    }

    /// Like [`object`](Self::object), with labels and annotations of its own.
    fn object_with(
        &self,
        kind: ObjectKind,
        patch: &Option<Value>,
        fields: Value,
        metadata: Value,
    ) -> Object {
        let mut value = fields;
        value["metadata"] = metadata;
        if let Some(patch) = patch {
            patch::merge(&mut value, patch);
        }
        // A patch must not change the identity or the owner of the object.
        let resource = kind.resource();
        value["apiVersion"] = resource.api_version.into();
        value["kind"] = resource.kind.into();
        let metadata = &mut value["metadata"];
        metadata["name"] = self.name.as_str().into();
        metadata["namespace"] = (*self.gateway.gateway.namespace).into();
        metadata["ownerReferences"] = json!([self.owner()]);
        for label in [GATEWAY_NAME, GATEWAY_CLASS_NAME, MANAGED_BY.0] {
            metadata["labels"][label] = self.labels[label].as_str().into();
        }
        for annotation in [GATEWAY, CONTROLLER_NAME] {
            metadata["annotations"][annotation] = self.annotations[annotation].as_str().into();
        }
        Object { kind, value }
    }

    fn owner(&self) -> Value {
        json!({
            "apiVersion": format!("{GATEWAY_GROUP}/v1"),
            "kind": "Gateway",
            "name": &*self.gateway.gateway.name,
            "uid": self.gateway.uid.as_deref().unwrap_or_default(),
            "controller": true,
        })
    }
}

/// Returns the port on which the proxy listens for a listener's port.
pub fn container_port(port: u16) -> u16 {
    match port < 1024 {
        true => port + LOW_PORT_OFFSET,
        false => port,
    }
}
