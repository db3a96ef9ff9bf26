//! The condition `pointsman.io/InEffect`: whether the proxies that serve a route run its current configuration.
//!
//! The control plane observes the effect of a route on each frontend that the route is attached to. Like the state of a Gateway, it is an input of the binder. This
//! module turns it into a condition for each parent. A condition with status `True` names neither proxies nor numbers, so it does not change when proxies are added.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pointsman_resources::ObjectKey;
use pointsman_resources::meta::to_rfc3339;

use super::{Condition, ConditionStatus, Status};
use crate::bound::FrontendId;
use crate::engine::store::Store;

/// Type of the condition.
pub const IN_EFFECT: &str = "pointsman.io/InEffect";

/// Reason while proxies have not acknowledged a change, for a short time.
const PENDING: &str = "Pending";

/// Reason while a proxy is expected to connect again, for a short time.
const RECONNECTING: &str = "Reconnecting";

/// Proxies and rejections that a message names.
pub const MAX_NAMED: usize = 5;

/// Effect of a route's current configuration on the proxies that serve a frontend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Every connected proxy runs it.
    InEffect,
    /// It was sent a moment ago, and some proxies have not acknowledged it yet.
    Pending,
    /// No proxy is connected, but one was a moment ago, or the control plane has just started.
    Reconnecting,
    /// No proxy is connected.
    NoProxy,
    /// Some proxies do not run it.
    Partial(Arc<OutdatedProxies>),
}

/// Proxies that do not run a route's current configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutdatedProxies {
    /// Names of proxies that have not acknowledged it; at most [`MAX_NAMED`].
    pub lagging: BTreeSet<Arc<str>>,
    /// True if there are more of them.
    pub has_more_lagging: bool,
    /// Time since which they lag, in seconds since the Unix epoch.
    pub since: Option<i64>,
    /// Resources that proxies have rejected: proxy, resource and reason; at most [`MAX_NAMED`].
    pub rejections: BTreeSet<(Arc<str>, Arc<str>, Arc<str>)>,
    /// True if there are more of them.
    pub has_more_rejections: bool,
}

impl OutdatedProxies {
    /// Adds the outdated proxies of another frontend.
    fn extend(&mut self, other: &OutdatedProxies) {
        self.has_more_lagging |= other.has_more_lagging;
        self.lagging.extend(other.lagging.iter().cloned());
        while self.lagging.len() > MAX_NAMED {
            self.lagging.pop_last();
            self.has_more_lagging = true;
        }
        self.since = match (self.since, other.since) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self.has_more_rejections |= other.has_more_rejections;
        self.rejections.extend(other.rejections.iter().cloned());
        while self.rejections.len() > MAX_NAMED {
            self.rejections.pop_last();
            self.has_more_rejections = true;
        }
    }

    fn message(&self) -> String {
        let mut parts = Vec::new();
        if !self.rejections.is_empty() {
            let all = self.rejections.iter();
            let all =
                all.map(|(proxy, resource, why)| format!("{proxy} rejects {resource}: {why}"));
            let mut text = all.collect::<Vec<_>>().join("; ");
            if self.has_more_rejections {
                text += "; and others";
            }
            parts.push(text);
        }
        if !self.lagging.is_empty() {
            let names: Vec<&str> = self.lagging.iter().map(|name| &**name).collect();
            let mut text = format!("not acknowledged by {}", names.join(", "));
            if self.has_more_lagging {
                text += " and others";
            }
            if let Some(since) = self.since {
                text += &format!(" since {}", to_rfc3339(since));
            }
            parts.push(text);
        }
        parts.join("; ")
    }
}

/// Effect of a route's or policy's current configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteEffect {
    /// The same on all frontends.
    Uniform(Effect),
    /// Different ones.
    PerFrontend(BTreeMap<FrontendId, Effect>),
}

impl RouteEffect {
    /// Returns the effect on some frontends together; `None` if it is not observed on any.
    fn on<'f>(&self, frontends: impl Iterator<Item = &'f FrontendId>) -> Option<Effect> {
        match self {
            RouteEffect::Uniform(effect) => Some(effect.clone()),
            RouteEffect::PerFrontend(all) => join(frontends.filter_map(|id| all.get(id))),
        }
    }
}

/// Joins effects on several frontends; `None` if there are none. Frontends without proxies do not count if others have some.
pub fn join<'e>(effects: impl Iterator<Item = &'e Effect>) -> Option<Effect> {
    let mut joined: Option<Effect> = None;
    for effect in effects {
        joined = Some(match (joined, effect) {
            (None, effect) => effect.clone(),
            (Some(Effect::Partial(mut one)), Effect::Partial(other)) => {
                Arc::make_mut(&mut one).extend(other);
                Effect::Partial(one)
            }
            (Some(one), other) if rank(&one) >= rank(other) => one,
            (Some(_), other) => other.clone(),
        });
    }
    joined
}

/// Determines which of two effects is reported.
fn rank(effect: &Effect) -> u8 {
    match effect {
        Effect::NoProxy => 0,
        Effect::Reconnecting => 1,
        Effect::InEffect => 2,
        Effect::Pending => 3,
        Effect::Partial(_) => 4,
    }
}

