//! Numbers that stand for the order of files, with room between them: a file that comes in between moves none of the others, or a few.

use std::collections::BTreeMap;

/// The room that is left behind the last one.
const STEP: u64 = 1 << 20;
/// The least room for one more when some are moved to make it.
const ROOM: u64 = 1 << 10;
/// The largest number: an object's place has 20 more bits, for where it stands in its file.
const MOST: u64 = (1 << 44) - 1;

/// The numbers to give so that `new`, which is among the files but has no number yet, stands where its key does. Mostly it is the only one.
pub fn place<K: Ord + Clone, V>(
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
            // Behind the last one there is mostly more to come.
            (None, Some(_)) if window.len() == 1 && low < MOST - STEP * 2 => low + STEP * 2,
            (None, _) => MOST,
        };
        let number = u64::try_from(window.len()).unwrap_or(u64::MAX);
        let gap = (high - low) / (number + 1);
        let enough = match (first, last) {
            _ if window.len() == 1 => 1,
            (None, None) => 1,
            _ => ROOM,
        };
        if gap >= enough {
            let labels = (1..).map(|step| low + gap * step);
            return window.into_iter().zip(labels).collect();
        }
        // Too tight: as many neighbours as there are already move along.
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

/// The place of an object: its file's number, then where it stands there.
pub fn in_file(label: u64, index: u64) -> u64 {
    (label << 20) | index.min(STEP - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(keys: impl Iterator<Item = u64>) -> usize {
        let mut files: BTreeMap<u64, u64> = BTreeMap::new();
        let mut moved = 0;
        for key in keys {
            files.insert(key, 0);
            let labels = place(&files, &key, |label| *label);
            moved += labels.len();
            for (key, label) in labels {
                assert!(label > 0 && label <= MOST);
                files.insert(key, label);
            }
        }
        let labels: Vec<u64> = files.values().copied().collect();
        assert!(labels.windows(2).all(|two| two[0] < two[1]));
        moved
    }

    #[test]
    fn files_keep_their_order_and_few_are_moved() {
        let many = 4_000;
        assert_eq!(check(0..many), 4_000, "at the end");
        let mut seed = 1u64;
        let random = (0..many).map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 20
        });
        assert!(check(random) < 40_000, "anywhere");
        assert!(check((0..many).rev()) < 200_000, "at the beginning");
        let middle = [0, u64::MAX].into_iter().chain(1..many);
        assert!(check(middle) < 200_000, "before the last one");
    }
}
