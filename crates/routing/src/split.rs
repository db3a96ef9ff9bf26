//! Weighted choice that is exact, not by luck.
//!
//! All who choose share one counter: request number n goes where n says, so the weights hold over all workers together. After a full
//! cycle (the sum of the weights, divided by what they have in common) each entry was chosen exactly as often as its weight says. In
//! between, in any window of n choices, its count differs from its share by less than one where there are two entries, by less than two
//! where there are more; by less than four if the cycle of more than two is longer than [`LONGEST`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use pointsman_binding::bound::{BoundRoute, BoundRule};

/// The longest cycle that is written down: that of percentages to two places. 20 KB for the rule that needs it.
const LONGEST: u64 = 10_000;

/// Chooses among weighted entries in turn.
#[derive(Debug)]
pub struct Split {
    counter: AtomicU64,
    /// After so many choices the same come again.
    cycle: u64,
    turns: Turns,
}

/// Whose turn it is.
#[derive(Debug)]
enum Turns {
    /// Nobody's: all weights are zero.
    Nobody,
    /// Always the same one's.
    Only(usize),
    /// A cycle, written down.
    Table(Box<[u16]>),
    /// Halves of halves. The root comes last.
    Halves(Box<[Node]>),
}

/// Two parts that share what comes to both.
#[derive(Debug)]
struct Node {
    weight: u64,
    /// The second part's weight.
    second: u64,
    parts: [Part; 2],
}

/// A part of a [`Node`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// An entry, by its place in the list of weights.
    Entry(usize),
    /// Another node, by its place in the list of nodes.
    Node(usize),
}

impl Split {
    /// For entries of these weights. Those of weight zero are never chosen.
    pub fn new(weights: impl IntoIterator<Item = u32>) -> Self {
        let mut entries: Vec<(usize, u64)> = weights
            .into_iter()
            .map(u64::from)
            .enumerate()
            .filter(|(_, weight)| *weight > 0)
            .collect();
        let common = entries
            .iter()
            .fold(0, |common, (_, weight)| gcd(common, *weight))
            .max(1);
        for (_, weight) in &mut entries {
            *weight /= common;
        }
        let cycle = entries.iter().map(|(_, weight)| weight).sum::<u64>();
        let fits = entries
            .iter()
            .all(|(index, _)| u16::try_from(*index).is_ok());
        let turns = match &entries[..] {
            [] => Turns::Nobody,
            [(only, _)] => Turns::Only(*only),
            [_, _, _, ..] if cycle <= LONGEST && fits => Turns::Table(table(&entries, cycle)),
            _ => Turns::Halves(halves(&entries)),
        };
        Split {
            counter: AtomicU64::new(0),
            cycle: cycle.max(1),
            turns,
        }
    }

    /// For something that is done so many times of so many; see [`hit`](Self::hit).
    pub fn fraction(numerator: u32, denominator: u32) -> Self {
        let hits = numerator.min(denominator.max(1));
        Split::new([denominator.max(1) - hits, hits])
    }

    /// The next entry's place in the list of weights; none if all weights are zero.
    #[inline]
    pub fn next(&self) -> Option<usize> {
        match &self.turns {
            Turns::Nobody => None,
            Turns::Only(index) => Some(*index),
            Turns::Table(table) => table
                .get(self.turn() as usize)
                .map(|index| usize::from(*index)),
            Turns::Halves(nodes) => descend(nodes, self.turn()),
        }
    }

    /// Whether it is done this time, for a split that is a [`fraction`](Self::fraction).
    pub fn hit(&self) -> bool {
        self.next() == Some(1)
    }

