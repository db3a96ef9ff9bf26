//! The weights hold exactly, over all threads together.

mod common;

use std::thread;
use std::time::Duration;

use std::sync::Arc;

use common::*;
use pointsman_binding::bound::{Filter, Mirror, Protocol};
use pointsman_resources::route::Fraction;
use pointsman_routing::{Tables, WeightedSelector};
use proptest::collection::vec;
use proptest::prelude::*;

fn choices(weights: &[u32], count: usize) -> Vec<usize> {
    let split = WeightedSelector::new(weights.iter().copied());
    (0..count).map_while(|_| split.next()).collect()
}

#[test]
fn choices_are_spread() {
    assert_eq!(choices(&[1, 1], 4), [0, 1, 0, 1]);
    assert_eq!(choices(&[1, 1, 1], 4), [0, 1, 2, 0]);
    assert_eq!(choices(&[5, 1, 1], 7), [0, 0, 1, 0, 0, 2, 0]);
    assert_eq!(choices(&[90, 10], 10), [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(choices(&[0, 3, 0], 3), [1, 1, 1]);
    assert_eq!(choices(&[0, 0], 3), [] as [usize; 0]);
    assert_eq!(choices(&[], 3), [] as [usize; 0]);
    assert_eq!(choices(&[1_000_000, 1_000_000], 3), [0, 1, 0]);
    assert_eq!(choices(&[999_999, 0, 1_000_000], 4), [2, 0, 2, 0]);
}

#[test]
fn the_largest_weights_do_not_overflow() {
    let mut seen = [0; 64];
    for at in choices(&[u32::MAX; 64], 6400) {
        seen[at] += 1;
    }
    assert_eq!(seen, [100; 64]);
    let mut seen = [0; 4];
    let largest = u32::MAX - 4..u32::MAX;
    for at in choices(&largest.collect::<Vec<_>>(), 400) {
        seen[at] += 1;
    }
    assert_eq!(seen, [100; 4]);
}

#[test]
fn a_fraction_selects_exactly_its_share() {
    for (numerator, denominator) in [(0, 100), (1, 3), (20, 100), (7, 1000), (100, 100), (1, 1)] {
        let split = WeightedSelector::fraction(numerator, denominator);
        let hits = (0..5 * denominator).filter(|_| split.is_selected()).count();
        assert_eq!(hits, 5 * numerator as usize, "{numerator}/{denominator}");
    }
    assert!(WeightedSelector::fraction(3, 2).is_selected());
    assert!(!WeightedSelector::fraction(0, 0).is_selected());
}

#[test]
fn threads_together_keep_the_weights_exactly() {
    for weights in [vec![5, 3, 2], vec![97, 3], vec![33_333, 33_333, 33_334]] {
        let split = WeightedSelector::new(weights.iter().copied());
        let each = 25_000;
        let mut seen = vec![0; weights.len()];
        thread::scope(|scope| {
            let count = || {
                let mut seen = vec![0; weights.len()];
                for _ in 0..each {
                    seen[split.next().unwrap()] += 1;
                }
                seen
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
            for thread in threads {
                for (sum, own) in seen.iter_mut().zip(thread.join().unwrap()) {
                    *sum += own;
                }
            }
        });
        let total: u32 = weights.iter().sum();
        let due: Vec<u32> = weights.iter().map(|w| w * (4 * each / total)).collect();
        assert_eq!(seen, due);
    }
}

/// Checks every window, and every full cycle.
fn hold(weights: &[u32], most: u64) -> Result<(), TestCaseError> {
    let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    let chosen = choices(weights, 2 * total as usize);
    for (index, weight) in weights.iter().enumerate() {
        let weight = u64::from(*weight);
        // The count minus the share after each selection, in units of 1/total. The error of a window is the difference between its ends.
        let (mut ahead, mut least, mut largest) = (0i64, 0, 0);
        for (step, at) in (1..).zip(&chosen) {
            ahead += i64::from(*at == index) * total as i64 - weight as i64;
            (least, largest) = (ahead.min(least), ahead.max(largest));
            prop_assert!(step % total != 0 || ahead == 0, "{weights:?}: cycle");
        }
        prop_assert!(weight > 0 || largest == 0);
        prop_assert!(
            largest.abs_diff(least) < most * total,
            "{weights:?}: {index} errs by {} of {total}",
            largest.abs_diff(least)
        );
    }
    Ok(())
}

proptest! {
    #[test]
    fn two_entries_err_by_less_than_one_in_any_window(a in 0..3000u32, b in 1..3000u32) {
        hold(&[a, b], 1)?;
    }

    #[test]
    fn more_err_by_less_than_two(weights in vec(prop_oneof![1 => Just(0u32), 4 => 1..40u32, 1 => 1..340u32], 1..12)) {
        prop_assume!(weights.iter().any(|weight| *weight > 0));
        hold(&weights, 2)?;
    }

    #[test]
    fn a_long_cycle_errs_by_less_than_four(weights in vec(prop_oneof![2 => 1..10u32, 1 => 1..4000u32], 3..12)) {
        let mut weights = weights;
        weights.extend([10_007, 1]);
        hold(&weights, 4)?;
    }
}

#[test]
fn percentages_to_two_places_err_by_less_than_two() {
    for weights in [[3333, 3333, 3334], [9_900, 99, 1], [5_001, 4_998, 1]] {
        hold(&weights, 2).expect("exact");
    }
    // Cycles for which the tree has larger errors.
    hold(&[1660, 1190, 1050, 790, 900, 20, 1120, 1421], 2).expect("exact");
}

#[test]
fn a_rule_with_unchanged_weights_keeps_its_position_in_the_cycle() {
    let rules = |canary: u32| {
        let mut rule = rule(vec![prefix("/")], "stable");
        rule.backends = vec![backend("stable", 4), backend("canary", canary)];
        vec![rule]
    };
    let edited = |generation, canary| {
        let mut route = route("shop", 1, &[], rules(canary));
        Arc::make_mut(&mut route.meta).generation = generation;
        added(listener("http", 80, Protocol::Http, None), vec![route])
    };
    let mut tables = Tables::default();
    let mut next = |delta| {
        tables.apply(&delta);
        let listener = tables.listener(&gateway(), 80, Some("x")).unwrap();
        listener
            .lookup(&get("x", "/"))
            .unwrap()
            .selector
            .next()
            .unwrap()
    };
    let seen: Vec<_> = (0..5)
        .map(|generation| next(edited(generation, 1)))
        .collect();
    assert_eq!(seen, choices(&[4, 1], 5));
    // Changed weights start a new cycle.
    next(edited(6, 1));
    let seen: Vec<_> = (7..9)
        .map(|generation| next(edited(generation, 4)))
        .collect();
    assert_eq!(seen, [0, 1]);
}

/// Returns a mirror of a percentage of requests.
fn mirror(service: &str, percent: u32) -> Filter {
    Filter::Mirror(Mirror {
        reference: backend(service, 1).reference,
        target: Ok(backend_id(service)),
        fraction: Fraction {
            numerator: percent,
            denominator: 100,
        },
        hostname: None,
    })
}

#[test]
fn a_mirror_with_an_unchanged_fraction_keeps_its_count_when_its_rule_is_edited() {
    let edited = |seconds: u64, of_rule: u32, of_backend: u32| {
        let mut rule = rule(vec![prefix("/")], "web");
        rule.request_timeout = Some(Duration::from_secs(seconds));
        rule.filters = vec![mirror("one", of_rule)];
        rule.backends[0].filters = vec![mirror("two", of_backend)];
        let route = route("shop", 1, &[], vec![rule]);
        added(listener("http", 80, Protocol::Http, None), vec![route])
    };
    let mut tables = Tables::default();
    let mut next = |delta| {
        tables.apply(&delta);
        let listener = tables.listener(&gateway(), 80, Some("x")).unwrap();
        let request = get("x", "/");
        let hit = listener.lookup(&request).unwrap();
        let mirrors = &hit.filters.unwrap().backend(0).mirrors;
        [&mirrors[0], &mirrors[1]].map(|(_, selector)| selector.is_selected())
    };
    let mut counts = [0, 0];
    for seconds in 0..20 {
        for (count, selected) in counts.iter_mut().zip(next(edited(seconds, 50, 25))) {
            *count += usize::from(selected);
        }
    }
    assert_eq!(counts, [10, 5]);
    // A resent rule is an equal copy.
    let resent: Vec<_> = (0..4).map(|_| next(edited(0, 50, 25))[0]).collect();
    assert_eq!(resent, [false, true, false, true]);
    // A changed fraction starts a new cycle; the other mirror continues.
    let seen: Vec<_> = (1..5)
        .map(|seconds| next(edited(seconds, 100, 25)))
        .collect();
    assert!(seen.iter().all(|[of_rule, _]| *of_rule));
    let of_backend = seen.iter().filter(|[_, of_backend]| *of_backend);
    assert_eq!(of_backend.count(), 1);
}
