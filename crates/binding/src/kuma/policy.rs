//! A policy among others: whose it is, and how strong.

use std::cmp::Ordering;
use std::sync::Arc;

use pointsman_resources::kuma::{
    EFFECT_LABEL, KubernetesService, MeshRoute, ORIGIN_LABEL, POLICY_ROLE_LABEL, SYSTEM_NAMESPACE,
    TargetKind, TargetRef, ZONE_TAG, display_name, home_namespace, is_universal,
};
use pointsman_resources::{Kind, ObjectKey};

/// A policy, with what is worked out of it once.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MeshPolicy {
    /// Which one.
    pub key: ObjectKey,
    /// What it says.
    pub route: Arc<MeshRoute>,
    /// Whose it is.
    pub role: PolicyRole,
    /// Why it is not accepted: "If no rule is left: Accepted=False, `UnsupportedValue`".
    pub refused: Option<String>,
    origin: PolicyOrigin,
}

/// Whose a policy is, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PolicyRole {
    /// The mesh's operators'.
    System,
    /// That of the owner of the destination: for all clients.
    Producer,
    /// That of a client's owner: for clients of its own namespace.
    Consumer,
    /// The same, of a policy that is for the workload itself.
    WorkloadOwner,
}

/// Where a policy was made, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PolicyOrigin {
    Global,
    Unspecified,
    Zone,
}

impl MeshPolicy {
    /// Looks at a policy.
    pub fn new(key: &ObjectKey, route: &Arc<MeshRoute>) -> Self {
        let labels = &route.metadata.labels;
        MeshPolicy {
            key: key.clone(),
            role: role(route),
            refused: super::lowering::unmatchable_rules(key, route),
            origin: match labels.get(ORIGIN_LABEL) {
                Some("global") => PolicyOrigin::Global,
                Some("zone") => PolicyOrigin::Zone,
                _ => PolicyOrigin::Unspecified,
            },
            route: route.clone(),
        }
    }

    /// The namespace on Kubernetes that it belongs to.
    pub fn namespace(&self) -> Option<&str> {
        home_namespace(&self.route.metadata)
    }

    /// Whether it is only tried.
    pub fn is_shadow(&self) -> bool {
        self.route.metadata.labels.get(EFFECT_LABEL) == Some("shadow")
    }

    /// Whether it is carried out: one that is only tried is not, nor one that is not accepted.
    pub fn is_in_effect(&self) -> bool {
        !self.is_shadow() && self.refused.is_none()
    }

    /// The namespace whose proxies alone it is for.
    pub fn only_namespace(&self) -> Option<&str> {
        self.namespace()
            .filter(|_| self.role >= PolicyRole::Consumer)
    }

    /// Returns whether it was made for all zones.
    pub fn is_global(&self) -> bool {
        self.origin == PolicyOrigin::Global
    }

    /// The zone whose proxies alone it is for.
    pub fn zone(&self) -> Option<&str> {
        let zonal = self.origin == PolicyOrigin::Zone && self.role != PolicyRole::Producer;
        self.route.metadata.labels.get(ZONE_TAG).filter(|_| zonal)
    }

    /// Returns whether it targets the listeners of a MeshGateway.
    pub fn is_for_gateways(&self) -> bool {
        self.route.spec.target_ref.kind == TargetKind::MeshGateway
    }

    /// Whether it is about requests, not streams.
    pub fn is_http(&self) -> bool {
        self.key.kind != Kind::MeshTCPRoute
    }

    /// The place of a `to` as its author wrote it; none where the kind has no `to`.
    pub fn written_index(&self, to: usize) -> Option<usize> {
        (self.key.kind != Kind::MeshGatewayHTTPRoute).then_some(to)
    }
}

/// "system namespace or Universal => `system`; every `to[]` item is MeshService by `name` in own/omitted namespace => `producer`;
/// none => `consumer`". The label `kuma.io/policy-role` counts in universal documents, which operators write; whoever writes a policy on
/// Kubernetes could write there what they like.
fn role(route: &MeshRoute) -> PolicyRole {
    if is_universal(&route.metadata) {
        return match route.metadata.labels.get(POLICY_ROLE_LABEL) {
            Some("producer") => PolicyRole::Producer,
            Some("consumer") => PolicyRole::Consumer,
            Some("workload-owner") => PolicyRole::WorkloadOwner,
            _ => PolicyRole::System,
        };
    }
    let own = match home_namespace(&route.metadata) {
        None | Some(SYSTEM_NAMESPACE) => return PolicyRole::System,
        Some(namespace) => namespace,
    };
    let is_own = |target: &TargetRef| {
        let Some(name) = target.name.as_deref() else {
            return false;
        };
        let legacy = KubernetesService::parse(name).map(|service| service.namespace);
        let namespace = target.namespace.as_deref().or(legacy).unwrap_or(own);
        target.kind == TargetKind::MeshService && namespace == own
    };
    match route.spec.to.iter().all(|to| is_own(&to.target_ref)) {
        true => PolicyRole::Producer,
        false => PolicyRole::Consumer,
    }
}

/// One of a policy's `to`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToItem<'p> {
    /// The policy.
    pub policy: &'p MeshPolicy,
    /// Its place.
    pub to: usize,
}

impl<'p> ToItem<'p> {
    /// What it says.
    pub fn to(&self) -> &'p pointsman_resources::kuma::To {
        &self.policy.route.spec.to[self.to]
    }

    /// How it compares with another: less is stronger. Nothing of it depends on when a policy came.
    pub fn compare(&self, other: &ToItem<'_>) -> Ordering {
        let (a, b) = (self, other);
        let top = |item: &ToItem<'_>| {
            let target = &item.policy.route.spec.target_ref;
            // "both Dataplane: labels < name; without sectionName < with"
            let dataplane = target.kind == TargetKind::Dataplane;
            // "between two MeshGateway refs more tags wins"
            let gateway = target.kind == TargetKind::MeshGateway;
            (
                target.kind,
                dataplane && target.name.is_some(),
                dataplane && target.section_name.is_some(),
                if gateway { target.tags.len() } else { 0 },
            )
        };
        let to = |item: &ToItem<'_>| {
            let target = &item.to().target_ref;
            (target.kind, target.section_name.is_some())
        };
        let name = |item: &ToItem<'_>| display_name(&item.policy.route.metadata).to_owned();
        top(b)
            .cmp(&top(a))
            .then_with(|| b.policy.origin.cmp(&a.policy.origin))
            .then_with(|| b.policy.role.cmp(&a.policy.role))
            .then_with(|| to(b).cmp(&to(a)))
            // "the lexicographically smaller name wins"
            .then_with(|| name(a).cmp(&name(b)))
            .then_with(|| a.policy.key.cmp(&b.policy.key))
            // "later item wins"
            .then_with(|| b.to.cmp(&a.to))
    }
}
