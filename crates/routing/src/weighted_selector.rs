//! Deterministic weighted selection.
//!
//! All workers share one counter, whose value determines the selected entry, so the weights hold over all workers together. After a full cycle (the sum of the
//! weights divided by their greatest common divisor) each entry has been selected exactly as often as its weight demands. In any window of n selections, the
//! count of an entry differs from its share by less than one for two entries, by less than two for more, and by less than four if the cycle of more than two
//! entries is longer than [`MAX_TABLE_CYCLE`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use pointsman_binding::bound::{BoundRoute, BoundRule};

/// Longest cycle that is stored as a table: that of percentages with two decimal places, which takes 20 KB.
const MAX_TABLE_CYCLE: u64 = 10_000;

/// Selects among weighted entries.
#[derive(Debug)]
pub struct WeightedSelector {
    counter: AtomicU64,
    /// Number of selections after which the sequence repeats.
    cycle: u64,
    schedule: Schedule,
}

/// The sequence of selections.
#[derive(Debug)]
enum Schedule {
    /// All weights are zero.
    Empty,
    /// Always the same entry.
    Single(usize),
    /// A full cycle.
    Table(Box<[u16]>),
    /// A binary tree whose root is the last node.
    Tree(Box<[TreeNode]>),
}

/// An inner node, which divides its selections between two parts.
#[derive(Debug)]
struct TreeNode {
    weight: u64,
    /// Weight of the second part.
    second: u64,
    parts: [Part; 2],
}

/// A part of a [`TreeNode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// An entry, by its index in the list of weights.
    MatchEntry(usize),
    /// Another node, by its index in the list of nodes.
    Node(usize),
}

impl WeightedSelector {
    /// Creates a selector for entries with these weights. Entries of weight zero are never selected.
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
        let schedule = match &entries[..] {
            [] => Schedule::Empty,
            [(only, _)] => Schedule::Single(*only),
            [_, _, _, ..] if cycle <= MAX_TABLE_CYCLE && fits => {
                Schedule::Table(table(&entries, cycle))
            }
            _ => Schedule::Tree(build_tree(&entries)),
        };
        WeightedSelector {
            counter: AtomicU64::new(0),
            cycle: cycle.max(1),
            schedule,
        }
    }

    /// Creates a selector for a fraction of requests, to be used with [`is_selected`](Self::is_selected).
    pub fn fraction(numerator: u32, denominator: u32) -> Self {
        let hits = numerator.min(denominator.max(1));
        WeightedSelector::new([denominator.max(1) - hits, hits])
    }

    /// Returns the index of the next entry in the list of weights; `None` if all weights are zero.
    #[inline]
    pub fn next(&self) -> Option<usize> {
        match &self.schedule {
            Schedule::Empty => None,
            Schedule::Single(index) => Some(*index),
            Schedule::Table(table) => table
                .get(self.turn() as usize)
                .map(|index| usize::from(*index)),
            Schedule::Tree(nodes) => descend(nodes, self.turn()),
        }
    }

    /// Returns whether the next request is selected by a [`fraction`](Self::fraction).
    pub fn is_selected(&self) -> bool {
        self.next() == Some(1)
    }

    /// Returns the number of this selection within the cycle. Relaxed ordering suffices because no other data depends on the counter.
    fn turn(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed) % self.cycle
    }

    /// Returns the selectors of a route's rules, in their order. A rule with unchanged weights keeps its selector, so that backends with small weights get
    /// their share even if the route is edited frequently.
    pub(crate) fn for_rules(
        route: &BoundRoute,
        old: Option<(&BoundRoute, &[Arc<WeightedSelector>])>,
    ) -> Arc<[Arc<WeightedSelector>]> {
        let kept = |rule: &BoundRule| {
            let (old, selectors) = old?;
            let at = old
                .rules
                .iter()
                .position(|other| (other.index, other.part) == (rule.index, rule.part))?;
            let same = weights(&old.rules[at]).eq(weights(rule));
            selectors.get(at).filter(|_| same).cloned()
        };
        let selector = |rule: &Arc<BoundRule>| match rule.backends.as_slice() {
            [only] if only.weight > 0 => SINGLE_BACKEND.clone(),
            _ => kept(rule).unwrap_or_else(|| Arc::new(WeightedSelector::new(weights(rule)))),
        };
        route.rules.iter().map(selector).collect()
    }
}

/// Shared by all rules with a single backend, for which the counter is not used.
static SINGLE_BACKEND: LazyLock<Arc<WeightedSelector>> =
    LazyLock::new(|| Arc::new(WeightedSelector::new([1])));

fn weights(rule: &BoundRule) -> impl Iterator<Item = u32> {
    rule.backends.iter().map(|backend| backend.weight)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Smooth weighted round robin by R. Tijdeman's rule for the chairman assignment problem (1980): after every selection, the count of each entry differs from
/// its share by less than one.
fn table(entries: &[(usize, u64)], cycle: u64) -> Box<[u16]> {
    // Of the entries with a credit of at least 1/(2n-2), selects the one whose credit would be the first to reach 1 - 1/(2n-2). There always is one,
    // because the credits add up to 1 before each selection. Credits are in units of 1/`cycle`.
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

/// Builds a Huffman tree: repeatedly joins the two lightest parts. A part weighs at most half of its grandparent, so the rounding errors of the levels, each
/// less than one (see [`descend`]), add up to little.
fn build_tree(entries: &[(usize, u64)]) -> Box<[TreeNode]> {
    let mut heap: BinaryHeap<Reverse<(u64, Reverse<Part>)>> = entries
        .iter()
        .map(|(index, weight)| Reverse((*weight, Reverse(Part::MatchEntry(*index)))))
        .collect();
    let mut nodes = Vec::with_capacity(entries.len());
    while let (Some(Reverse((second, light))), Some(Reverse((first, heavy)))) =
        (heap.pop(), heap.pop())
    {
        let parts = [heavy.0, light.0];
        let weight = first + second;
        nodes.push(TreeNode {
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

/// Returns the entry for selection number `turn` of the root. The selections that a node passes to a part are numbered consecutively for that part.
fn descend(nodes: &[TreeNode], mut turn: u64) -> Option<usize> {
    let mut node = nodes.last()?;
    loop {
        // Of the first n selections the second part gets n * second / weight, rounded to the nearest, half down.
        let (weight, second) = (u128::from(node.weight), u128::from(node.second));
        let due = 2 * u128::from(turn) * second + weight - 1;
        let had = due / (2 * weight);
        let chosen = due % (2 * weight) + 2 * second >= 2 * weight;
        // Never more than `turn`.
        let had = had as u64;
        turn = if chosen { had } else { turn - had };
        match node.parts[usize::from(chosen)] {
            Part::MatchEntry(index) => return Some(index),
            Part::Node(at) => node = nodes.get(at)?,
        }
    }
}
