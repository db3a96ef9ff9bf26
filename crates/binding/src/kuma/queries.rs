//! Queries for Kuma's objects, and their invalidation.
//!
//! Queries read objects through a [`Reader`], which records them as inputs. Policies are not recorded: a changed policy invalidates the destinations and
//! gateways that it selects, before and after the change. So a change costs one pass over the names of all destinations, and recomputes only those that the
//! policy includes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pointsman_resources::kuma::TargetKind;
use pointsman_resources::{Kind, ObjectKey, Resource};

use super::PolicyTarget;
use super::backend;
use super::destination::{self, Caller, PolicyOutcome};
use super::gateway;
use super::policy::MeshPolicy;
use super::proxy;
use crate::bound::{BackendId, Transport};
use crate::engine::attachments::record_changes;
use crate::engine::difference::difference;
use crate::engine::{Input, Query, Reader};
use crate::{Binder, Delta};

impl Binder {
    /// Invalidates the queries that exist because of an object.
    pub(crate) fn invalidate_kuma(&mut self, key: &ObjectKey) {
        match key.kind {
            Kind::Dataplane => self.tracker.invalidate(Query::Proxy(key.clone())),
            Kind::Pod if !self.kuma.policies.is_empty() => {
                self.tracker.invalidate(Query::Proxy(key.clone()));
            }
            Kind::MeshGateway => self.tracker.invalidate(Query::MeshGateway(key.clone())),
            Kind::Service
            | Kind::MeshService
            | Kind::MeshExternalService
            | Kind::MeshMultiZoneService => self.invalidate_ports(key),
            kind if kind.is_mesh_route() => self.update_policy(key),
            _ => {}
        }
    }

    /// Invalidates the ports of a destination to which a policy may apply.
    fn invalidate_ports(&mut self, object: &ObjectKey) {
        if self.kuma.policies.is_empty() {
            return;
        }
        let known = |id: &&BackendId| id.object == *object;
        let first = || BackendId::new(object.clone(), 0, Transport::Tcp)..;
        let targeted = self.kuma.targeted.range(first()).take_while(known);
        // A changed label may cause a policy to include a destination that it did not before.
        let called = self.kuma.callers.range(first()).map(|(id, _)| id);
        let called = called.take_while(known);
        let mut ids: BTreeSet<BackendId> = targeted.chain(called).cloned().collect();
        ids.extend(ports_of(&Reader::new(&self.store), object));
        for id in ids {
            self.tracker.invalidate(Query::Destination(id));
        }
    }

    fn update_policy(&mut self, key: &ObjectKey) {
        let new = match self.store.get(key) {
            Some(Resource::MeshRoute(route)) => Some(Arc::new(MeshPolicy::new(key, route))),
            _ => None,
        };
        let had_none = self.kuma.policies.is_empty();
        let old = match &new {
            Some(new) => self.kuma.policies.insert(key.clone(), new.clone()),
            None => self.kuma.policies.remove(key),
        };
        if had_none {
            // Pods are computed as proxies only if there is a policy; this is the first one.
            let pods = self.store.objects().map(|(key, _)| key);
            let pods = pods.filter(|key| key.kind == Kind::Pod);
            let known = self.kuma.unrestricted.iter().cloned();
            for pod in pods.chain(known).collect::<BTreeSet<_>>() {
                self.tracker.invalidate(Query::Proxy(pod));
            }
        }
        for policy in old.iter().chain(&new) {
            for id in self.destinations_of(policy) {
                self.tracker.invalidate(Query::Destination(id));
            }
            let to = &policy.route.spec.to;
            if to.iter().any(|to| to.target_ref.kind == TargetKind::Mesh) {
                let reader = Reader::new(&self.store);
                let gateways = reader.mesh_gateways(&policy.route.mesh);
                let gateways: Vec<ObjectKey> = gateways
                    .map(|gateway| ObjectKey {
                        kind: Kind::MeshGateway,
                        name: gateway.metadata.key(),
                    })
                    .collect();
                for gateway in gateways {
                    self.tracker.invalidate(Query::MeshGateway(gateway));
                }
            }
        }
    }

