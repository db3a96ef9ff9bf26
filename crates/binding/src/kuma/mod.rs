//! Kuma's policies: the proxies and destinations that they select, how their rules merge, and the routes that result.
//!
//! The specifications are MADR 011 (rules, filters, merging) and MADR 045 (gateways and their hostnames); quotations without a source describe Kuma's
//! own behaviour. Three kinds of results are computed: a [`proxy`] (a Dataplane, or a Kubernetes object that becomes one), a [`destination`] with the
//! policies for calls to it, and a MeshGateway ([`gateway`]). All policies for one destination or gateway are sorted by strength ([`policy`]), their rules
//! are merged ([`merge`]), and the result is lowered into the bound form ([`lowering`]).

pub(crate) mod backend;
mod cross_mesh;
pub(crate) mod destination;
mod effective;
pub(crate) mod external;
pub(crate) mod gateway;
pub(crate) mod lowering;
mod merge;
pub(crate) mod policy;
mod policy_warnings;
pub(crate) mod proxy;
mod queries;
mod selection;
mod status;
mod warnings;

pub use effective::{MergedRule, MergedRules};
pub use proxy::UnresolvedOutbound;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use pointsman_resources::ObjectKey;

use crate::bound::BackendId;
use crate::engine::FastMap;
use destination::PolicyOutcome;
use gateway::MeshGatewayView;
use policy::MeshPolicy;
use proxy::MeshProxy;

/// Results computed from Kuma's objects.
#[derive(Default)]
pub(crate) struct Kuma {
    pub(crate) policies: BTreeMap<ObjectKey, Arc<MeshPolicy>>,
    proxies: FastMap<ObjectKey, Arc<MeshProxy>>,
    /// Proxies that have an outbound for each destination.
    callers: BTreeMap<BackendId, BTreeSet<ObjectKey>>,
    /// Proxies that may call every destination.
    unrestricted: BTreeSet<ObjectKey>,
    /// Destinations that a policy includes.
    targeted: BTreeSet<BackendId>,
    /// Policies applied to each destination.
    pub(crate) destinations: BTreeMap<BackendId, PolicyOutcome>,
    /// Policies applied to each MeshGateway.
    pub(crate) gateways: BTreeMap<ObjectKey, MeshGatewayView>,
    /// Destinations and MeshGateways to which each policy applies.
    targets: FastMap<ObjectKey, BTreeSet<PolicyTarget>>,
}

/// A destination or MeshGateway to which policies apply.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PolicyTarget {
    /// Calls of proxies to a destination.
    Destination(BackendId),
    /// The listeners of a MeshGateway.
    Gateway(ObjectKey),
}

impl fmt::Display for PolicyTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyTarget::Destination(id) => id.fmt(f),
            PolicyTarget::Gateway(key) => key.fmt(f),
        }
    }
}

impl Kuma {
    /// Records that a policy no longer applies to a target.
    fn remove_target(&mut self, policy: &ObjectKey, target: &PolicyTarget) {
        if let Some(targets) = self.targets.get_mut(policy) {
            targets.remove(target);
            if targets.is_empty() {
                self.targets.remove(policy);
            }
        }
    }

    /// Returns the policies applied to a target.
    fn outcome(&self, target: &PolicyTarget) -> Option<&PolicyOutcome> {
        match target {
            PolicyTarget::Destination(id) => self.destinations.get(id),
            PolicyTarget::Gateway(key) => self.gateways.get(key).map(|view| &view.outcome),
        }
    }

    /// Returns the policies applied to all targets.
    fn outcomes(&self) -> impl Iterator<Item = &PolicyOutcome> {
        let gateways = self.gateways.values().map(|view| &view.outcome);
        self.destinations.values().chain(gateways)
    }
}
