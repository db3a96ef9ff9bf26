//! Order-maintenance labels: numbers in the order of files, with gaps between them. An inserted file changes no other file's label, or only a few.

use std::collections::BTreeMap;

/// Bits of an object's position that hold its index in the file; the label has the rest.
const INDEX_BITS: u32 = 20;
/// Gap that is left after the last file.
const STEP: u64 = 1 << 20;
/// Smallest gap after labels were redistributed.
const MIN_GAP: u64 = 1 << 10;
/// Largest label.
const MAX_LABEL: u64 = (1 << (u64::BITS - INDEX_BITS)) - 1;

/// Assigns a label to `new`, a file that has none yet. Returns the labels to set: usually only this one, otherwise also those of neighbours that make room.
pub fn assign_labels<K: Ord + Clone, V>(
    files: &BTreeMap<K, V>,
    new: &K,
    label: impl Fn(&V) -> u64,
) -> Vec<(K, u64)> {
    use std::ops::Bound::{Excluded, Unbounded};
    let mut before = files.range(..new).rev();
    let mut after = files.range((Excluded(new), Unbounded));
    let mut window = vec![new.clone()];
    let mut first = before.next();
    let mut last = after.next();
    loop {
        let low = first.map_or(0, |(_, file)| label(file));
        let high = match (last, first) {
            (Some((_, file)), _) => label(file),
            // Files are mostly appended, so a new last file takes one step only.
            (None, Some(_)) if window.len() == 1 && low < MAX_LABEL - STEP * 2 => low + STEP * 2,
            (None, _) => MAX_LABEL,
        };
        let number = u64::try_from(window.len()).unwrap_or(u64::MAX);
        let gap = (high - low) / (number + 1);
        let enough = match (first, last) {
            _ if window.len() == 1 => 1,
            (None, None) => 1,
            _ => MIN_GAP,
        };
        if gap >= enough {
            let labels = (1..).map(|step| low + gap * step);
            return window.into_iter().zip(labels).collect();
        }
        // The gap is too small: double the window.
        for _ in 0..window.len() {
            if let Some((key, _)) = first {
                window.insert(0, key.clone());
                first = before.next();
            }
            if let Some((key, _)) = last {
                window.push(key.clone());
                last = after.next();
            }
        }
    }
}

/// Returns the position of an object in the input: its file's label and its index in the file.
pub fn position(label: u64, index: u64) -> u64 {
    (label << INDEX_BITS) | index.min((1 << INDEX_BITS) - 1)
}

/// Returns the index in its file of the object at a position.
pub fn index(position: u64) -> u64 {
    position & ((1 << INDEX_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Inserts files in this order. Returns the number of labels that were set.
    fn insert(keys: impl Iterator<Item = u64>) -> usize {
        let mut files: BTreeMap<u64, u64> = BTreeMap::new();
        let mut set = 0;
        for key in keys {
            files.insert(key, 0);
            let labels = assign_labels(&files, &key, |label| *label);
            set += labels.len();
            for (key, label) in labels {
                assert!(label > 0 && label <= MAX_LABEL);
                files.insert(key, label);
            }
        }
        let labels: Vec<u64> = files.values().copied().collect();
        assert!(labels.windows(2).all(|two| two[0] < two[1]));
        set
    }

    #[test]
    fn labels_follow_the_order_of_files_and_few_are_reassigned() {
        let many = 4_000;
        assert_eq!(insert(0..many), 4_000, "appended");
        let mut seed = 1u64;
        let random = (0..many).map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 20
        });
        assert!(insert(random) < 40_000, "in random order");
        assert!(insert((0..many).rev()) < 200_000, "prepended");
        let middle = [0, u64::MAX].into_iter().chain(1..many);
        assert!(insert(middle) < 200_000, "before the last one");
    }
}
