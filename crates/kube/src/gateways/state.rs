//! Derives the state of a Gateway's infrastructure from its observed objects.

use std::collections::{BTreeMap, BTreeSet};

use pointsman_binding::InfrastructureState;

use super::objects::ObjectKind;
use super::observed::{ObjectFacts, PodFacts, ServiceFacts, ip_address};
use super::owner::GatewayOwner;

/// Objects by kind and name.
pub type ObservedObjects = BTreeMap<(ObjectKind, String), ObservedObject>;

/// Observed objects of a Gateway.
#[derive(Debug, Default)]
pub struct GatewayObjects {
    /// Objects.
    pub objects: ObservedObjects,
    /// Pods by name.
    pub pods: BTreeMap<String, PodFacts>,
    /// Reason why an object could not be created or changed.
    pub failure: Option<String>,
}

/// A generated object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedObject {
    /// UID of the object.
    pub uid: Option<String>,
    /// Gateways that own it.
    pub owners: Vec<GatewayOwner>,
    /// Fingerprint of the object without its status.
    pub fingerprint: u64,
    /// Facts on which the status of the Gateway depends.
    pub facts: ObjectFacts,
}

impl GatewayObjects {
    /// Returns the state; `None` if there is no Service yet and nothing has failed. `name` is the name of the objects, or `None` while the controller starts:
    /// objects are listed before the Gateway has been evaluated.
    pub fn state(&self, name: Option<&str>) -> Option<InfrastructureState> {
        let mut objects = self.objects.iter();
        let service = objects.find_map(|((_, own), observed)| match &observed.facts {
            ObjectFacts::Service(service) if name.is_none_or(|name| name == own) => {
                Some((own, service))
            }
            _ => None,
        });
        if service.is_none() && self.failure.is_none() {
            return None;
        }
        let addresses = service.map(|(_, service)| self.addresses(service));
        Some(InfrastructureState {
            unassigned: service.map(|(name, service)| {
                let kind = &service.kind;
                format!("Service {name} of type {kind} has no address yet")
            }),
            addresses: addresses.unwrap_or_default(),
            failure: self.failure.clone(),
            not_ready: self.not_ready(),
        })
    }

    fn addresses(&self, service: &ServiceFacts) -> Vec<(String, String)> {
        let own: Vec<(String, String)> = match &*service.kind {
            "LoadBalancer" => return service.ingress.clone(),
            "NodePort" => {
                let ready = self.pods.values().filter(|pod| pod.is_ready);
                let nodes: BTreeSet<&String> = ready.flat_map(|pod| &pod.host_ips).collect();
                nodes.into_iter().cloned().map(ip_address).collect()
            }
            _ => service
                .cluster_ips
                .iter()
                .cloned()
                .map(ip_address)
                .collect(),
        };
        match service.external_ips.is_empty() {
            true => own,
            false => service
                .external_ips
                .iter()
                .cloned()
                .map(ip_address)
                .collect(),
        }
    }

    /// Returns the reason why no proxy serves traffic, if none does.
    fn not_ready(&self) -> Option<String> {
        let pods = || self.pods.iter().filter(|(_, pod)| !pod.is_ending);
        if pods().any(|(_, pod)| pod.is_ready) {
            return None;
        }
        let failure = self
            .objects
            .values()
            .find_map(|observed| match &observed.facts {
                ObjectFacts::Workload(workload) => workload.failure.clone(),
                _ => None,
            });
        let waiting =
            pods().find_map(|(name, pod)| Some(format!("Pod {name}: {}", pod.waits_for.as_ref()?)));
        let count = pods().count();
        Some(match failure.or(waiting) {
            Some(reason) => format!("no proxy is ready: {reason}"),
            None if count == 0 => "no proxy has been started yet".to_owned(),
            None => format!("0 of {count} proxies are ready"),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn with(service: Value, pods: &[Value]) -> InfrastructureState {
        let mut objects = GatewayObjects::default();
        let observed = ObservedObject {
            uid: None,
            owners: Vec::new(),
            fingerprint: 0,
            facts: ObjectFacts::Service(ServiceFacts::read(&service)),
        };
        let key = (ObjectKind::Service, "edge-pointsman".to_owned());
        objects.objects.insert(key, observed);
        for (number, pod) in pods.iter().enumerate() {
            let name = format!("pod-{number}");
            objects.pods.insert(name, PodFacts::read(pod));
        }
        objects
            .state(Some("edge-pointsman"))
            .expect("there is a Service")
    }

    fn pod(ready: &str) -> Value {
        json!({"metadata": {}, "status": {"phase": "Running", "hostIPs": [{"ip": "192.0.2.7"}], "conditions": [{"type": "Ready", "status": ready}]}})
    }

    fn ip(address: &str) -> (String, String) {
        ("IPAddress".to_owned(), address.to_owned())
    }

    #[test]
    fn addresses_are_those_of_the_service() {
        let ready = [pod("True")];
        let balancer = json!({"spec": {"type": "LoadBalancer", "clusterIPs": ["10.96.0.1"]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "a.example"}]}}});
        let expected = [
            ip("192.0.2.1"),
            ("Hostname".to_owned(), "a.example".to_owned()),
        ];
        assert_eq!(with(balancer, &ready).addresses, expected);
        let pending = json!({"spec": {"type": "LoadBalancer", "clusterIPs": ["10.96.0.1"]}});
        let state = with(pending, &ready);
        assert_eq!(state.addresses, []);
        let why = "Service edge-pointsman of type LoadBalancer has no address yet";
        assert_eq!(state.unassigned.as_deref(), Some(why));
        let cluster = json!({"spec": {"type": "ClusterIP", "clusterIPs": ["10.96.0.1"]}});
        assert_eq!(with(cluster, &ready).addresses, [ip("10.96.0.1")]);
        let nodes = json!({"spec": {"type": "NodePort", "clusterIPs": ["10.96.0.1"]}});
        assert_eq!(with(nodes, &ready).addresses, [ip("192.0.2.7")]);
        let fixed = json!({"spec": {"type": "NodePort", "externalIPs": ["192.0.2.9"]}});
        assert_eq!(with(fixed, &ready).addresses, [ip("192.0.2.9")]);
    }

    #[test]
    fn the_pod_gives_the_reason_why_no_proxy_is_ready() {
        let service = json!({"spec": {"type": "ClusterIP"}});
        let not_ready = |pods: &[Value]| with(service.clone(), pods).not_ready;
        assert_eq!(not_ready(&[pod("False"), pod("True")]), None);
        assert_eq!(
            not_ready(&[pod("False")]).as_deref(),
            Some("0 of 1 proxies are ready")
        );
        assert_eq!(
            not_ready(&[]).as_deref(),
            Some("no proxy has been started yet")
        );
        let image = json!({"metadata": {}, "status": {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}]}});
        assert_eq!(
            not_ready(&[image]).as_deref(),
            Some("no proxy is ready: Pod pod-0: ErrImagePull: not found")
        );
        let mut ending = pod("True");
        ending["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z".into();
        assert!(not_ready(&[ending]).is_some());
    }
}
