//! Tests of load balancing, ejection and recovery.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Returns a reproducible pseudo-random number generator (SplitMix64).
fn random(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

const ZERO: Duration = Duration::ZERO;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn ready(names: &[&'static str]) -> LoadBalancer<&'static str> {
    let mut endpoints = LoadBalancer::new(BalancerPolicy::default());
    endpoints.update(ZERO, names.iter().map(|name| (*name, Readiness::Ready)));
    endpoints
}

/// Counts how often each endpoint is selected for `count` requests, one after the other.
fn shares(
    endpoints: &mut LoadBalancer<&'static str>,
    now: Duration,
    count: usize,
) -> BTreeMap<&'static str, usize> {
    let mut random = random(7);
    let mut shares = BTreeMap::new();
    for _ in 0..count {
        let handle = endpoints.select(now, &[], &mut random).unwrap();
        *shares.entry(*endpoints.key(handle).unwrap()).or_default() += 1;
        endpoints.finish(handle, now, RequestOutcome::Cancelled);
    }
    shares
}

/// Fails requests until this endpoint is ejected.
fn eject(endpoints: &mut LoadBalancer<&'static str>, name: &'static str, now: Duration) {
    let mut random = random(1);
    for _ in 0..10_000 {
        let handle = endpoints.select(now, &[], &mut random).unwrap();
        let outcome = match endpoints.key(handle) {
            Some(key) if *key == name => RequestOutcome::Failure,
            _ => RequestOutcome::Cancelled,
        };
        if endpoints.finish(handle, now, outcome) {
            return;
        }
    }
    panic!("{name} was never ejected");
}

#[test]
fn without_endpoints_none_is_selected() {
    let mut endpoints = ready(&[]);
    assert_eq!(endpoints.len(), 0);
    assert_eq!(endpoints.select(ZERO, &[], random(1)), None);
}

#[test]
fn equal_endpoints_share_equally() {
    let shares = shares(&mut ready(&["a", "b", "c", "d"]), ZERO, 4000);
    assert!(
        shares.len() == 4 && shares.values().all(|share| (850..1150).contains(share)),
        "{shares:?}"
    );
}

#[test]
fn outstanding_requests_are_spread() {
    let mut endpoints = ready(&["a", "b", "c", "d"]);
    let mut random = random(3);
    let handles: Vec<_> = (0..400)
        .map(|_| endpoints.select(ZERO, &[], &mut random).unwrap())
        .collect();
    for handle in &handles {
        assert!(
            (90..110).contains(&endpoints.outstanding(*handle)),
            "{}",
            endpoints.outstanding(*handle)
        );
    }
    for handle in &handles {
        endpoints.finish(*handle, ZERO, RequestOutcome::Cancelled);
    }
    assert_eq!(endpoints.outstanding(handles[0]), 0);
}

#[test]
fn a_slow_endpoint_gets_less_traffic_until_its_latency_decays() {
    let mut endpoints = ready(&["fast", "slow"]);
    let mut random = random(5);
    for _ in 0..50 {
        let handle = endpoints.select(ZERO, &[], &mut random).unwrap();
        let took = if *endpoints.key(handle).unwrap() == "slow" {
            100
        } else {
            1
        };
        endpoints.finish(
            handle,
            ZERO,
            RequestOutcome::Success(Duration::from_millis(took)),
        );
    }
    let now = shares(&mut endpoints, ZERO, 100);
    assert_eq!(now.get("slow"), None);
    // The fast endpoint keeps responding, while the latency of the slow one decays.
    let mut tried = false;
    for second in 0..120 {
        let handle = endpoints.select(seconds(second), &[], &mut random).unwrap();
        tried |= *endpoints.key(handle).unwrap() == "slow";
        endpoints.finish(
            handle,
            seconds(second),
            RequestOutcome::Success(Duration::from_millis(1)),
        );
    }
    assert!(tried);
}

#[test]
fn consecutive_failures_eject_an_endpoint_for_longer_each_time() {
    let mut endpoints = ready(&["bad", "good"]);
    eject(&mut endpoints, "bad", ZERO);
    assert_eq!(endpoints.ejected(), 1);
    let mut now = ZERO;
    for ejected in [5, 10, 20, 40, 80, 160, 300, 300] {
        now += seconds(ejected);
        assert_eq!(
            shares(&mut endpoints, now - Duration::from_millis(1), 200).get("bad"),
            None,
            "ejected for {ejected} s"
        );
        // One request probes it; the others go elsewhere meanwhile.
        let mut random = random(9);
        let handles: Vec<_> = (0..200)
            .map(|_| endpoints.select(now, &[], &mut random).unwrap())
            .collect();
        let (probes, others): (Vec<_>, Vec<_>) = handles
            .into_iter()
            .partition(|handle| endpoints.key(*handle) == Some(&"bad"));
        assert_eq!(probes.len(), 1);
        for other in others {
            endpoints.finish(other, now, RequestOutcome::Cancelled);
        }
        assert!(endpoints.finish(probes[0], now, RequestOutcome::Failure));
    }
}

#[test]
fn a_successful_probe_returns_the_endpoint_to_rotation() {
    let mut endpoints = ready(&["bad", "good"]);
    eject(&mut endpoints, "bad", ZERO);
    let mut random = random(2);
    let probe = endpoints
        .select(seconds(5), &["good"], &mut random)
        .unwrap();
    assert_eq!(endpoints.key(probe), Some(&"bad"));
    // The client leaves: another request probes it.
    endpoints.finish(probe, seconds(5), RequestOutcome::Cancelled);
    let probe = endpoints
        .select(seconds(5), &["good"], &mut random)
        .unwrap();
    endpoints.finish(probe, seconds(5), RequestOutcome::Success(ZERO));
    assert_eq!(endpoints.ejected(), 0);
    // A single failure does not eject it.
    let handle = endpoints
        .select(seconds(5), &["good"], &mut random)
        .unwrap();
    assert!(!endpoints.finish(handle, seconds(5), RequestOutcome::Failure));
}

#[test]
fn a_success_resets_the_count_of_failures() {
    let mut endpoints = ready(&["a"]);
    for at in 0..100 {
        let handle = endpoints.select(ZERO, &[], random(at)).unwrap();
        let outcome = if at % 5 == 4 {
            RequestOutcome::Success(ZERO)
        } else {
            RequestOutcome::Failure
        };
        assert!(!endpoints.finish(handle, ZERO, outcome));
    }
}

#[test]
fn if_all_endpoints_are_ejected_all_are_used() {
    let mut endpoints = ready(&["a", "b", "c"]);
    for name in ["a", "b", "c"] {
        eject(&mut endpoints, name, ZERO);
    }
    assert_eq!(endpoints.ejected(), 3);
    assert_eq!(shares(&mut endpoints, seconds(1), 300).len(), 3);
}

#[test]
fn terminating_endpoints_are_used_only_if_no_endpoint_is_ready() {
    let mut endpoints = ready(&["a"]);
    endpoints.update(
        ZERO,
        [("a", Readiness::Ready), ("t", Readiness::Terminating)],
    );
    assert_eq!(shares(&mut endpoints, ZERO, 100).len(), 1);
    eject(&mut endpoints, "a", ZERO);
    assert!(
        shares(&mut endpoints, ZERO, 100).contains_key("a"),
        "an ejected endpoint is preferred to a terminating one"
    );
    endpoints.update(
        ZERO,
        [("a", Readiness::Terminating), ("t", Readiness::Terminating)],
    );
    assert_eq!(shares(&mut endpoints, ZERO, 100).len(), 1);
    endpoints.update(ZERO, [("t", Readiness::Terminating)]);
    assert_eq!(
        shares(&mut endpoints, ZERO, 100).keys().collect::<Vec<_>>(),
        [&"t"]
    );
}

#[test]
fn a_new_endpoint_starts_slowly() {
    let mut endpoints = ready(&["a", "b"]);
    let names = ["a", "b", "new"].map(|name| (name, Readiness::Ready));
    endpoints.update(seconds(100), names);
    let share = |endpoints: &mut _, at| {
        shares(endpoints, seconds(at), 3000)
            .get("new")
            .copied()
            .unwrap_or(0)
    };
    let (early, middle, late) = (
        share(&mut endpoints, 101),
        share(&mut endpoints, 105),
        share(&mut endpoints, 110),
    );
    assert!(early > 0 && early < 200, "{early}");
    assert!((early..800).contains(&middle), "{middle}");
    assert!((900..1100).contains(&late), "{late}");
    // Without other endpoints there is no slow start.
    assert_eq!(shares(&mut ready(&["a", "b"]), ZERO, 100).len(), 2);
}

#[test]
fn the_state_of_an_endpoint_survives_an_update_and_handles_do_not_survive_the_endpoint() {
    let mut endpoints = ready(&["a", "b"]);
    let handle = endpoints.select(ZERO, &["b"], random(1)).unwrap();
    endpoints.update(
        ZERO,
        [
            ("c", Readiness::Ready),
            ("a", Readiness::Ready),
            ("a", Readiness::Ready),
        ],
    );
    assert_eq!((endpoints.len(), endpoints.outstanding(handle)), (2, 1));
    endpoints.update(ZERO, [("d", Readiness::Ready)]);
    assert_eq!(
        (endpoints.key(handle), endpoints.outstanding(handle)),
        (None, 0)
    );
    assert!(!endpoints.finish(handle, ZERO, RequestOutcome::Failure));
    endpoints.update(ZERO, [("a", Readiness::Ready), ("d", Readiness::Ready)]);
    assert_eq!(endpoints.key(handle), None);
}

/// An operation on a balancer.
#[derive(Debug, Clone)]
enum Step {
    Update(Vec<(u8, bool)>),
    Select(Vec<u8>),
    Finish(usize, u8),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => vec((0..8u8, any::<bool>()), 0..8).prop_map(Step::Update),
        8 => vec(0..8u8, 0..3).prop_map(Step::Select),
        8 => (any::<usize>(), 0..3u8).prop_map(|(at, outcome)| Step::Finish(at, outcome)),
        1 => (0..20u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn the_best_tier_is_always_used(steps in vec(step(), 0..300), seed: u64) {
        let mut random = random(seed);
        let policy = BalancerPolicy { consecutive_failures: 2, ..BalancerPolicy::default() };
        let mut endpoints = LoadBalancer::new(policy);
        let mut present: BTreeMap<u8, bool> = BTreeMap::new();
        // Consecutive failures of healthy endpoints. An ejected endpoint that is still present leaves this map.
        let mut healthy: BTreeMap<u8, u32> = BTreeMap::new();
        // Time of the last ejection of the others.
        let mut ejected_at: BTreeMap<u8, Duration> = BTreeMap::new();
        let mut open = Vec::new();
        let mut now = ZERO;
        for step in steps {
            match step {
                Step::Update(list) => {
                    let mut wanted = BTreeMap::new();
                    for (key, terminating) in &list {
                        wanted.entry(*key).or_insert(*terminating);
                    }
                    let tier = |terminating| if terminating { Readiness::Terminating } else { Readiness::Ready };
                    endpoints.update(now, list.iter().map(|(key, terminating)| (*key, tier(*terminating))));
                    healthy.retain(|key, _| wanted.contains_key(key));
                    for key in wanted.keys().filter(|key| !present.contains_key(key)) {
                        healthy.insert(*key, 0);
                    }
                    present = wanted;
                }
                Step::Select(tried) => {
                    let Some(handle) = endpoints.select(now, &tried, &mut random) else {
                        prop_assert!(present.is_empty());
                        continue;
                    };
                    let key = *endpoints.key(handle).unwrap();
                    let any_ready = present.values().any(|terminating| !terminating);
                    prop_assert_eq!(present[&key], !any_ready, "terminating only if there is no other");
                    let same_tier = |other: &u8| present.get(other) == Some(&present[&key]) && !tried.contains(other);
                    let other_is_healthy = healthy.keys().any(&same_tier);
                    if other_is_healthy {
                        prop_assert!(!tried.contains(&key));
                        // An unhealthy endpoint is used only as a probe, after its ejection time.
                        prop_assert!(healthy.contains_key(&key) || now >= ejected_at[&key] + policy.base_ejection_time);
                    }
                    open.push((handle, key));
                }
                Step::Finish(at, outcome) if !open.is_empty() => {
                    let (handle, key) = open.swap_remove(at % open.len());
                    let gone = endpoints.key(handle).is_none();
                    let outcome = [RequestOutcome::Failure, RequestOutcome::Success(ZERO), RequestOutcome::Cancelled][usize::from(outcome)];
                    let ejected = endpoints.finish(handle, now, outcome);
                    prop_assert!(!(gone && ejected));
                    if !gone && let Some(failures) = healthy.get_mut(&key) {
                        match outcome {
                            RequestOutcome::Failure => *failures += 1,
                            RequestOutcome::Success(_) => *failures = 0,
                            RequestOutcome::Cancelled => {}
                        }
                        prop_assert_eq!(*failures >= policy.consecutive_failures, ejected);
                    }
                    if ejected {
                        healthy.remove(&key);
                        ejected_at.insert(key, now);
                    }
                }
                Step::Finish(..) => {}
                Step::Wait(time) => now += seconds(time),
            }
            prop_assert_eq!(endpoints.len(), present.len());
        }
    }
}

#[test]
fn distant_endpoints_are_used_only_while_no_near_one_is_healthy() {
    let mut endpoints = LoadBalancer::new(BalancerPolicy::default());
    let both = [("near", Readiness::Ready), ("far", Readiness::Distant)];
    endpoints.update(ZERO, both);
    assert_eq!(shares(&mut endpoints, ZERO, 100).get("near"), Some(&100));
    let retry = endpoints.select(ZERO, &["near"], random(1)).unwrap();
    assert_eq!(
        endpoints.key(retry),
        Some(&"far"),
        "a retry goes to another endpoint"
    );
    endpoints.finish(retry, ZERO, RequestOutcome::Cancelled);
    eject(&mut endpoints, "near", ZERO);
    assert_eq!(shares(&mut endpoints, ZERO, 100).get("far"), Some(&100));
    endpoints.update(
        ZERO,
        [("far", Readiness::Distant), ("end", Readiness::Terminating)],
    );
    assert_eq!(shares(&mut endpoints, ZERO, 100).get("far"), Some(&100));
}
