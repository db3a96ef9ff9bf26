//! Warnings that depend only on a policy or on its bound rules.

use std::collections::BTreeSet;

use pointsman_resources::kuma::TargetKind;

use super::policy::MeshPolicy;
use crate::bound::{BoundMatch, BoundRoute, PathPredicate, StringPredicate};

/// Warns about fields of a policy whose effect is surprising, regardless of other objects.
pub(super) fn warnings(policy: &MeshPolicy, warn: &mut impl FnMut(String, String)) {
    let route = &policy.route;
    let target = &route.spec.target_ref;
    if let TargetKind::MeshSubset | TargetKind::MeshService | TargetKind::MeshServiceSubset =
        target.kind
    {
        let kind = target.kind.name();
        let message = format!(
            "{kind} is deprecated as the kind of a top-level targetRef and removed in Kuma 3.0; use kind Dataplane with labels"
        );
        warn("spec.targetRef.kind".to_owned(), message);
    }
    if let (TargetKind::Dataplane, Some(name), true) =
        (target.kind, &target.name, policy.is_global())
    {
        let message = format!(
            "a policy of global origin selects Dataplane {name} by name, but names are unique only within a zone: Kuma selects no Dataplane, Pointsman every \
             Dataplane of this name; select by labels instead"
        );
        warn("spec.targetRef.name".to_owned(), message);
    }
    for (to, item) in route.spec.to.iter().enumerate() {
        for (index, rule) in item.rules.iter().enumerate() {
            let references = rule.default.backend_refs.as_deref().unwrap_or_default();
            if !references.is_empty() && references.iter().all(|reference| reference.weight == 0) {
                let outcome = match policy.is_http() {
                    true => "every request gets 503",
                    false => "every connection is closed",
                };
                let field = format!("{}.default.backendRefs", route.rule_field(to, index));
                warn(field, format!("all weights are 0, so {outcome}"));
            }
        }
    }
}

/// Returns whether the rules provably match every request.
pub(super) fn matches_every_request(route: &BoundRoute) -> bool {
    let matches = route.rules.iter().flat_map(|rule| &rule.matches);
    let open = matches.filter(|matched| matches_every_path(matched) && matched.query.is_empty());
    let open: Vec<&BoundMatch> = open.filter(|matched| matched.method.is_none()).collect();
    // A match on the presence of a header and one on its absence cover all requests together.
    let with = |test: StringPredicate| -> BTreeSet<&str> {
        let headers = open
            .iter()
            .filter_map(|matched| match &matched.headers[..] {
                [only] if only.value == test => Some(&*only.name),
                _ => None,
            });
        headers.collect()
    };
    open.iter().any(|matched| matched.headers.is_empty())
        || !with(StringPredicate::Present).is_disjoint(&with(StringPredicate::Absent))
}

fn matches_every_path(matched: &BoundMatch) -> bool {
    match &matched.path {
        PathPredicate::Any => true,
        PathPredicate::Prefix(prefix) => **prefix == *"/",
        PathPredicate::Regex(pattern) => matches!(pattern.as_str(), ".*" | "/.*"),
        PathPredicate::Exact(_) => false,
    }
}
