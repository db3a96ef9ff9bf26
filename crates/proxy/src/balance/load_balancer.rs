//! Load balancing over the endpoints of one backend.
//!
//! Two candidates are drawn at random and the one with less load, outstanding requests times latency, gets the request ("power of two choices"). This is nearly
//! as good as comparing all of them, costs a fraction, and avoids a thundering herd on the endpoint that looks best. Candidates come in tiers: healthy ready
//! endpoints, near ones before distant ones; if there are none, all ready ones; terminating ones only if no endpoint is ready.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use super::health::{BalancerPolicy, Health};
use super::latency::Latency;

/// Number of random draws before all endpoints are searched.
const MAX_DRAWS: usize = 3;

/// Readiness of an endpoint for new requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Readiness {
    Ready,
    /// Ready, but in another zone or on another node: used only if no near endpoint is healthy.
    Distant,
    /// Shutting down but still serving: used only if no endpoint is ready.
    Terminating,
}

/// The outcome of a request, as far as it concerns the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The endpoint responded after this time.
    Success(Duration),
    /// The endpoint could not be reached, closed the connection early or violated the protocol.
    Failure,
    /// Unknown: the client left first.
    Cancelled,
}

/// A handle of a selected endpoint. It may outlive the endpoint, and is then invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EndpointHandle {
    slot: u32,
    generation: u32,
}

/// The endpoints of a backend, with their load and health.
#[derive(Debug, Clone)]
pub struct LoadBalancer<K> {
    policy: BalancerPolicy,
    slots: Vec<EndpointSlot<K>>,
    free: Vec<u32>,
    ready: Vec<u32>,
    distant: Vec<u32>,
    terminating: Vec<u32>,
}

#[derive(Debug, Clone)]
struct EndpointSlot<K> {
    generation: u32,
    endpoint: Option<EndpointState<K>>,
}

#[derive(Debug, Clone)]
struct EndpointState<K> {
    key: K,
    outstanding: u32,
    latency: Latency,
    health: Health,
    /// Time at which the endpoint was added; `None` for the initial ones, which have no other endpoints to take their load during slow start.
    added: Option<Duration>,
}

impl<K: Eq + Hash + Clone> LoadBalancer<K> {
    /// Creates a balancer without endpoints.
    pub fn new(policy: BalancerPolicy) -> Self {
        LoadBalancer {
            policy,
            slots: Vec::new(),
            free: Vec::new(),
            ready: Vec::new(),
            distant: Vec::new(),
            terminating: Vec::new(),
        }
    }

    /// Replaces the endpoints. Those that stay keep their load, latency and health.
    pub fn update(&mut self, now: Duration, endpoints: impl IntoIterator<Item = (K, Readiness)>) {
        let first = self.all().next().is_none();
        let old = self.ready.drain(..).chain(self.distant.drain(..));
        let old = old.chain(self.terminating.drain(..));
        let mut removed: HashMap<K, u32> = old
            .filter_map(|slot| {
                let endpoint = self.slots[slot as usize].endpoint.as_ref()?;
                Some((endpoint.key.clone(), slot))
            })
            .collect();
        let mut present = HashMap::new();
        for (key, readiness) in endpoints {
            if present.contains_key(&key) {
                continue;
            }
            let slot = match removed.remove(&key) {
                Some(slot) => slot,
                None => self.insert(key.clone(), (!first).then_some(now)),
            };
            present.insert(key, slot);
            match readiness {
                Readiness::Ready => self.ready.push(slot),
                Readiness::Distant => self.distant.push(slot),
                Readiness::Terminating => self.terminating.push(slot),
            }
        }
        for index in removed.into_values() {
            let slot = &mut self.slots[index as usize];
            slot.endpoint = None;
            slot.generation = slot.generation.wrapping_add(1);
            self.free.push(index);
        }
    }

