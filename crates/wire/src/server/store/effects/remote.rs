//! Effects of routes on the proxies of other controllers, and merging them with those on the proxies of this controller.
//!
//! An effect refers to a version of the route. If another controller has another version,
//! its effect does not apply: the change has not reached one of the two controllers yet. After the grace period, that controller's proxies are reported as lagging.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use pointsman_binding::status::effect::join;
use pointsman_binding::{Effect, OutdatedProxies, RouteEffect};
use pointsman_resources::ObjectKey;
use tokio::time::Instant;

use crate::server::store::Store;

/// Effect of a version of a route on the proxies of one controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteEffect {
    /// Hash of the route's resources.
    pub version: u64,
    /// `None` if the route is attached to nothing.
    pub effect: Option<Arc<RouteEffect>>,
}

/// Effects on the proxies of another controller.
#[derive(Debug, Default)]
struct ControllerEffects {
    /// True if it encodes resources as this process does, so that versions are comparable.
    is_comparable: bool,
    has_proxies: bool,
    /// True if it has sent everything and is connected.
    is_current: bool,
    routes: HashMap<ObjectKey, RemoteEffect>,
}

/// Effects on the proxies of all other controllers.
#[derive(Debug, Default)]
pub(super) struct RemoteEffects(BTreeMap<Arc<str>, ControllerEffects>);

/// State of a route on this controller.
pub(super) struct LocalState<'o> {
    pub key: &'o ObjectKey,
    pub version: u64,
    pub effect: Option<&'o Arc<RouteEffect>>,
    /// Start of the lag in seconds since the Unix epoch, set once the grace period has passed.
    pub overdue: Option<i64>,
}

impl RemoteEffects {
    /// Merges the effects of a route on all proxies. Returns also whether all controllers have the same version.
    pub(super) fn merge(&self, local: &LocalState<'_>) -> (Option<Arc<RouteEffect>>, bool) {
        let Some(local_effect) = local.effect else {
            return (None, true);
        };
        let (mut merged, mut same_version) = (local_effect.clone(), true);
        for (controller, remote) in &self.0 {
            let theirs = remote.routes.get(local.key);
            let same =
                theirs.filter(|theirs| theirs.version == local.version || !remote.is_comparable);
            match same {
                Some(RemoteEffect {
                    effect: Some(effect),
                    ..
                }) => merged = join_routes(merged, effect),
                Some(_) => {}
                None if !remote.has_proxies || !remote.is_comparable => {}
                None => {
                    same_version = false;
                    let effect = match local.overdue.filter(|_| remote.is_current) {
                        Some(since) => lagging(controller, since),
                        None => Effect::Pending,
                    };
                    merged = join_routes(merged, &Arc::new(RouteEffect::Uniform(effect)));
                }
            }
        }
        (Some(merged), same_version)
    }
}

fn lagging(controller: &str, since: i64) -> Effect {
    let name = format!("the proxies of replica {controller}");
    Effect::Partial(Arc::new(OutdatedProxies {
        lagging: BTreeSet::from([name.into()]),
        since: Some(since),
        ..OutdatedProxies::default()
    }))
}

/// Joins the effects of a route on the proxies of two controllers.
fn join_routes(one: Arc<RouteEffect>, other: &Arc<RouteEffect>) -> Arc<RouteEffect> {
    use RouteEffect::{PerFrontend, Uniform};
    if one == *other {
        return one;
    }
    let pair = |one: &Effect, other: &Effect| {
        let joined = join([one, other].into_iter());
        joined.unwrap_or(Effect::NoProxy)
    };
    let joined = match (&*one, &**other) {
        (Uniform(one), Uniform(other)) => return Arc::new(Uniform(pair(one, other))),
        (Uniform(uniform), PerFrontend(all)) | (PerFrontend(all), Uniform(uniform)) => {
            let all = all.iter();
            all.map(|(id, effect)| (id.clone(), pair(effect, uniform)))
                .collect()
        }
        (PerFrontend(one), PerFrontend(other)) => {
            let mut joined = one.clone();
            for (id, effect) in other {
                let known = joined.entry(id.clone()).or_insert(Effect::NoProxy);
                *known = pair(known, effect);
            }
            joined
        }
    };
    let mut effects = joined.values();
    let first = effects.next().cloned();
    Arc::new(match first.filter(|first| effects.all(|e| e == first)) {
        Some(uniform) => Uniform(uniform),
        None => PerFrontend(joined),
    })
}

