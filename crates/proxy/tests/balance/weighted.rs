//! Weights are kept exactly.

use pointsman_proxy::balance::Weighted;
use proptest::collection::vec;
use proptest::prelude::*;

fn choices(weights: &[u32], count: usize) -> Vec<usize> {
    let mut weighted = Weighted::new(weights.iter().copied());
    (0..count).map_while(|_| weighted.choose()).collect()
}

#[test]
fn choices_are_spread() {
    assert_eq!(choices(&[1, 1], 4), [0, 1, 0, 1]);
    assert_eq!(choices(&[5, 1, 1], 7), [0, 0, 1, 0, 0, 2, 0]);
    assert_eq!(
        choices(&[90, 10], 10).iter().filter(|at| **at == 1).count(),
        1
    );
    assert_eq!(choices(&[0, 3, 0], 3), [1, 1, 1]);
    assert_eq!(choices(&[0, 0], 3), [] as [usize; 0]);
    assert_eq!(choices(&[], 3), [] as [usize; 0]);
    assert_eq!(choices(&[1_000_000, 1_000_000], 3), [0, 1, 0]);
}

#[test]
fn the_largest_weights_do_not_overflow() {
    let weights = [u32::MAX; 64];
    let mut seen = [0; 64];
    for at in choices(&weights, 6400) {
        seen[at] += 1;
    }
    assert_eq!(seen, [100; 64]);
}

#[test]
fn workers_may_begin_elsewhere() {
    let mut weighted = Weighted::new([2, 1]);
    weighted.skip(1);
    assert_eq!(weighted.cycle(), 3);
    let ahead: Vec<_> = (0..3).map_while(|_| weighted.choose()).collect();
    assert_eq!(ahead, choices(&[2, 1], 4)[1..]);
}

proptest! {
    #[test]
    fn every_prefix_is_within_one_and_every_cycle_exact(weights in vec(prop_oneof![1 => Just(0u32), 4 => 1..40u32, 1 => 1..400u32], 1..12)) {
        let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        prop_assume!(total > 0);
        let mut counts = vec![0u64; weights.len()];
        let mut weighted = Weighted::new(weights.iter().copied());
        for step in 1..=3 * total {
            let chosen = weighted.choose().unwrap();
            counts[chosen] += 1;
            for (count, weight) in counts.iter().zip(&weights) {
                // In parts of the total: |count - step * weight / total| < 1.
                let due = step * u64::from(*weight);
                prop_assert!((count * total).abs_diff(due) < total, "{weights:?} after {step}: {counts:?}");
                prop_assert!(*weight > 0 || *count == 0);
                prop_assert!(step % total != 0 || count * total == due);
            }
        }
    }
}