    /// Returns the destinations that a policy includes.
    fn destinations_of(&self, policy: &MeshPolicy) -> BTreeSet<BackendId> {
        let reader = Reader::new(&self.store);
        let includes = |id: &&BackendId| {
            let mut all = 0..policy.route.spec.to.len();
            all.any(|to| policy.includes(&reader, to, id))
        };
        let called = self.kuma.callers.keys().filter(includes);
        let targeted = self.kuma.targeted.iter().filter(includes);
        let mut found: BTreeSet<BackendId> = called.chain(targeted).cloned().collect();
        for object in reader.all_destinations() {
            let ports = ports_of(&reader, &object.key());
            found.extend(ports.iter().filter(includes).cloned());
        }
        found
    }

    pub(crate) fn compute_proxy(&mut self, query: &Query, key: &ObjectKey) {
        let reader = Reader::new(&self.store);
        let view = proxy::resolve_proxy(&reader, key);
        self.tracker.record_reads(query, reader.into_inputs());
        let old = self.kuma.proxies.get(key).cloned();
        if old.as_deref() == view.as_ref() {
            return;
        }
        let view = view.map(Arc::new);
        for (proxy, is_added) in [(&old, false), (&view, true)] {
            let Some(proxy) = proxy else { continue };
            for (_, destination) in &proxy.outbounds {
                let callers = self.kuma.callers.entry(destination.clone()).or_default();
                match is_added {
                    true => callers.insert(key.clone()),
                    false => callers.remove(key),
                };
                if callers.is_empty() {
                    self.kuma.callers.remove(destination);
                }
                self.tracker
                    .invalidate(Query::Destination(destination.clone()));
            }
            if proxy.is_unrestricted {
                match is_added {
                    true => self.kuma.unrestricted.insert(key.clone()),
                    false => self.kuma.unrestricted.remove(key),
                };
                for destination in &self.kuma.targeted {
                    self.tracker
                        .invalidate(Query::Destination(destination.clone()));
                }
            }
        }
        match view {
            Some(view) => self.kuma.proxies.insert(key.clone(), view),
            None => self.kuma.proxies.remove(key),
        };
    }

    pub(crate) fn compute_destination(&mut self, query: &Query, id: &BackendId, delta: &mut Delta) {
        let reader = Reader::new(&self.store);
        let mut items = destination::items_for(&reader, self.kuma.policies.values(), id);
        let mut callers = self.callers(id);
        let is_port = |port: &backend::DestinationPort| port.number == id.port;
        if id.port != 0 && !backend::ports(&reader, &id.object).iter().any(is_port) {
            // The destination does not exist.
            items.clear();
            callers.clear();
        }
        let known = self
            .kuma
            .destinations
            .get(id)
            .map(PolicyOutcome::caller_groups);
        let known = known.unwrap_or_default();
        let outcome = match callers.is_empty() {
            true => PolicyOutcome::default(),
            false => destination::bind_destination(&reader, id, &items, &callers, &known),
        };
        let is_targeted = !items.is_empty();
        let inputs = reader.into_inputs();
        // A destination that no proxy calls and no policy includes needs no tracking.
        let is_tracked = is_targeted || !callers.is_empty();
        drop(callers);
        self.tracker
            .record_reads(query, if is_tracked { inputs } else { Vec::new() });
        match is_targeted {
            true => self.kuma.targeted.insert(id.clone()),
            false => self.kuma.targeted.remove(id),
        };
        let old = self.kuma.destinations.remove(id).unwrap_or_default();
        self.apply_outcome(
            &PolicyTarget::Destination(id.clone()),
            &old,
            &outcome,
            delta,
        );
        if outcome.reached != old.reached {
            self.tracker
                .invalidate_readers(&Input::Result(query.clone()));
        }
        if outcome != PolicyOutcome::default() {
            self.kuma.destinations.insert(id.clone(), outcome);
        }
    }

