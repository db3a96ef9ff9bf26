//! The rules of one hostname: a tree over path segments for exact paths and prefixes, the regular expressions, and matches without a path.
//!
//! Nodes are shared between versions; a change copies the nodes from the root to the changed one.

use std::sync::Arc;

use pointsman_binding::bound::PathPredicate;
use regex::{RegexSet, RegexSetBuilder};

use crate::children::Children;
use crate::entry::{MatchEntry, MismatchRecorder};
use crate::expression::Expression;
use crate::path;
use crate::precedence::PathRank;
use crate::ranked::{CompileChunk, Ranked};
use crate::request::{MatchContext, Request};

/// The rules of one hostname.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostTable {
    pub(crate) root: PathNode,
    /// All regular expressions, of any precedence.
    pub(crate) expressions: Ranked<Expressions>,
    /// Matches without a path.
    pub(crate) pathless: Ranked,
}

/// The entries of one path.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathNode {
    /// Entries for exactly this path.
    pub(crate) exact: Ranked,
    /// Entries for this path and all below it.
    pub(crate) prefix: Ranked,
    pub(crate) children: Children,
}

impl PathNode {
    fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.prefix.is_empty() && self.children.is_empty()
    }
}

/// The expressions of a chunk compiled into one automaton, if there are enough of them.
#[derive(Debug)]
pub(crate) struct Expressions(Option<RegexSet>);

/// Maximum size of the automaton, in bytes. If it is exceeded, expressions are tried one by one.
const MAX_AUTOMATON_BYTES: usize = 4 * 1024 * 1024;

/// Number of expressions up to which matching each separately is as fast as an automaton.
const AUTOMATON_THRESHOLD: usize = 2;

impl CompileChunk for Expressions {
    fn compile(entries: &[Arc<MatchEntry>]) -> Self {
        if entries.len() <= AUTOMATON_THRESHOLD {
            return Expressions(None);
        }
        let texts = entries
            .iter()
            .map(|entry| regex(entry)?.anchored())
            .collect::<Option<Vec<_>>>();
        // Each expression compiles, but all together may exceed the size limit.
        let set = texts.map(|texts| {
            RegexSetBuilder::new(texts)
                .size_limit(MAX_AUTOMATON_BYTES)
                .build()
        });
        Expressions(set.and_then(Result::ok))
    }
}

fn regex(entry: &MatchEntry) -> Option<&Expression> {
    match &entry.matched()?.path {
        PathPredicate::Regex(regex) => Some(regex),
        _ => None,
    }
}

/// Location of an entry in a host's table.
enum Slot<'e> {
    Exact(&'e str),
    Prefix(&'e str),
    Regex,
    Pathless,
}

fn slot(entry: &MatchEntry) -> Slot<'_> {
    match entry.matched().map(|matched| &matched.path) {
        Some(PathPredicate::Exact(path)) => Slot::Exact(path),
        Some(PathPredicate::Prefix(prefix)) => Slot::Prefix(prefix),
        Some(PathPredicate::Regex(_)) => Slot::Regex,
        Some(PathPredicate::Any) => Slot::Pathless,
        None => Slot::Prefix("/"),
    }
}

/// Returns whether two entries of the same rank share a slot, so that one replaces the other.
pub(crate) fn same_slot(a: &MatchEntry, b: &MatchEntry) -> bool {
    match (slot(a), slot(b)) {
        (Slot::Exact(a), Slot::Exact(b)) => a == b,
        (Slot::Prefix(a), Slot::Prefix(b)) => path::prefix_segments(a).eq(path::prefix_segments(b)),
        // All expressions of a host share a slot.
        (Slot::Regex, Slot::Regex) => true,
        (Slot::Pathless, Slot::Pathless) => true,
        _ => false,
    }
}

impl HostTable {
    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_empty() && self.expressions.is_empty() && self.pathless.is_empty()
    }

    pub(crate) fn insert(&mut self, entry: &Arc<MatchEntry>) {
        match slot(entry) {
            Slot::Exact(path) => {
                if let Some(mut segments) = path::segments(path) {
                    edit(&mut self.root, &mut segments, &mut |node| {
                        node.exact.insert(entry.clone())
                    });
                }
            }
            Slot::Prefix(prefix) => {
                edit(
                    &mut self.root,
                    &mut path::prefix_segments(prefix),
                    &mut |node| node.prefix.insert(entry.clone()),
                );
            }
            Slot::Regex => self.expressions.insert(entry.clone()),
            Slot::Pathless => self.pathless.insert(entry.clone()),
        }
    }

    pub(crate) fn remove(&mut self, entry: &MatchEntry) {
        match slot(entry) {
            Slot::Exact(path) => {
                if let Some(mut segments) = path::segments(path) {
                    edit(&mut self.root, &mut segments, &mut |node| {
                        node.exact.remove(&entry.rank)
                    });
                }
            }
            Slot::Prefix(prefix) => {
                edit(
                    &mut self.root,
                    &mut path::prefix_segments(prefix),
                    &mut |node| node.prefix.remove(&entry.rank),
                );
            }
            Slot::Regex => self.expressions.remove(&entry.rank),
            Slot::Pathless => self.pathless.remove(&entry.rank),
        }
    }

    /// Returns the matching entry with the highest precedence.
    pub(crate) fn lookup<'t, R: Request, T: MismatchRecorder>(
        &'t self,
        context: &MatchContext<'_, R>,
        recorder: &mut T,
    ) -> Option<&'t MatchEntry> {
        let path = context.request.path();
        let mut search = LookupState {
            expressions: &self.expressions,
            highest_ranked_expression: self.expressions.first().map(|entry| entry.rank.path),
            best: None,
            context,
            recorder,
        };
        // Paths such as `*` have no segments; only expressions can match them.
        if path.starts_with('/') {
            search.descend(&self.root, path, 0);
        }
        search.try_expressions();
        if path.starts_with('/') {
            search.try_entries(&self.pathless, PathRank::Any);
        }
        search.best.map(|(entry, _)| entry)
    }
}

