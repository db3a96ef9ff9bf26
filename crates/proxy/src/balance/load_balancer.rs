//! The endpoints of one backend, and which of them gets the next request.
//!
//! Two are drawn at random and the one with less to do is taken, by outstanding requests times latency: nearly as good as asking all,
//! at the cost of asking two, and no herd runs to the one that looks best. Who may be drawn is decided in tiers: ready ones that are well;
//! if there are none, all ready ones; terminating ones only if there is no other.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use super::health::{BalancerPolicy, Health};
use super::latency::Latency;

/// Draws before all endpoints are gone through.
const MAX_DRAWS: usize = 3;

/// Whether an endpoint takes new requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Readiness {
    /// It does.
    Ready,
    /// It is about to end and still serves: only if there is no other.
    Terminating,
}

/// How a request to an endpoint ended, as far as the endpoint is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestOutcome {
    /// It answered after this time.
    Success(Duration),
    /// It could not be reached, broke off or answered with what counts as failure.
    Failure,
    /// Nothing can be said: the client went away.
    Cancelled,
}

/// An endpoint that was chosen. It stays valid as long as one likes; once the endpoint is gone, it stands for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EndpointHandle {
    slot: u32,
    generation: u32,
}

/// The endpoints of a backend.
#[derive(Debug, Clone)]
pub struct LoadBalancer<K> {
    policy: BalancerPolicy,
    slots: Vec<Slot<K>>,
    free: Vec<u32>,
    ready: Vec<u32>,
    terminating: Vec<u32>,
}

#[derive(Debug, Clone)]
struct Slot<K> {
    generation: u32,
    endpoint: Option<EndpointState<K>>,
}

#[derive(Debug, Clone)]
struct EndpointState<K> {
    key: K,
    outstanding: u32,
    latency: Latency,
    health: Health,
    /// When it came, unless it came with the first ones: there is no one to take its share meanwhile.
    added: Option<Duration>,
}

impl<K: Eq + Hash + Clone> LoadBalancer<K> {
    /// None yet.
    pub fn new(policy: BalancerPolicy) -> Self {
        LoadBalancer {
            policy,
            slots: Vec::new(),
            free: Vec::new(),
            ready: Vec::new(),
            terminating: Vec::new(),
        }
    }

    /// These are the endpoints from now on. Those that were there before keep what is known of them.
    pub fn update(&mut self, now: Duration, endpoints: impl IntoIterator<Item = (K, Readiness)>) {
        let first = self.ready.is_empty() && self.terminating.is_empty();
        let old = self.ready.drain(..).chain(self.terminating.drain(..));
        let mut removed: HashMap<K, u32> = old
            .filter_map(|slot| {
                let endpoint = self.slots[slot as usize].endpoint.as_ref()?;
                Some((endpoint.key.clone(), slot))
            })
            .collect();
        let mut seen = HashMap::new();
        for (key, readiness) in endpoints {
            if seen.contains_key(&key) {
                continue;
            }
            let slot = match removed.remove(&key) {
                Some(slot) => slot,
                None => self.insert(key.clone(), (!first).then_some(now)),
            };
            seen.insert(key, slot);
            match readiness {
                Readiness::Ready => self.ready.push(slot),
                Readiness::Terminating => self.terminating.push(slot),
            }
        }
        for slot in removed.into_values() {
            let gone = &mut self.slots[slot as usize];
            gone.endpoint = None;
            gone.generation = gone.generation.wrapping_add(1);
            self.free.push(slot);
        }
    }

