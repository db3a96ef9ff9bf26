//! Pointsman's GatewayParameters, which configure the proxies of a Gateway on Kubernetes and the Service in front of them.
//! A GatewayClass and a Gateway may each reference one. The two are merged as JSON before they are deserialized, so that the merge covers every field.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::meta::{Meta, null_as_default};

/// Parameters of the objects that are generated for Gateways.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct GatewayParameters {
    /// Metadata of the object.
    pub metadata: Meta,
    /// The spec as JSON, valid as a [`GatewayParametersSpec`].
    #[serde(default)]
    pub spec: Value,
}

/// The spec of [`GatewayParameters`], merged from those of the class and of the Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayParametersSpec {
    /// Kind of the object that runs the proxies.
    pub workload: Workload,
    /// Number of proxies of a Deployment without autoscaling.
    pub replicas: Option<u32>,
    /// Autoscaling of a Deployment.
    pub autoscaling: Option<Autoscaling>,
    /// The Service in front of the proxies.
    #[serde(deserialize_with = "null_as_default")]
    pub service: ServiceParameters,
    /// The Pods of the proxies.
    #[serde(deserialize_with = "null_as_default")]
    pub pod: PodParameters,
    /// Options of the proxies.
    #[serde(deserialize_with = "null_as_default")]
    pub proxy: ProxyParameters,
    /// Patches of the generated objects.
    #[serde(deserialize_with = "null_as_default")]
    pub patches: ObjectPatches,
}

/// Kind of the object that runs the proxies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Workload {
    /// A number of proxies.
    #[default]
    Deployment,
    /// One proxy on each selected node.
    DaemonSet,
}

/// Settings of a HorizontalPodAutoscaler.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Autoscaling {
    /// Defaults to 2.
    pub min_replicas: Option<u32>,
    /// Largest number of proxies.
    pub max_replicas: u32,
    /// Average use of the requested CPU time in percent at which proxies are added; defaults to 70.
    #[serde(rename = "targetCPUUtilizationPercentage")]
    pub target_cpu: Option<u32>,
}

/// The Service in front of the proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceParameters {
    /// Type of the Service.
    #[serde(rename = "type")]
    pub kind: GatewayServiceType,
    /// Annotations of the Service only, such as those for a cloud's load balancers.
    #[serde(deserialize_with = "null_as_default")]
    pub annotations: BTreeMap<String, String>,
    /// Implementation of the load balancer.
    pub load_balancer_class: Option<String>,
    /// Ranges of client addresses that the load balancer admits; all if unset.
    pub load_balancer_source_ranges: Option<Vec<String>>,
    /// `Local` keeps the addresses of clients, and sends them to proxies of the same node only.
    pub external_traffic_policy: Option<String>,
}

/// Type of the Service of a Gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[allow(missing_docs, reason = "each variant is the type of that name")]
pub enum GatewayServiceType {
    #[default]
    LoadBalancer,
    NodePort,
    ClusterIP,
}

/// The Pods of the proxies. Fields that are JSON have the form that they have in a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodParameters {
    /// Image that replaces the one of the installation.
    pub image: Option<String>,
    /// `imagePullPolicy` of the proxies.
    pub image_pull_policy: Option<String>,
    /// Secrets with credentials for the image's registry, in the Gateway's namespace.
    pub image_pull_secrets: Option<Vec<Value>>,
    /// Requested and allowed CPU time and memory of a proxy.
    pub resources: Option<Value>,
    /// Labels of nodes that proxies may run on.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Affinity to nodes and Pods.
    pub affinity: Option<Value>,
    /// Taints of nodes that proxies tolerate.
    pub tolerations: Option<Vec<Value>>,
    /// Distribution of proxies; by default over nodes and zones, as far as possible.
    pub topology_spread_constraints: Option<Vec<Value>>,
    /// Priority of the Pods.
    pub priority_class_name: Option<String>,
}