    /// Slots of all endpoints.
    fn all(&self) -> impl Iterator<Item = u32> {
        let ready = self.ready.iter().chain(&self.distant);
        ready.chain(&self.terminating).copied()
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
        self.slots.push(EndpointSlot {
            generation: 0,
            endpoint,
        });
        self.slots.len() as u32 - 1
    }

    /// Returns the number of endpoints, including terminating ones.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.all().count()
    }

    /// Returns whether an endpoint is present, terminating or not.
    pub fn contains(&self, key: &K) -> bool {
        let mut all = self.all();
        all.any(|slot| self.get(slot).is_some_and(|endpoint| endpoint.key == *key))
    }

    /// Returns the selected endpoint, if it is still present.
    pub fn key(&self, handle: EndpointHandle) -> Option<&K> {
        self.at(handle).map(|endpoint| &endpoint.key)
    }

    /// Requests in progress.
    #[cfg(test)]
    pub fn outstanding(&self, handle: EndpointHandle) -> u32 {
        self.at(handle).map_or(0, |endpoint| endpoint.outstanding)
    }

    /// Returns the number of ejected endpoints, including those being probed.
    #[cfg(test)]
    pub fn ejected(&self) -> usize {
        let ejected = |slot: &u32| {
            self.get(*slot)
                .is_some_and(|endpoint| endpoint.health.is_ejected())
        };
        self.all().filter(ejected).count()
    }

    /// Selects an endpoint and counts a request as outstanding there until [`finish`](Self::finish). Endpoints in `tried` are used only if there is no other,
    /// so that a retry uses a different endpoint.
    pub fn select(
        &mut self,
        now: Duration,
        tried: &[K],
        mut random: impl FnMut() -> u64,
    ) -> Option<EndpointHandle> {
        let untried = |endpoint: &EndpointState<K>| !tried.contains(&endpoint.key);
        let healthy = |endpoint: &EndpointState<K>| endpoint.health.is_usable(now);
        let both = |endpoint: &EndpointState<K>| healthy(endpoint) && untried(endpoint);
        let tiers = [
            &[self.ready.as_slice(), self.distant.as_slice()][..],
            &[self.terminating.as_slice()],
        ];
        let slot = tiers.into_iter().find_map(|tier| {
            self.draw_first(tier, now, &mut random, both)
                .or_else(|| self.draw_first(tier, now, &mut random, untried))
                .or_else(|| self.draw_first(tier, now, &mut random, healthy))
                .or_else(|| self.draw_first(tier, now, &mut random, |_| true))
        })?;
        let EndpointSlot {
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

    /// Records a response after `latency` to a request that continues, such as a stream: it stays outstanding until [`finish`](Self::finish).
    pub fn record_response(&mut self, handle: EndpointHandle, now: Duration, latency: Duration) {
        let policy = self.policy;
        if let Some(endpoint) = self.at_mut(handle) {
            endpoint.latency.observe(latency, now, policy.decay);
            endpoint.health.record_success(now, &policy);
        }
    }

    /// Records the end of a request. Returns true if this ejected the endpoint.
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

    /// Draws from the first list that has an eligible candidate.
    fn draw_first(
        &self,
        lists: &[&[u32]],
        now: Duration,
        random: &mut impl FnMut() -> u64,
        is_eligible: impl Fn(&EndpointState<K>) -> bool + Copy,
    ) -> Option<u32> {
        let mut lists = lists.iter();
        lists.find_map(|candidates| self.draw(candidates, now, random, is_eligible))
    }

    /// Draws two eligible candidates and returns the less loaded one.
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
        // Few are eligible: selects two of them in one pass, each pair with equal probability (reservoir sampling).
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
        // Slow start: a new endpoint loses the comparison, less often as it ages.
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
        // An endpoint without a response has no latency: compare outstanding requests only.
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

/// Maps a random number to one below `bound`.
fn below(bound: usize, random: u64) -> usize {
    ((u128::from(random) * bound as u128) >> 64) as usize
}