    fn insert(&mut self, key: K, added: Option<Duration>) -> u32 {
        let endpoint = Some(EndpointState {
            key,
            outstanding: 0,
            latency: Latency::default(),
            health: Health::default(),
            added,
        });
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize].endpoint = endpoint;
            return slot;
        }
        self.slots.push(Slot {
            generation: 0,
            endpoint,
        });
        self.slots.len() as u32 - 1
    }

    /// How many there are, terminating ones included.
    pub fn len(&self) -> usize {
        self.ready.len() + self.terminating.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reports whether an endpoint is there, terminating ones included.
    pub fn contains(&self, key: &K) -> bool {
        let mut all = self.ready.iter().chain(&self.terminating);
        all.any(|slot| self.get(*slot).is_some_and(|endpoint| endpoint.key == *key))
    }

    /// The endpoint that was chosen, if it is still there.
    pub fn key(&self, handle: EndpointHandle) -> Option<&K> {
        self.at(handle).map(|endpoint| &endpoint.key)
    }

    /// Requests that are on their way to it.
    pub fn outstanding(&self, handle: EndpointHandle) -> u32 {
        self.at(handle).map_or(0, |endpoint| endpoint.outstanding)
    }

    /// How many are set aside or on trial.
    pub fn ejected(&self) -> usize {
        self.ready
            .iter()
            .chain(&self.terminating)
            .filter(|slot| {
                self.get(**slot)
                    .is_some_and(|endpoint| endpoint.health.is_ejected())
            })
            .count()
    }

    /// Chooses an endpoint for a request and counts the request as outstanding there; [`Endpoints::finish`] takes it back. Endpoints that
    /// `tried` names are taken only if there is no other: a retry goes elsewhere.
    pub fn select(
        &mut self,
        now: Duration,
        tried: &[K],
        mut random: impl FnMut() -> u64,
    ) -> Option<EndpointHandle> {
        let untried = |endpoint: &EndpointState<K>| !tried.contains(&endpoint.key);
        let healthy = |endpoint: &EndpointState<K>| endpoint.health.is_usable(now);
        let slot = [&self.ready, &self.terminating]
            .into_iter()
            .find_map(|candidates| {
                self.draw(candidates, now, &mut random, |endpoint| {
                    healthy(endpoint) && untried(endpoint)
                })
                .or_else(|| self.draw(candidates, now, &mut random, untried))
                .or_else(|| self.draw(candidates, now, &mut random, healthy))
                .or_else(|| self.draw(candidates, now, &mut random, |_| true))
            })?;
        let Slot {
            generation,
            endpoint,
        } = &mut self.slots[slot as usize];
        let endpoint = endpoint.as_mut()?;
        endpoint.outstanding += 1;
        endpoint.health.start_request(now);
        Some(EndpointHandle {
            slot,
            generation: *generation,
        })
    }

    /// The endpoint answered after this time, and what was begun goes on, such as a stream: it stays outstanding until [`Endpoints::finish`].
    pub fn record_response(&mut self, handle: EndpointHandle, now: Duration, latency: Duration) {
        let policy = self.policy;
        if let Some(endpoint) = self.at_mut(handle) {
            endpoint.latency.observe(latency, now, policy.decay);
            endpoint.health.record_success(now, &policy);
        }
    }

    /// A request has ended. Returns whether this set the endpoint aside.
    pub fn finish(
        &mut self,
        handle: EndpointHandle,
        now: Duration,
        outcome: RequestOutcome,
    ) -> bool {
        let policy = self.policy;
        let Some(endpoint) = self.at_mut(handle) else {
            return false;
        };
        endpoint.outstanding = endpoint.outstanding.saturating_sub(1);
        match outcome {
            RequestOutcome::Success(latency) => {
                endpoint.latency.observe(latency, now, policy.decay);
                endpoint.health.record_success(now, &policy);
                false
            }
            RequestOutcome::Failure => endpoint.health.record_failure(now, &policy),
            RequestOutcome::Cancelled => {
                endpoint.health.record_cancellation(now);
                false
            }
        }
    }

    fn get(&self, slot: u32) -> Option<&EndpointState<K>> {
        self.slots.get(slot as usize)?.endpoint.as_ref()
    }

    fn at(&self, handle: EndpointHandle) -> Option<&EndpointState<K>> {
        let slot = self.slots.get(handle.slot as usize)?;
        slot.endpoint
            .as_ref()
            .filter(|_| slot.generation == handle.generation)
    }

    fn at_mut(&mut self, handle: EndpointHandle) -> Option<&mut EndpointState<K>> {
        let slot = self.slots.get_mut(handle.slot as usize)?;
        let same = slot.generation == handle.generation;
        slot.endpoint.as_mut().filter(|_| same)
    }

    /// The better of two that are drawn from those that `may` be.
    fn draw(
        &self,
        candidates: &[u32],
        now: Duration,
        random: &mut impl FnMut() -> u64,
        is_eligible: impl Fn(&EndpointState<K>) -> bool,
    ) -> Option<u32> {
        let is_eligible = |slot: u32| self.get(slot).is_some_and(&is_eligible);
        match candidates {
            [] => return None,
            [only] => return Some(*only).filter(|slot| is_eligible(*slot)),
            _ => {}
        }
        for _ in 0..MAX_DRAWS {
            let first = below(candidates.len(), random());
            let second = (first + 1 + below(candidates.len() - 1, random())) % candidates.len();
            let (first, second) = (candidates[first], candidates[second]);
            if is_eligible(first) && is_eligible(second) {
                return Some(self.less_loaded(first, second, now, random));
            }
        }
        // Many may not be drawn. Two of those that may, each pair as likely as any other, in one pass.
        let mut pair = [None, None];
        for (count, slot) in candidates
            .iter()
            .copied()
            .filter(|slot| is_eligible(*slot))
            .enumerate()
        {
            match count {
                0 | 1 => pair[count] = Some(slot),
                _ => {
                    let at = below(count + 1, random());
                    if at < 2 {
                        pair[at] = Some(slot);
                    }
                }
            }
        }
        match pair {
            [Some(first), Some(second)] => Some(self.less_loaded(first, second, now, random)),
            [one, _] => one,
        }
    }

    fn less_loaded(
        &self,
        first: u32,
        second: u32,
        now: Duration,
        random: &mut impl FnMut() -> u64,
    ) -> u32 {
        let (Some(a), Some(b)) = (self.get(first), self.get(second)) else {
            return first;
        };
        // A new endpoint that is drawn is passed over, more rarely as time goes by.
        match (
            self.is_held_back(a, now, random),
            self.is_held_back(b, now, random),
        ) {
            (true, false) => return second,
            (false, true) => return first,
            _ => {}
        }
        let (mut load, mut other) = (
            f64::from(a.outstanding) + 1.0,
            f64::from(b.outstanding) + 1.0,
        );
        // Nothing is known of an endpoint that has not answered yet: then requests alone count.
        if let (Some(a), Some(b)) = (
            a.latency.get(now, self.policy.decay),
            b.latency.get(now, self.policy.decay),
        ) {
            load *= a;
            other *= b;
        }
        if load <= other { first } else { second }
    }

    fn is_held_back(
        &self,
        endpoint: &EndpointState<K>,
        now: Duration,
        random: &mut impl FnMut() -> u64,
    ) -> bool {
        let Some(added) = endpoint.added else {
            return false;
        };
        let age = now.saturating_sub(added);
        if age >= self.policy.slow_start {
            return false;
        }
        let share = age.as_secs_f64() / self.policy.slow_start.as_secs_f64();
        (random() >> 11) as f64 / (1u64 << 53) as f64 > share.max(0.05)
    }
}

/// A number below `bound`, from a random one.
fn below(bound: usize, random: u64) -> usize {
    ((u128::from(random) * bound as u128) >> 64) as usize
}
