//! A destination as its callers see it: which policies govern their calls, and what comes of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use pointsman_resources::{Age, Kind, ObjectKey};

use super::backend;
use super::cross_mesh;
use super::lowering::{Callers, PolicyFindings, PolicyLowering};
use super::merge::merge;
use super::policy::{MeshPolicy, ToItem};
use super::proxy::MeshProxy;
use crate::bound::{
    BackendId, BoundRoute, BoundRule, Dialect, Frontend, FrontendId, Hostname, Outbound, Protocol,
    RouteBinding, RouteId, RouteMeta, SecretId,
};
use crate::store::{FastMap, Reader};

/// What comes of policies at one destination, or on one MeshGateway.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PolicyOutcome {
    /// What clients connect to.
    pub frontends: BTreeMap<FrontendId, Frontend>,
    /// What governs it.
    pub attachments: BTreeMap<(FrontendId, ObjectKey), Arc<BoundRoute>>,
    /// The backends in use.
    pub uses: BTreeSet<BackendId>,
    /// What there is to say of policies.
    pub findings: PolicyFindings,
    /// The policies that have a say, each with the proxies that it reaches: groups of them, which are shared.
    pub reached: BTreeMap<ObjectKey, BTreeSet<Callers>>,
}

impl PolicyOutcome {
    /// Whether policies send some of what a proxy calls here elsewhere, or answer it.
    pub fn diverts(&self, proxy: &ObjectKey, own: &BackendId) -> bool {
        let routes = self.attachments.iter().filter(|((id, _), _)| {
            matches!(id, FrontendId::Outbound(outbound) if outbound.dataplane == *proxy)
        });
        let mut rules = routes.flat_map(|(_, route)| &route.rules);
        rules.any(|rule| {
            let mut backends = rule.backends.iter();
            let elsewhere = backends.any(|backend| backend.target.as_ref() != Ok(own));
            !rule.from.is_empty() && (elsewhere || rule.backends.is_empty())
        })
    }

    /// The groups of callers that it tells of.
    pub fn caller_groups(&self) -> BTreeSet<Callers> {
        // Many policies have the same one: it is compared with others once.
        let all = self.reached.values().flatten();
        let all: FastMap<usize, &Callers> =
            all.map(|group| (group.as_ptr().addr(), group)).collect();
        all.into_values().cloned().collect()
    }
}

/// The items for a destination, the strongest first.
pub(crate) fn items_for<'p>(
    reader: &Reader<'_>,
    policies: impl Iterator<Item = &'p Arc<MeshPolicy>>,
    destination: &BackendId,
) -> Vec<ToItem<'p>> {
    let mut items: Vec<ToItem<'p>> = Vec::new();
    for policy in policies {
        // A MeshHTTPRoute without rules says nothing; without them a stream goes where it was going.
        let says = |to: &usize| !policy.is_http() || !policy.route.spec.to[*to].rules.is_empty();
        let all = (0..policy.route.spec.to.len()).filter(says);
        let included = all.filter(|to| policy.includes(reader, *to, destination));
        items.extend(included.map(|to| ToItem { policy, to }));
    }
    items.sort_by(ToItem::compare);
    items
}

/// Those of the items that are for what a proxy sends.
pub(crate) fn items_for_caller<'p>(items: &[ToItem<'p>], proxy: &MeshProxy) -> Vec<ToItem<'p>> {
    let selected = |item: &&ToItem<'p>| applies_to(item, proxy);
    items.iter().filter(selected).copied().collect()
}

fn applies_to(item: &ToItem<'_>, proxy: &MeshProxy) -> bool {
    item.policy.route.mesh == proxy.mesh && item.policy.selects(proxy)
}

/// The items of the kind that governs a destination, and whether they are about requests; then those that have no say.
///
/// "The route that's used for a given request is the most specific one that Kuma can apply given the `kuma.io/protocol` tag."
pub(crate) fn select_by_protocol<'p>(
    items: &[ToItem<'p>],
    http: bool,
) -> (bool, Vec<ToItem<'p>>, Vec<ToItem<'p>>) {
    let (requests, streams): (Vec<ToItem<'p>>, Vec<ToItem<'p>>) =
        items.iter().partition(|item| item.policy.is_http());
    match (http, requests.is_empty(), streams.is_empty()) {
        (true, false, _) => (true, requests, streams),
        (true, true, false) => (false, streams, requests),
        (true, true, true) => (true, requests, streams),
        (false, ..) => (false, streams, requests),
    }
}

/// A proxy, and where it finds what it calls, if it is told.
pub(crate) type Caller<'p> = (&'p MeshProxy, Option<SocketAddr>);