/// Options of the proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyParameters {
    /// Log level, in the syntax of `RUST_LOG`.
    pub log_level: Option<String>,
    /// Format of the access log on standard output.
    pub access_log: AccessLog,
    /// Limits by name.
    #[serde(deserialize_with = "null_as_default")]
    pub limits: BTreeMap<String, String>,
    /// Ranges of client addresses whose X-Forwarded-* headers are trusted.
    pub trusted_proxies: Option<Vec<String>>,
    /// Ranges of load balancers whose connections begin with a PROXY protocol header.
    pub proxy_protocol: Option<Vec<String>>,
    /// Time for which a terminating proxy still accepts connections; defaults to `5s`.
    pub drain_delay: Option<String>,
    /// Time for which a terminating proxy finishes its requests afterwards; defaults to `30s`.
    pub drain: Option<String>,
    /// Oldest version of TLS that listeners accept: `1.2` or `1.3`.
    #[serde(rename = "minTLSVersion")]
    pub min_tls_version: Option<String>,
}

/// Format of an access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum AccessLog {
    /// No access log.
    #[default]
    Off,
    /// One line of text for each request.
    Text,
    /// One line of JSON for each request.
    #[serde(rename = "JSON")]
    Json,
}

/// Patches of the generated objects, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "each field is the kind of that name")]
pub struct ObjectPatches {
    pub deployment: Option<Value>,
    pub daemon_set: Option<Value>,
    pub service: Option<Value>,
    pub service_account: Option<Value>,
    pub pod_disruption_budget: Option<Value>,
    pub horizontal_pod_autoscaler: Option<Value>,
}

/// The merged parameters contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParametersError {
    /// A field has no effect.
    #[error("{field} requires {requirement}")]
    Requires {
        /// Path of the field.
        field: &'static str,
        /// Field and value with which it has an effect.
        requirement: &'static str,
    },
    /// A field has the wrong type.
    #[error("{0}")]
    Type(String),
}

impl GatewayParametersSpec {
    /// Merges the parameters of a class with those of a Gateway, which take precedence field by field; lists are replaced as a whole.
    /// If a Gateway chooses another workload, scaling or type of Service, settings of the class that apply only to the class's choice are dropped.
    pub fn merge(
        class: Option<&GatewayParameters>,
        gateway: Option<&GatewayParameters>,
    ) -> Result<Self, ParametersError> {
        let mut merged = Value::Object(Map::new());
        if let Some(class) = class {
            merge_patch(&mut merged, &class.spec, Nulls::Remove);
        }
        if let Some(gateway) = gateway {
            drop_alternatives(&mut merged, &gateway.spec);
            merge_patch(&mut merged, &gateway.spec, Nulls::Remove);
        }
        let spec: Self =
            serde_json::from_value(merged).map_err(|e| ParametersError::Type(e.to_string()))?;
        spec.check()?;
        Ok(spec)
    }

    /// Checks that every field has an effect.
    fn check(&self) -> Result<(), ParametersError> {
        let service = &self.service;
        let is = |kind| service.kind == kind;
        let is_deployment = self.workload == Workload::Deployment;
        let rules = [
            (
                self.replicas.is_some() && !is_deployment,
                "replicas",
                "workload Deployment",
            ),
            (
                self.autoscaling.is_some() && !is_deployment,
                "autoscaling",
                "workload Deployment",
            ),
            (
                self.replicas.is_some() && self.autoscaling.is_some(),
                "replicas",
                "that autoscaling is not set",
            ),
            (
                service.load_balancer_class.is_some() && !is(GatewayServiceType::LoadBalancer),
                "service.loadBalancerClass",
                "service.type LoadBalancer",
            ),
            (
                service.load_balancer_source_ranges.is_some()
                    && !is(GatewayServiceType::LoadBalancer),
                "service.loadBalancerSourceRanges",
                "service.type LoadBalancer",
            ),
            (
                service.external_traffic_policy.is_some() && is(GatewayServiceType::ClusterIP),
                "service.externalTrafficPolicy",
                "service.type LoadBalancer or NodePort",
            ),
        ];
        match rules.into_iter().find(|(is_broken, ..)| *is_broken) {
            Some((_, field, requirement)) => Err(ParametersError::Requires { field, requirement }),
            None => Ok(()),
        }
    }
}

