//! Weighted choice that is exact, not by luck.
//!
//! Smooth weighted round robin, by R. Tijdeman's rule for the chairman assignment problem (1980): after every choice, each entry has
//! been chosen as often as its share demands to within less than one, and after a full cycle exactly as often. So in any window of
//! n choices an entry's count differs from its share by less than two, wherever the window begins.

/// Chooses among weighted entries in turn. The state is one number per entry.
#[derive(Debug, Clone)]
pub struct Weighted {
    entries: Box<[Entry]>,
    total: i64,
}

#[derive(Debug, Clone)]
struct Entry {
    /// Where it stands in the caller's list.
    index: u32,
    weight: i64,
    /// What it is owed, in parts of `total` of one choice.
    credit: i64,
}

impl Weighted {
    /// For entries of these weights. Those of weight zero are never chosen.
    pub fn new(weights: impl IntoIterator<Item = u32>) -> Self {
        let entries: Box<[Entry]> = (0..)
            .zip(weights)
            .filter(|(_, weight)| *weight > 0)
            .map(|(index, weight)| Entry {
                index,
                weight: weight.into(),
                credit: 0,
            })
            .collect();
        let total = entries.iter().map(|entry| entry.weight).sum();
        Weighted { entries, total }
    }

    /// The sum of all weights: after so many choices each entry was chosen as often as its weight says.
    pub fn cycle(&self) -> u64 {
        self.total.unsigned_abs()
    }

    /// Goes this many choices ahead. Workers that each begin elsewhere do not all send their first requests to the same entry.
    pub fn skip(&mut self, choices: usize) {
        for _ in 0..choices {
            self.choose();
        }
    }

    /// The next entry's place in the list of weights; none if all weights are zero.
    pub fn choose(&mut self) -> Option<usize> {
        if let [only] = &self.entries[..] {
            return Some(only.index as usize);
        }
        // Tijdeman: of the entries that are owed at least 1/(2n-2), the one whose credit would soonest reach 1 - 1/(2n-2). There is always
        // one: the credits add up to 1 before each choice.
        let parts = 2 * self.entries.len() as i128 - 2;
        let total = i128::from(self.total);
        let mut best: Option<(usize, i128, i128)> = None;
        for (at, entry) in self.entries.iter_mut().enumerate() {
            entry.credit += entry.weight;
            let credit = parts * i128::from(entry.credit);
            if credit < total {
                continue;
            }
            let (left, weight) = ((parts - 1) * total - credit, i128::from(entry.weight));
            if best.is_none_or(|(_, least, of)| left * of < least * weight) {
                best = Some((at, left, weight));
            }
        }
        let (at, ..) = best?;
        let entry = &mut self.entries[at];
        entry.credit -= self.total;
        Some(entry.index as usize)
    }
}