/// Works out a destination for these callers, each with the place where it finds it. Groups of callers that are `known` from before are
/// used again: then it is seen at a glance that they are the same.
pub(crate) fn bind_destination(
    reader: &Reader<'_>,
    destination: &BackendId,
    items: &[ToItem<'_>],
    callers: &[Caller<'_>],
    known: &BTreeSet<Callers>,
) -> PolicyOutcome {
    let mut outcome = PolicyOutcome::default();
    let protocol = backend::protocol(reader, destination);
    let http = backend::is_http(protocol.as_deref());
    // Callers with the same policies share what comes of them: a group goes by its mesh and the places of its items.
    let mut groups: FastMap<(&str, Vec<u32>), Vec<&Caller<'_>>> = FastMap::default();
    for caller in callers {
        let (proxy, listen) = caller;
        let places = (0..).zip(items);
        let own = places.filter(|(_, item)| applies_to(item, proxy));
        let own: Vec<u32> = own.map(|(place, _)| place).collect();
        if !own.is_empty() || listen.is_some() {
            groups.entry((&proxy.mesh, own)).or_default().push(caller);
        }
    }
    for ((mesh, places), callers) in groups {
        let own: Vec<ToItem<'_>> = places.iter().map(|place| items[*place as usize]).collect();
        let keys: BTreeSet<&ObjectKey> = callers.iter().map(|(proxy, _)| &proxy.key).collect();
        let keys: Callers = keys.into_iter().cloned().collect();
        let keys = known.get(&keys).cloned().unwrap_or(keys);
        for item in &own {
            let reached = outcome.reached.entry(item.policy.key.clone()).or_default();
            reached.insert(keys.clone());
        }
        let (requests, route) =
            bind_group(reader, destination, &own, http, (mesh, keys), &mut outcome);
        for (proxy, listen) in callers {
            let id = FrontendId::Outbound(Arc::new(Outbound {
                dataplane: proxy.key.clone(),
                destination: destination.clone(),
                listen: *listen,
            }));
            let attachment = (id.clone(), route.id.route.clone());
            outcome.attachments.insert(attachment, route.clone());
            let protocol = match requests {
                true => Protocol::Http,
                false => Protocol::Tcp,
            };
            let port = listen.map_or(destination.port, |listen| listen.port());
            let mut made = frontend(id.clone(), protocol, port);
            if cross_mesh::is_cross_mesh(destination) {
                let own = reader.identities().get(&proxy.mesh);
                let usable = own.is_some_and(Result::is_ok);
                made.mesh_certificate = usable.then(|| SecretId::Mesh(proxy.mesh.clone()));
            }
            outcome.frontends.insert(id, made);
        }
    }
    outcome
}

/// A frontend without anything special.
pub(crate) fn frontend(id: FrontendId, protocol: Protocol, port: u16) -> Frontend {
    Frontend {
        id,
        protocol,
        port,
        hostname: None,
        tls: None,
        client_certificate: None,
        mesh_certificate: None,
        kind: None,
        connection_limit: None,
        cross_mesh: false,
    }
}

/// A merged route. It goes by the name of what it is for; its rules know the policies they came from.
pub(crate) fn merged_route(
    route: ObjectKey,
    binding: RouteBinding,
    hostname: Option<Hostname>,
    rules: Vec<Arc<BoundRule>>,
) -> BoundRoute {
    let meta = RouteMeta {
        id: RouteId { route, binding },
        age: Age::InputOrder(0),
        generation: 1,
        dialect: Dialect::Kuma,
        hostnames: hostname.into_iter().collect(),
    };
    BoundRoute::new(meta, rules)
}

fn bind_group(
    reader: &Reader<'_>,
    destination: &BackendId,
    items: &[ToItem<'_>],
    http: bool,
    (mesh, callers): (&str, Callers),
    outcome: &mut PolicyOutcome,
) -> (bool, Arc<BoundRoute>) {
    let (requests, governing, ignored) = select_by_protocol(items, http);
    // A group is never empty.
    let first = callers.first().unwrap_or(&destination.object).clone();
    let mut lowering = PolicyLowering {
        reader,
        mesh,
        destination: Some(destination),
        http: requests,
        callers,
        uses: std::mem::take(&mut outcome.uses),
        findings: std::mem::take(&mut outcome.findings),
    };
    for item in ignored {
        let why = match (http, destination.object.kind) {
            (true, _) => "a MeshHTTPRoute governs it",
            (false, Kind::MeshExternalService) => "it does not speak HTTP (match.protocol)",
            (false, _) if destination.port != 0 => "it does not speak HTTP (appProtocol)",
            (false, _) => "it does not speak HTTP (kuma.io/protocol)",
        };
        let remark = format!("it has no say over calls to {destination}: {why}");
        let remarks = &mut lowering.findings.remarks;
        let of_policy = remarks.entry(item.policy.key.clone()).or_default();
        of_policy.insert(remark);
    }
    let rules = if governing.is_empty() {
        lowering.default_rule().into_iter().map(Arc::new).collect()
    } else if requests {
        lowering.http_rules(&merge(&governing))
    } else {
        lowering.stream_rules(&merge(&governing))
    };
    (outcome.uses, outcome.findings) = (lowering.uses, lowering.findings);
    let binding = RouteBinding::Outbound(destination.clone(), first);
    let route = merged_route(destination.object.clone(), binding, None, rules);
    (requests, Arc::new(route))
}