/// Removes settings of a class that apply only to an alternative which the Gateway has not chosen.
fn drop_alternatives(class: &mut Value, gateway: &Value) {
    let mut remove = |path: &str, field: &str| {
        if let Some(Value::Object(map)) = class.pointer_mut(path) {
            map.remove(field);
        }
    };
    let is_daemon_set = gateway["workload"] == "DaemonSet";
    if is_daemon_set || !gateway["autoscaling"].is_null() {
        remove("", "replicas");
    }
    if is_daemon_set || !gateway["replicas"].is_null() {
        remove("", "autoscaling");
    }
    let kind = gateway["service"]["type"].as_str();
    if kind.is_some_and(|kind| kind != "LoadBalancer") {
        remove("/service", "loadBalancerClass");
        remove("/service", "loadBalancerSourceRanges");
    }
    if kind == Some("ClusterIP") {
        remove("/service", "externalTrafficPolicy");
    }
}

/// Meaning of a null in a patch.
#[derive(Clone, Copy)]
enum Nulls {
    /// It removes the field.
    Remove,
    /// It is kept, because the result is also a patch.
    Keep,
}

/// Applies a JSON merge patch (RFC 7386).
fn merge_patch(target: &mut Value, patch: &Value, nulls: Nulls) {
    let Value::Object(patch) = patch else {
        if !patch.is_null() {
            *target = patch.clone();
        }
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else {
        return;
    };
    for (key, value) in patch {
        match value {
            Value::Null if matches!(nulls, Nulls::Remove) => drop(target.remove(key)),
            Value::Object(_) => {
                let nulls = if key == "patches" { Nulls::Keep } else { nulls };
                merge_patch(
                    target.entry(key.as_str()).or_insert(Value::Null),
                    value,
                    nulls,
                );
            }
            value => drop(target.insert(key.clone(), value.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parameters(spec: Value) -> GatewayParameters {
        let object = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec});
        serde_json::from_value(object).expect("it is valid")
    }

    fn merged(class: Value, gateway: Value) -> Result<GatewayParametersSpec, ParametersError> {
        GatewayParametersSpec::merge(Some(&parameters(class)), Some(&parameters(gateway)))
    }

    // "Gateway's wins over the class's, field by field"
    #[test]
    fn parameters_of_a_gateway_take_precedence_field_by_field() {
        let class = json!({
            "replicas": 3,
            "service": {"type": "NodePort", "annotations": {"a": "class", "b": "class"}},
            "pod": {"tolerations": [{"key": "a"}, {"key": "b"}], "image": "class"},
        });
        let gateway = json!({
            "service": {"annotations": {"b": "gateway"}},
            "pod": {"tolerations": [{"key": "c"}]},
        });
        let merged = merged(class, gateway).expect("it is valid");
        assert_eq!(merged.replicas, Some(3));
        assert_eq!(merged.service.kind, GatewayServiceType::NodePort);
        assert_eq!(merged.service.annotations["a"], "class");
        assert_eq!(merged.service.annotations["b"], "gateway");
        assert_eq!(merged.pod.tolerations, Some(vec![json!({"key": "c"})]));
        assert_eq!(merged.pod.image.as_deref(), Some("class"));
    }

    #[test]
    fn a_gateways_choice_drops_what_the_class_sets_for_another_one() {
        let class = json!({"replicas": 3, "service": {"loadBalancerClass": "c", "externalTrafficPolicy": "Local"}});
        let both = |gateway| merged(class.clone(), gateway).expect("it is valid");
        let scaled = both(json!({"autoscaling": {"maxReplicas": 5}}));
        assert_eq!(
            (scaled.replicas, scaled.autoscaling.is_some()),
            (None, true)
        );
        assert_eq!(both(json!({"workload": "DaemonSet"})).replicas, None);
        let internal = both(json!({"service": {"type": "ClusterIP"}}));
        assert_eq!(internal.service.load_balancer_class, None);
        assert_eq!(internal.service.external_traffic_policy, None);
    }

    #[test]
    fn merged_parameters_without_effect_are_errors() {
        let class = json!({"service": {"type": "ClusterIP"}});
        let gateway = json!({"service": {"loadBalancerClass": "c"}});
        let error = merged(class, gateway).expect_err("it has no effect");
        assert_eq!(
            error.to_string(),
            "service.loadBalancerClass requires service.type LoadBalancer"
        );
        let class = json!({"workload": "DaemonSet"});
        assert!(merged(class, json!({"replicas": 2})).is_err());
    }

    #[test]
    fn no_parameters_are_the_defaults() {
        let none = GatewayParametersSpec::merge(None, None);
        assert_eq!(none, Ok(GatewayParametersSpec::default()));
    }
}
