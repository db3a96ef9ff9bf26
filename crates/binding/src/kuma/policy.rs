//! The role of a policy and its strength compared with others.

use std::cmp::Ordering;
use std::sync::Arc;

use pointsman_resources::kuma::{
    EFFECT_LABEL, KubernetesService, MeshRoute, ORIGIN_LABEL, POLICY_ROLE_LABEL, SYSTEM_NAMESPACE,
    TargetKind, TargetRef, ZONE_TAG, display_name, home_namespace, is_universal,
};
use pointsman_resources::{Kind, ObjectKey};

/// A policy with the properties that are derived from it once.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MeshPolicy {
    pub key: ObjectKey,
    pub route: Arc<MeshRoute>,
    pub role: PolicyRole,
    /// Reason why it is not accepted: "If no rule is left: Accepted=False, `UnsupportedValue`".
    pub refused: Option<String>,
    origin: PolicyOrigin,
}

/// Role of a policy, least specific first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PolicyRole {
    /// Written by the mesh's operators.
    System,
    /// Written by the owner of the destination; applies to all clients.
    Producer,
    /// Written by the owner of clients; applies to clients in the policy's own namespace.
    Consumer,
    /// Like `Consumer`, for policies about the workload itself.
    WorkloadOwner,
}

/// Control plane that a policy was created on, least specific first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PolicyOrigin {
    Global,
    Unspecified,
    Zone,
}

impl MeshPolicy {
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

    /// Kubernetes namespace that the policy belongs to.
    pub fn namespace(&self) -> Option<&str> {
        home_namespace(&self.route.metadata)
    }

    /// Returns whether the policy is a dry run (`kuma.io/effect: shadow`).
    pub fn is_shadow(&self) -> bool {
        self.route.metadata.labels.get(EFFECT_LABEL) == Some("shadow")
    }

    /// Returns whether the policy applies at all: it is accepted and not a shadow policy.
    pub fn is_in_effect(&self) -> bool {
        !self.is_shadow() && self.refused.is_none()
    }

    /// Returns the namespace to whose proxies the policy is limited.
    pub fn only_namespace(&self) -> Option<&str> {
        self.namespace()
            .filter(|_| self.role >= PolicyRole::Consumer)
    }

    /// Returns whether the policy was created on the global control plane.
    pub fn is_global(&self) -> bool {
        self.origin == PolicyOrigin::Global
    }

    /// Returns the zone to whose proxies the policy is limited.
    pub fn zone(&self) -> Option<&str> {
        let zonal = self.origin == PolicyOrigin::Zone && self.role != PolicyRole::Producer;
        self.route.metadata.labels.get(ZONE_TAG).filter(|_| zonal)
    }

    /// Returns whether the policy targets the listeners of a MeshGateway.
    pub fn is_for_gateways(&self) -> bool {
        self.route.spec.target_ref.kind == TargetKind::MeshGateway
    }

    /// Returns whether the policy routes HTTP requests, not streams.
    pub fn is_http(&self) -> bool {
        self.key.kind != Kind::MeshTCPRoute
    }

    /// Returns the index of a `to` item as written, or `None` if the kind has no `to`.
    pub fn written_index(&self, to: usize) -> Option<usize> {
        (self.key.kind != Kind::MeshGatewayHTTPRoute).then_some(to)
    }
}

/// "system namespace or Universal => `system`; every `to[]` item is MeshService by `name` in own/omitted namespace => `producer`;
/// none => `consumer`". The label `kuma.io/policy-role` is trusted only in universal documents, which operators write: on Kubernetes any author of a policy
/// could set it.
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

/// An item of a policy's `to` list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToItem<'p> {
    pub policy: &'p MeshPolicy,
    /// Index in `to`.
    pub to: usize,
}

impl<'p> ToItem<'p> {
    pub fn to(&self) -> &'p pointsman_resources::kuma::To {
        &self.policy.route.spec.to[self.to]
    }

    /// Compares two items; the lesser is the more specific. The order does not depend on when policies were created.
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