impl Effect {
    fn condition(&self) -> Condition {
        let new = |status: ConditionStatus, reason, message: &'static str| {
            Condition::new(IN_EFFECT, status, reason, message)
        };
        match self {
            Effect::InEffect => new(ConditionStatus::True, "InEffect", ""),
            Effect::Pending => new(
                ConditionStatus::Unknown,
                PENDING,
                "not acknowledged yet by all proxies that serve it",
            ),
            Effect::Reconnecting => new(
                ConditionStatus::Unknown,
                RECONNECTING,
                "waiting for the proxies that serve it to connect",
            ),
            Effect::NoProxy => new(
                ConditionStatus::Unknown,
                "NoProxyConnected",
                "no proxy that serves it is connected",
            ),
            Effect::Partial(outdated) => {
                let reason = match outdated.rejections.is_empty() {
                    true => "Lagging",
                    false => "Rejected",
                };
                Condition::no(IN_EFFECT, reason, outdated.message())
            }
        }
    }
}

impl Store {
    /// Returns the condition of a route with respect to a parent with these frontends; `None` if it is not observed.
    pub(crate) fn route_effect<'f>(
        &self,
        route: &ObjectKey,
        frontends: impl Iterator<Item = &'f FrontendId>,
    ) -> Option<Condition> {
        let mut frontends = frontends.peekable();
        frontends.peek()?;
        if self.effect_on_commit {
            return Some(Effect::InEffect.condition());
        }
        let effect = self.effects.get(route)?.on(frontends)?;
        Some(effect.condition())
    }

    /// Returns the condition of a Kuma policy; `None` if it is not observed.
    pub(crate) fn policy_effect(&self, policy: &ObjectKey, reaches: bool) -> Option<Condition> {
        if self.effect_on_commit {
            return reaches.then(|| Effect::InEffect.condition());
        }
        let effect = match &**self.effects.get(policy)? {
            RouteEffect::Uniform(effect) => effect.clone(),
            RouteEffect::PerFrontend(all) => join(all.values())?,
        };
        Some(effect.condition())
    }
}

/// Expectation that a status will change without a change of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExpectedChange {
    /// No change is expected.
    #[default]
    None,
    /// Proxies are expected to connect again.
    Reconnection,
    /// Proxies are expected to acknowledge a change.
    Acknowledgement,
}

impl Status {
    /// Returns the expected change of the status, apart from changes of the configuration. Until it occurs, the previous status is reported.
    pub fn expected_change(&self) -> ExpectedChange {
        let conditions = self.conditions();
        let effects = conditions.iter().map(|(_, condition)| condition);
        let effects = effects.filter(|condition| condition.kind == IN_EFFECT);
        let phases = effects.map(|condition| match condition.reason {
            PENDING => ExpectedChange::Acknowledgement,
            RECONNECTING => ExpectedChange::Reconnection,
            _ => ExpectedChange::None,
        });
        phases.max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lagging(names: &[&str], since: i64) -> Effect {
        Effect::Partial(Arc::new(OutdatedProxies {
            lagging: names.iter().map(|name| (*name).into()).collect(),
            since: Some(since),
            ..OutdatedProxies::default()
        }))
    }

    #[test]
    fn the_message_names_a_bounded_number_of_proxies_and_since_when_they_lag() {
        let (one, other) = (
            lagging(&["a", "b", "c"], 60),
            lagging(&["c", "d", "e", "f"], 0),
        );
        let condition = join([&one, &other].into_iter())
            .expect("an effect")
            .condition();
        assert_eq!(
            (condition.status, condition.reason),
            (ConditionStatus::False, "Lagging")
        );
        assert_eq!(
            condition.message,
            "not acknowledged by a, b, c, d, e and others since 1970-01-01T00:00:00Z"
        );
    }

    #[test]
    fn a_rejection_names_the_proxy_the_resource_and_the_reason() {
        let outdated = OutdatedProxies {
            rejections: [("edge-1".into(), "rule/a/0".into(), "no filter".into())].into(),
            ..OutdatedProxies::default()
        };
        let condition = Effect::Partial(Arc::new(outdated)).condition();
        assert_eq!(condition.reason, "Rejected");
        assert_eq!(condition.message, "edge-1 rejects rule/a/0: no filter");
    }

    // "True when every connected proxy that serves it runs this generation"; "Unknown when no proxy that serves it is connected"
    #[test]
    fn a_frontend_without_proxies_does_not_count_if_another_one_has_some() {
        let joined = |effects: &[Effect]| join(effects.iter()).expect("an effect");
        assert_eq!(
            joined(&[Effect::NoProxy, Effect::InEffect]),
            Effect::InEffect
        );
        assert_eq!(joined(&[Effect::NoProxy, Effect::NoProxy]), Effect::NoProxy);
        assert_eq!(
            joined(&[Effect::InEffect, lagging(&["a"], 0), Effect::Pending]),
            lagging(&["a"], 0)
        );
    }
}