/// A search for the entry with the highest precedence among those whose conditions the request satisfies.
///
/// Only [`Rank`](crate::Rank) defines precedence. The search tries likely winners first (longer paths before shorter ones, expressions as soon as they outrank
/// the remaining paths), so that it can skip most entries by rank.
struct LookupState<'t, 's, 'c, R, T> {
    expressions: &'t Ranked<Expressions>,
    /// Path rank of the strongest expression, until the expressions have been tried.
    highest_ranked_expression: Option<PathRank>,
    /// The best entry so far, and a copy of its path rank, which saves a memory access in comparisons.
    best: Option<(&'t MatchEntry, PathRank)>,
    context: &'s MatchContext<'c, R>,
    recorder: &'s mut T,
}

impl<'t, R: Request, T: MismatchRecorder> LookupState<'t, '_, '_, R, T> {
    /// Tries the entries of a node and below it. `end` is the end of the node's path in the request's path. The depth of the recursion is bounded by the depth
    /// of the table, not by the path.
    fn descend(&mut self, node: &'t PathNode, path: &str, end: usize) {
        match path.get(end + 1..) {
            None => self.try_entries(&node.exact, PathRank::Exact),
            Some(_) if node.children.is_empty() => {}
            Some(rest) => {
                let segment = rest.split('/').next().unwrap_or(rest);
                if let Some(child) = node.children.get(segment) {
                    self.descend(child, path, end + 1 + segment.len());
                }
            }
        }
        self.try_entries(&node.prefix, PathRank::prefix_of_length(end));
    }

    /// Tries entries of the same path rank.
    #[inline]
    fn try_entries(&mut self, entries: &'t Ranked, rank: PathRank) {
        if entries.is_empty() {
            return;
        }
        if self
            .highest_ranked_expression
            .is_some_and(|other| other < rank)
        {
            self.try_expressions();
        }
        if self.is_outranked(rank) {
            return;
        }
        let (context, recorder) = (self.context, &mut *self.recorder);
        if let Some(found) = entries.find(|entry| entry.admits(context, recorder)) {
            self.replace_if_better(found, rank);
        }
    }

    /// Tries the regular expressions, once.
    fn try_expressions(&mut self) {
        let Some(rank) = self.highest_ranked_expression.take() else {
            return;
        };
        if !self.is_outranked(rank)
            && let Some(found) = expression(self.expressions, self.context, self.recorder)
        {
            self.replace_if_better(found, found.rank.path);
        }
    }

    /// Returns whether the best entry so far outranks all entries of this path rank.
    fn is_outranked(&self, rank: PathRank) -> bool {
        self.best.is_some_and(|(_, best)| best < rank)
    }

    #[inline]
    fn replace_if_better(&mut self, found: &'t MatchEntry, path: PathRank) {
        if self.best.is_none_or(|(best, _)| found.rank < best.rank) {
            self.best = Some((found, path));
        }
    }
}

/// Returns the matching entry with the highest precedence among the expressions.
fn expression<'t, R: Request, T: MismatchRecorder>(
    regexes: &'t Ranked<Expressions>,
    context: &MatchContext<'_, R>,
    recorder: &mut T,
) -> Option<&'t MatchEntry> {
    if regexes.is_empty() {
        return None;
    }
    let path = context.request.path();
    let alone = |entry: &MatchEntry| regex(entry).is_some_and(|regex| regex.is_match(path));
    let chunks = match regexes {
        Ranked::One(entry) => {
            return (alone(entry) && entry.admits(context, recorder)).then_some(entry);
        }
        Ranked::Chunks(chunks) => chunks,
    };
    chunks.iter().find_map(|chunk| match &chunk.compiled {
        Expressions(None) => chunk
            .entries
            .iter()
            .find(|entry| alone(entry) && entry.admits(context, recorder))
            .map(|entry| &**entry),
        Expressions(Some(set)) => set
            .matches(path)
            .into_iter()
            .map(|at| &*chunk.entries[at])
            .find(|entry| entry.admits(context, recorder)),
    })
}

/// Changes the node at these segments, copying shared nodes along the path. Missing nodes are created, empty ones are removed.
fn edit<'s>(
    node: &mut PathNode,
    segments: &mut dyn Iterator<Item = &'s str>,
    change: &mut dyn FnMut(&mut PathNode),
) {
    let Some(segment) = segments.next() else {
        return change(node);
    };
    if let Some(child) = node.children.get_mut(segment) {
        edit(Arc::make_mut(child), segments, change);
        if child.is_empty() {
            node.children.remove(segment);
        }
        return;
    }
    let mut child = PathNode::default();
    edit(&mut child, segments, change);
    if !child.is_empty() {
        node.children.insert(segment, Arc::new(child));
    }
}
