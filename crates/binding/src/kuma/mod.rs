//! Kuma's policies: which proxies and destinations they reach, how they merge, and what comes of it.
//!
//! The texts are MADR 011 (rules, filters, merging) and MADR 045 (gateways and their hostnames); quotations without a source are Kuma's
//! own behaviour. Three things are computed: a [`proxy`] (a Dataplane, or what becomes one on Kubernetes), a [`destination`] as its
//! callers see it, and a MeshGateway ([`gateway`]). All policies for one of these are put in order ([`policy`]), [`merge`]d, and
//! [`lowering`]ed into the bound form.

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
use crate::store::FastMap;
use destination::PolicyOutcome;
use gateway::MeshGatewayView;
use policy::MeshPolicy;
use proxy::MeshProxy;

/// What was computed of Kuma's objects.
#[derive(Default)]
pub(crate) struct Kuma {
    /// The policies.
    pub(crate) policies: BTreeMap<ObjectKey, Arc<MeshPolicy>>,
    /// The proxies.
    proxies: FastMap<ObjectKey, Arc<MeshProxy>>,
    /// The proxies that are told to call each destination.
    callers: BTreeMap<BackendId, BTreeSet<ObjectKey>>,
    /// The proxies that may call everything.
    unrestricted: BTreeSet<ObjectKey>,
    /// The destinations that a policy includes.
    targeted: BTreeSet<BackendId>,
    /// What comes of policies at each destination.
    pub(crate) destinations: BTreeMap<BackendId, PolicyOutcome>,
    /// What comes of them on each MeshGateway.
    pub(crate) gateways: BTreeMap<ObjectKey, MeshGatewayView>,
    /// Where each policy has a say.
    targets: FastMap<ObjectKey, BTreeSet<PolicyTarget>>,
}

/// What policies come together at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PolicyTarget {
    /// What proxies call.
    Destination(BackendId),
    /// A MeshGateway.
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
    /// A policy has no say any more at a place.
    fn remove_target(&mut self, policy: &ObjectKey, target: &PolicyTarget) {
        if let Some(targets) = self.targets.get_mut(policy) {
            targets.remove(target);
            if targets.is_empty() {
                self.targets.remove(policy);
            }
        }
    }

    /// What comes of policies at a place.
    fn outcome(&self, target: &PolicyTarget) -> Option<&PolicyOutcome> {
        match target {
            PolicyTarget::Destination(id) => self.destinations.get(id),
            PolicyTarget::Gateway(key) => self.gateways.get(key).map(|view| &view.outcome),
        }
    }

    /// What comes of policies, wherever they have a say.
    fn outcomes(&self) -> impl Iterator<Item = &PolicyOutcome> {
        let gateways = self.gateways.values().map(|view| &view.outcome);
        self.destinations.values().chain(gateways)
    }
}
