//! Applies policies to the calls that proxies make to a destination.

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
use crate::engine::{FastMap, Reader};

/// The policies that apply to one destination or MeshGateway, and the bound form that results.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PolicyOutcome {
    pub frontends: BTreeMap<FrontendId, Frontend>,
    /// Routes attached to the frontends.
    pub attachments: BTreeMap<(FrontendId, ObjectKey), Arc<BoundRoute>>,
    /// Backends that the routes use.
    pub uses: BTreeSet<BackendId>,
    /// Findings for the status of the policies.
    pub findings: PolicyFindings,
    /// Policies that apply, each with the groups of proxies that it selects. Groups are shared between policies.
    pub reached: BTreeMap<ObjectKey, BTreeSet<Callers>>,
}

impl PolicyOutcome {
    /// Returns whether policies send some of a proxy's requests to another destination or reply to them.
    pub fn overrides_default_destination(&self, proxy: &ObjectKey, own: &BackendId) -> bool {
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

    /// Returns the groups of callers to which policies apply.
    pub fn caller_groups(&self) -> BTreeSet<Callers> {
        // Many policies share a group; deduplicating by address first avoids most comparisons.
        let all = self.reached.values().flatten();
        let all: FastMap<usize, &Callers> =
            all.map(|group| (group.as_ptr().addr(), group)).collect();
        all.into_values().cloned().collect()
    }
}

/// Returns the items that include a destination, most specific first.
pub(crate) fn items_for<'p>(
    reader: &Reader<'_>,
    policies: impl Iterator<Item = &'p Arc<MeshPolicy>>,
    destination: &BackendId,
) -> Vec<ToItem<'p>> {
    let mut items: Vec<ToItem<'p>> = Vec::new();
    for policy in policies {
        // A MeshHTTPRoute without rules has no effect; a MeshTCPRoute without rules forwards streams unchanged.
        let has_effect =
            |to: &usize| !policy.is_http() || !policy.route.spec.to[*to].rules.is_empty();
        let effective = (0..policy.route.spec.to.len()).filter(has_effect);
        let included = effective.filter(|to| policy.includes(reader, *to, destination));
        items.extend(included.map(|to| ToItem { policy, to }));
    }
    items.sort_by(ToItem::compare);
    items
}

/// Returns the items that apply to calls of a proxy.
pub(crate) fn items_for_caller<'p>(items: &[ToItem<'p>], proxy: &MeshProxy) -> Vec<ToItem<'p>> {
    let selected = |item: &&ToItem<'p>| applies_to(item, proxy);
    items.iter().filter(selected).copied().collect()
}

fn applies_to(item: &ToItem<'_>, proxy: &MeshProxy) -> bool {
    item.policy.route.mesh == proxy.mesh && item.policy.selects(proxy)
}

/// Selects the items of the kind that applies to a destination's protocol. Returns whether that kind routes HTTP requests, its items, and the ignored items
/// of the other kind.
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

/// A proxy that calls a destination, and the address of its outbound if it has one.
pub(crate) type Caller<'p> = (&'p MeshProxy, Option<SocketAddr>);

/// Applies policies to the calls to a destination. Groups of callers that are in `known` are reused, so that unchanged results compare by address.
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
    // Callers of a mesh to which the same items apply share one route.
    let mut groups: FastMap<(&str, Vec<u32>), Vec<&Caller<'_>>> = FastMap::default();
    for caller in callers {
        let (proxy, listen) = caller;
        let indexed = (0..).zip(items);
        let own = indexed.filter(|(_, item)| applies_to(item, proxy));
        let own: Vec<u32> = own.map(|(index, _)| index).collect();
        if !own.is_empty() || listen.is_some() {
            groups.entry((&proxy.mesh, own)).or_default().push(caller);
        }
    }
    for ((mesh, indexes), callers) in groups {
        let own: Vec<ToItem<'_>> = indexes.iter().map(|index| items[*index as usize]).collect();
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
            let mut made = Frontend::new(id.clone(), protocol, port);
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

/// Creates a route from merged rules. Its key is that of the destination or listener; its rules name the policies that they come from.
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
            (true, _) => "a MeshHTTPRoute takes precedence",
            (false, Kind::MeshExternalService) => "its protocol is not HTTP (match.protocol)",
            (false, _) if destination.port != 0 => "its protocol is not HTTP (appProtocol)",
            (false, _) => "its protocol is not HTTP (kuma.io/protocol)",
        };
        let remark = format!("not applied to calls to {destination}: {why}");
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
    let binding = RouteBinding::Outbound(Arc::new(destination.clone()), Arc::new(first));
    let route = merged_route(destination.object.clone(), binding, None, rules);
    (requests, Arc::new(route))
}
