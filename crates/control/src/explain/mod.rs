//! Explanations of requests. The tables know which rule a request matches; the binder knows why other routes were rejected or overridden.

mod names;
mod request;

use std::net::IpAddr;

use pointsman_binding::bound::{BackendId, Transport};
use pointsman_binding::{Binder, InactiveReason};
use pointsman_resources::core::ServicePort;
use pointsman_resources::{ObjectKey, Resource};
use pointsman_routing::explain::{
    self, Directory, DirectoryEntry, Explanation, Query, RefusedCandidate,
};
use pointsman_routing::{Criterion, Tables};

pub use names::{NameError, proxy_or_gateway};
pub use request::{DescriptionError, RequestDescription};

/// Explains how a request is routed.
pub fn explain(binder: &Binder, tables: &Tables, query: &Query) -> Explanation {
    explain::explain(tables, &directory(binder), query, |destination| {
        let parent = &destination.object;
        let inactive_for_client = query.dataplane.iter();
        let inactive_for_client = inactive_for_client
            .flat_map(|dataplane| binder.inactive_for_caller(dataplane, destination));
        let on_gateway = binder.inactive_on_gateway(parent);
        let inactive = binder.inactive_routes(parent).into_iter();
        let outranked = binder.outranked_by_kind(parent, destination.port);
        let inactive = inactive
            .chain(outranked)
            .chain(on_gateway)
            .chain(inactive_for_client);
        inactive
            .map(|refusal| RefusedCandidate {
                rules: rules(binder, &refusal.route, refusal.rule),
                route: refusal.route,
                to: refusal.to,
                lost_on: match refusal.reason {
                    InactiveReason::Conflicted => Criterion::Kind,
                    InactiveReason::NotSelected => Criterion::Scope,
                    InactiveReason::Merged => Criterion::Order,
                    InactiveReason::Refused(_) => Criterion::Refused,
                },
                detail: format!("{}: {}", refusal.reason, refusal.message),
            })
            .collect()
    })
}

/// Returns index, name and number of matches of a route's rules, or of only one of them.
fn rules(
    binder: &Binder,
    route: &ObjectKey,
    rule_index: Option<usize>,
) -> Vec<(usize, Option<String>, usize)> {
    match binder.object(route) {
        Some(Resource::Route(route)) => {
            let rules = route.spec.rules.iter().enumerate();
            rules
                .filter(|(index, _)| rule_index.is_none_or(|wanted| wanted == *index))
                .map(|(index, rule)| (index, rule.name.clone(), rule.matches.len()))
                .collect()
        }
        Some(Resource::MeshRoute(_)) => {
            rule_index.map(|rule| (rule, None, 0)).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// Lists the Services, ServiceImports and Pods that a URL may name, and outbounds without a destination.
pub(crate) fn directory(binder: &Binder) -> Directory {
    let mut objects: Vec<(ObjectKey, &Resource)> = binder.objects().collect();
    objects.sort_by_key(|(key, object)| (object.meta().age(), key.clone()));
    let pods = objects.iter().filter_map(|(key, resource)| match resource {
        Resource::Pod(pod) => Some((key.clone(), pod.status.pod_ip.as_deref()?.parse().ok()?)),
        _ => None,
    });
    let pods = pods.collect();
    let parents = objects
        .into_iter()
        .filter_map(|(object, resource)| mesh_parent(binder, object, resource));
    Directory {
        parents: parents.collect(),
        pods,
        unresolved_outbounds: binder.unresolved_outbounds().cloned().collect(),
    }
}

/// Returns the addresses and backends of a Service or ServiceImport.
fn mesh_parent(binder: &Binder, object: ObjectKey, resource: &Resource) -> Option<DirectoryEntry> {
    let (ports, addresses): (_, Vec<&String>) = match resource {
        Resource::Service(service) => {
            let spec = &service.spec;
            let addresses = spec.cluster_ips.iter().chain(&spec.cluster_ip);
            (&spec.ports, addresses.collect())
        }
        Resource::ServiceImport(import) => (&import.spec.ports, import.spec.ips.iter().collect()),
        _ => return None,
    };
    let backend = |port: &ServicePort| {
        let transport = [Transport::Tcp, Transport::Udp]
            .into_iter()
            .find(|transport| transport.name() == port.protocol)?;
        let (object, port) = (object.clone(), port.port);
        binder.backend(&BackendId::new(object, port, transport))
    };
    Some(DirectoryEntry {
        addresses: addresses
            .iter()
            .filter_map(|text| text.parse::<IpAddr>().ok())
            .collect(),
        backends: ports.iter().filter_map(backend).collect(),
        object,
    })
}