fn has_proxy(effect: &RemoteEffect) -> bool {
    match effect.effect.as_deref() {
        None | Some(RouteEffect::Uniform(Effect::NoProxy)) => false,
        Some(_) => true,
    }
}

/// Reports of other controllers.
impl Store {
    /// Starts the reports of a controller. Discards its earlier state.
    pub fn start_remote(&mut self, controller: &Arc<str>, is_comparable: bool, now: Instant) {
        let remote = self.effects.remote.0.entry(controller.clone()).or_default();
        *remote = ControllerEffects {
            is_comparable,
            has_proxies: remote.has_proxies,
            ..ControllerEffects::default()
        };
        self.schedule_all(now);
    }

    /// Records whether any proxy is connected to a controller.
    pub fn record_remote_proxies(&mut self, controller: &str, has_proxies: bool, now: Instant) {
        let remote = self.effects.remote.0.get_mut(controller);
        if remote.is_some_and(|r| std::mem::replace(&mut r.has_proxies, has_proxies) != has_proxies)
        {
            self.schedule_all(now);
        }
    }

    /// Records that a controller has sent everything, or that the connection to it was lost.
    pub fn record_remote_current(&mut self, controller: &str, is_current: bool, now: Instant) {
        let remote = self.effects.remote.0.get_mut(controller);
        if remote.is_some_and(|r| std::mem::replace(&mut r.is_current, is_current) != is_current) {
            self.schedule_all(now);
        }
    }

    /// Records the effect of a route on the proxies of a controller. `None` if the route does not exist there.
    pub fn record_remote_effect(
        &mut self,
        controller: &str,
        key: ObjectKey,
        effect: Option<RemoteEffect>,
        now: Instant,
    ) {
        if let Some(id) = self.effects.ids.get(&key).copied() {
            self.effects.schedule(id, now);
        }
        let Some(remote) = self.effects.remote.0.get_mut(controller) else {
            return;
        };
        match effect {
            Some(effect) => drop(remote.routes.insert(key, effect)),
            None => drop(remote.routes.remove(&key)),
        }
    }

    /// Ends the reports of a controller: its proxies are expected to connect elsewhere.
    pub fn end_remote(&mut self, controller: &str, now: Instant) {
        let Some(remote) = self.effects.remote.0.remove(controller) else {
            return;
        };
        for (key, effect) in remote.routes {
            if let Some(id) = self.effects.ids.get(&key).copied() {
                let pending = self.effects.schedule(id, now);
                if has_proxy(&effect) {
                    pending.disconnected = Some(now);
                }
            }
        }
        self.schedule_all(now);
    }

    /// Schedules all routes for examination.
    fn schedule_all(&mut self, now: Instant) {
        let ids: Vec<_> = self.effects.ids.values().copied().collect();
        for id in ids {
            self.effects.schedule(id, now);
        }
    }

    /// Returns the effect of a route on the proxies of another controller.
    pub fn remote_effect(&self, controller: &str, key: &ObjectKey) -> Option<&RemoteEffect> {
        self.effects.remote.0.get(controller)?.routes.get(key)
    }

    /// Returns the routes and policies that another controller has.
    pub fn remote_routes(&self, controller: &str) -> impl Iterator<Item = &ObjectKey> {
        let remote = self.effects.remote.0.get(controller).into_iter();
        remote.flat_map(|remote| remote.routes.keys())
    }

    /// Returns the effect of a route on the proxies of this controller. `None` if it has no resources.
    pub fn local_effect(&self, key: &ObjectKey) -> Option<RemoteEffect> {
        let route = self.effects.route(*self.effects.ids.get(key)?)?;
        Some(RemoteEffect {
            version: route.version,
            effect: route.local.clone(),
        })
    }

    /// Returns all routes and policies.
    pub fn local_routes(&self) -> impl Iterator<Item = &ObjectKey> {
        self.effects.ids.keys()
    }

    /// Takes the routes and policies whose version or effect on the proxies of this controller has changed since the last call.
    pub fn take_changed_routes(&mut self) -> Vec<ObjectKey> {
        std::mem::take(&mut self.effects.changed)
    }
}