    /// Returns the proxies that may call a destination.
    pub(crate) fn callers(&self, id: &BackendId) -> Vec<Caller<'_>> {
        let mut found = Vec::new();
        let callers = self.kuma.callers.get(id).into_iter().flatten();
        for proxy in callers.filter_map(|key| self.kuma.proxies.get(key)) {
            let outbounds = proxy.outbounds.iter().filter(|(_, to)| to == id);
            found.extend(outbounds.map(|(listen, _)| (&**proxy, Some(*listen))));
        }
        // A Pod calls by virtual address, so it can't call a service that has only a tag.
        if id.port != 0 {
            let pods = self.kuma.unrestricted.iter();
            let pods = pods.filter_map(|key| self.kuma.proxies.get(key));
            found.extend(pods.map(|pod| (&**pod, None)));
        }
        found
    }

    pub(crate) fn compute_mesh_gateway(
        &mut self,
        query: &Query,
        key: &ObjectKey,
        delta: &mut Delta,
    ) {
        let reader = Reader::new(&self.store);
        let view = gateway::bind_gateway(&reader, key, &self.kuma.policies);
        self.tracker.record_reads(query, reader.into_inputs());
        let old = self.kuma.gateways.remove(key).unwrap_or_default();
        let none = PolicyOutcome::default();
        let new = view.as_ref().map_or(&none, |view| &view.outcome);
        self.apply_outcome(
            &PolicyTarget::Gateway(key.clone()),
            &old.outcome,
            new,
            delta,
        );
        if view.as_ref().is_none_or(|view| *view != old) {
            self.tracker
                .invalidate_readers(&Input::Result(query.clone()));
            self.placement.record_gateway_change();
        }
        if let Some(view) = view {
            self.kuma.gateways.insert(key.clone(), view);
        }
    }

    /// Replaces the outcome of a target: adds the differences to the delta, and invalidates backends and statuses that changed.
    fn apply_outcome(
        &mut self,
        target: &PolicyTarget,
        old: &PolicyOutcome,
        new: &PolicyOutcome,
        delta: &mut Delta,
    ) {
        for policy in old
            .reached
            .keys()
            .filter(|policy| !new.reached.contains_key(*policy))
        {
            self.kuma.remove_target(policy, target);
        }
        for policy in new
            .reached
            .keys()
            .filter(|policy| !old.reached.contains_key(*policy))
        {
            let targets = self.kuma.targets.entry(policy.clone()).or_default();
            targets.insert(target.clone());
        }
        difference(&old.frontends, &new.frontends, &mut delta.frontends);
        let changes = &mut self.attachment_changes;
        record_changes(&old.attachments, &new.attachments, changes);
        for id in old.uses.difference(&new.uses) {
            self.use_backend(id, false);
        }
        for id in new.uses.difference(&old.uses) {
            self.use_backend(id, true);
        }
        for policy in policies_with_changed_status(old, new) {
            self.tracker.invalidate(Query::Status(policy));
        }
    }

    fn use_backend(&mut self, id: &BackendId, up: bool) {
        if crate::engine::adjust_count(&mut self.users, id.clone(), up) {
            self.tracker.invalidate(Query::Backend(id.clone()));
        }
    }
}

/// Returns the policies whose status depends on the difference between two outcomes.
fn policies_with_changed_status(old: &PolicyOutcome, new: &PolicyOutcome) -> BTreeSet<ObjectKey> {
    let mut policies = changed_keys(&old.reached, &new.reached);
    policies.extend(changed_keys(
        &old.findings.unresolved,
        &new.findings.unresolved,
    ));
    policies.extend(changed_keys(&old.findings.invalid, &new.findings.invalid));
    policies.extend(changed_keys(
        &old.findings.overridden,
        &new.findings.overridden,
    ));
    policies.extend(changed_keys(&old.findings.remarks, &new.findings.remarks));
    policies
}

fn changed_keys<V: PartialEq>(
    old: &BTreeMap<ObjectKey, V>,
    new: &BTreeMap<ObjectKey, V>,
) -> BTreeSet<ObjectKey> {
    let keys = old.keys().chain(new.keys());
    keys.filter(|key| old.get(*key) != new.get(*key))
        .cloned()
        .collect()
}

/// Returns the ports of a destination object.
pub(super) fn ports_of(reader: &Reader<'_>, object: &ObjectKey) -> Vec<BackendId> {
    let ports = backend::ports(reader, object).into_iter();
    ports
        .map(|port| BackendId::new(object.clone(), port.number, Transport::Tcp))
        .collect()
}
