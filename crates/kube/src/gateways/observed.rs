//! Facts about generated objects on which the status of their Gateway depends, extracted from the objects that watches deliver.

use std::net::IpAddr;

use serde_json::Value;

/// Facts about an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ObjectFacts {
    /// The status of the Gateway does not depend on the object.
    #[default]
    None,
    /// It is a Service.
    Service(ServiceFacts),
    /// It is a Deployment or DaemonSet.
    Workload(WorkloadFacts),
}

/// Facts about a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceFacts {
    /// Type of the Service.
    pub kind: String,
    /// Types and values of addresses that the load balancer has assigned.
    pub ingress: Vec<(String, String)>,
    /// Addresses within the cluster.
    pub cluster_ips: Vec<String>,
    /// Further addresses of the Service.
    pub external_ips: Vec<String>,
}

/// Facts about a Deployment or DaemonSet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkloadFacts {
    /// Reason why Pods can't be created.
    pub failure: Option<String>,
    /// True if there are Pods, and all are ready.
    pub is_ready: bool,
}

/// Facts about a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// True if it serves traffic.
    pub is_ready: bool,
    /// True if it is being deleted or has terminated.
    pub is_ending: bool,
    /// Addresses of its node.
    pub host_ips: Vec<String>,
    /// Reason why it is not ready.
    pub waits_for: Option<String>,
}

impl ServiceFacts {
    /// Reads a Service.
    pub fn read(object: &Value) -> Self {
        let ingress = items(&object["status"]["loadBalancer"]["ingress"]);
        let ingress = ingress.filter_map(|item| {
            let ip = text(&item["ip"]).map(ip_address);
            ip.or_else(|| Some(("Hostname".to_owned(), text(&item["hostname"])?)))
        });
        let spec = &object["spec"];
        ServiceFacts {
            kind: text(&spec["type"]).unwrap_or_default(),
            ingress: ingress.collect(),
            cluster_ips: items(&spec["clusterIPs"]).filter_map(text).collect(),
            external_ips: items(&spec["externalIPs"]).filter_map(text).collect(),
        }
    }
}

impl WorkloadFacts {
    /// Reads a Deployment or DaemonSet.
    pub fn read(object: &Value) -> Self {
        let mut conditions = items(&object["status"]["conditions"]);
        let failure =
            conditions.find(|one| one["type"] == "ReplicaFailure" && one["status"] == "True");
        let (spec, status) = (&object["spec"], &object["status"]);
        let number = |deployment: &Value, daemon_set: &Value| {
            let number = deployment.as_u64().or(daemon_set.as_u64());
            number.unwrap_or_default()
        };
        let desired = number(&spec["replicas"], &status["desiredNumberScheduled"]);
        let ready = number(&status["readyReplicas"], &status["numberReady"]);
        WorkloadFacts {
            is_ready: desired > 0 && ready >= desired,
            failure: failure.and_then(|condition| text(&condition["message"])),
        }
    }
}

impl PodFacts {
    /// Reads a Pod.
    pub fn read(object: &Value) -> Self {
        let status = &object["status"];
        let condition = |kind: &str| items(&status["conditions"]).find(|one| one["type"] == kind);
        let is_ready = condition("Ready").is_some_and(|ready| ready["status"] == "True");
        let phase = status["phase"].as_str().unwrap_or_default();
        let unscheduled = condition("PodScheduled").filter(|one| one["status"] == "False");
        let mut containers = items(&status["containerStatuses"]);
        let waiting = containers.find_map(|container| {
            let waiting = &container["state"]["waiting"];
            // Every Pod passes through these states, so they are not reported.
            let reason = text(&waiting["reason"])
                .filter(|reason| !matches!(&**reason, "ContainerCreating" | "PodInitializing"))?;
            Some(match text(&waiting["message"]) {
                Some(message) => format!("{reason}: {message}"),
                None => reason,
            })
        });
        let host_ips = items(&status["hostIPs"]).filter_map(|one| text(&one["ip"]));
        PodFacts {
            is_ready,
            is_ending: !object["metadata"]["deletionTimestamp"].is_null()
                || matches!(phase, "Succeeded" | "Failed"),
            host_ips: host_ips.collect(),
            waits_for: unscheduled
                .and_then(|one| text(&one["message"]))
                .or(waiting)
                .filter(|_| !is_ready),
        }
    }
}

/// Returns type and value of an IP address, as in the status of a Gateway.
pub fn ip_address(text: String) -> (String, String) {
    let canonical = text.parse().map(|ip: IpAddr| ip.to_string());
    ("IPAddress".to_owned(), canonical.unwrap_or(text))
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> Option<String> {
    let text = value.as_str().filter(|text| !text.is_empty())?;
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_workload_is_ready_when_all_of_its_pods_are() {
        let is_ready = |object: Value| WorkloadFacts::read(&object).is_ready;
        let deployment =
            |ready: u32| json!({"spec": {"replicas": 2}, "status": {"readyReplicas": ready}});
        assert!(is_ready(deployment(2)) && !is_ready(deployment(1)));
        assert!(!is_ready(json!({"spec": {"replicas": 2}})));
        let daemon_set = |desired: u32, ready: u32| json!({"spec": {}, "status": {"desiredNumberScheduled": desired, "numberReady": ready}});
        assert!(is_ready(daemon_set(3, 3)) && !is_ready(daemon_set(3, 2)));
        assert!(
            !is_ready(daemon_set(0, 0)),
            "its controller has not seen it yet"
        );
    }
}