    /// The number of this choice within the cycle. Nothing is ordered by it but itself.
    fn turn(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed) % self.cycle
    }

    /// The splits of a route's rules, in their order. A rule whose weights are what they were goes on where it was, so that a route that is
    /// edited all the time still gives the least of its backends its share.
    pub(crate) fn of_rules(
        route: &BoundRoute,
        old: Option<(&BoundRoute, &[Arc<Split>])>,
    ) -> Arc<[Arc<Split>]> {
        let kept = |rule: &BoundRule| {
            let (old, splits) = old?;
            let at = old
                .rules
                .iter()
                .position(|other| (other.index, other.part) == (rule.index, rule.part))?;
            let same = weights(&old.rules[at]).eq(weights(rule));
            splits.get(at).filter(|_| same).cloned()
        };
        let split = |rule: &Arc<BoundRule>| match rule.backends.as_slice() {
            [only] if only.weight > 0 => ONLY.clone(),
            _ => kept(rule).unwrap_or_else(|| Arc::new(Split::new(weights(rule)))),
        };
        route.rules.iter().map(split).collect()
    }
}

/// For the many rules that have one backend. It counts nothing, so all of them can share it.
static ONLY: LazyLock<Arc<Split>> = LazyLock::new(|| Arc::new(Split::new([1])));

fn weights(rule: &BoundRule) -> impl Iterator<Item = u32> {
    rule.backends.iter().map(|backend| backend.weight)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Smooth weighted round robin, by R. Tijdeman's rule for the chairman assignment problem (1980): after every choice each entry has
/// been chosen as often as its share demands to within less than one.
fn table(entries: &[(usize, u64)], cycle: u64) -> Box<[u16]> {
    // Of the entries that are owed at least 1/(2n-2) of a choice, the one whose credit would soonest reach 1 - 1/(2n-2). There is always
    // one: the credits add up to 1 before each choice. Credits are in parts of `cycle`.
    let parts = 2 * entries.len() as i128 - 2;
    let cycle = i128::from(cycle);
    let mut credits = vec![0i128; entries.len()];
    let mut choose = || {
        let mut best: Option<(usize, i128, i128)> = None;
        for (at, (credit, (_, weight))) in credits.iter_mut().zip(entries).enumerate() {
            let weight = i128::from(*weight);
            *credit += weight;
            let owed = parts * *credit;
            let left = (parts - 1) * cycle - owed;
            if owed >= cycle && best.is_none_or(|(_, least, of)| left * of < least * weight) {
                best = Some((at, left, weight));
            }
        }
        let (at, ..) = best?;
        credits[at] -= cycle;
        Some(entries[at].0 as u16)
    };
    (0..cycle).map_while(|_| choose()).collect()
}

/// The two lightest parts become one, again and again (Huffman's tree): a part weighs at most half of the one two steps above it, so
/// what the steps err adds up to little. Each step is exact on its own, see [`descend`].
fn halves(entries: &[(usize, u64)]) -> Box<[Node]> {
    let mut heap: BinaryHeap<Reverse<(u64, Reverse<Part>)>> = entries
        .iter()
        .map(|(index, weight)| Reverse((*weight, Reverse(Part::Entry(*index)))))
        .collect();
    let mut nodes = Vec::with_capacity(entries.len());
    while let (Some(Reverse((second, light))), Some(Reverse((first, heavy)))) =
        (heap.pop(), heap.pop())
    {
        let parts = [heavy.0, light.0];
        let weight = first + second;
        nodes.push(Node {
            weight,
            second,
            parts,
        });
        if !heap.is_empty() {
            heap.push(Reverse((weight, Reverse(Part::Node(nodes.len() - 1)))));
        }
    }
    nodes.into()
}

/// Goes down to the entry that gets choice number `turn` of the root's. What comes to a part is a whole window of what comes to the node, so
/// a part has its own numbers, again without a gap.
fn descend(nodes: &[Node], mut turn: u64) -> Option<usize> {
    let mut node = nodes.last()?;
    loop {
        // Of the first n choices the second part gets n * second / weight, rounded to the nearest, half down.
        let (weight, second) = (u128::from(node.weight), u128::from(node.second));
        let due = 2 * u128::from(turn) * second + weight - 1;
        let had = due / (2 * weight);
        let chosen = due % (2 * weight) + 2 * second >= 2 * weight;
        // Never more than `turn`.
        let had = had as u64;
        turn = if chosen { had } else { turn - had };
        match node.parts[usize::from(chosen)] {
            Part::Entry(index) => return Some(index),
            Part::Node(at) => node = nodes.get(at)?,
        }
    }
}
