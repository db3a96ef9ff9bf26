//! The rules of one hostname: a tree over path segments, exact paths beside prefixes, the regular expressions, and matches without a path.
//!
//! Every node is shared between versions; a change copies the nodes from the root to the one that it touches.

use std::sync::Arc;

use pointsman_binding::bound::PathPredicate;
use regex::{RegexSet, RegexSetBuilder};

use crate::children::Children;
use crate::entry::{Entry, Recorder};
use crate::expression::Expression;
use crate::path;
use crate::precedence::PathRank;
use crate::ranked::{Compiled, Ranked};
use crate::request::{Context, Request};

/// The rules of one hostname.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostTable {
    pub(crate) root: Node,
    /// All regular expressions, whatever their rank among the other matches.
    pub(crate) expressions: Ranked<Expressions>,
    /// Matches without a path.
    pub(crate) pathless: Ranked,
}

/// What stands at one path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    /// For this very path.
    pub(crate) exact: Ranked,
    /// For this path and all below it.
    pub(crate) prefix: Ranked,
    /// One segment further.
    pub(crate) children: Children,
}

impl Node {
    fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.prefix.is_empty() && self.children.is_empty()
    }
}

/// The expressions of a chunk as one automaton, where there are enough of them to be worth it.
#[derive(Debug)]
pub(crate) struct Expressions(Option<RegexSet>);

/// How large expressions may be together, in bytes; beyond that each is tried on its own.
const SET_SIZE: usize = 4 * 1024 * 1024;

/// Up to so many expressions, trying each on its own is as fast as trying all at once.
const FEW: usize = 2;

impl Compiled for Expressions {
    fn compile(entries: &[Arc<Entry>]) -> Self {
        if entries.len() <= FEW {
            return Expressions(None);
        }
        let texts = entries
            .iter()
            .map(|entry| regex(entry)?.anchored())
            .collect::<Option<Vec<_>>>();
        // Each compiles on its own; all together may be over the size limit. Then they are tried one by one.
        let set = texts.map(|texts| RegexSetBuilder::new(texts).size_limit(SET_SIZE).build());
        Expressions(set.and_then(Result::ok))
    }
}

fn regex(entry: &Entry) -> Option<&Expression> {
    match &entry.matched()?.path {
        PathPredicate::Regex(regex) => Some(regex),
        _ => None,
    }
}

/// Where in a host's table an entry stands.
enum Place<'e> {
    Exact(&'e str),
    Prefix(&'e str),
    Regex,
    Pathless,
}

fn place(entry: &Entry) -> Place<'_> {
    match entry.matched().map(|matched| &matched.path) {
        Some(PathPredicate::Exact(path)) => Place::Exact(path),
        Some(PathPredicate::Prefix(prefix)) => Place::Prefix(prefix),
        Some(PathPredicate::Regex(_)) => Place::Regex,
        Some(PathPredicate::Any) => Place::Pathless,
        None => Place::Prefix("/"),
    }
}

/// Whether two entries of one rank stand at the same place, so that one replaces the other.
pub(crate) fn same_place(a: &Entry, b: &Entry) -> bool {
    match (place(a), place(b)) {
        (Place::Exact(a), Place::Exact(b)) => a == b,
        (Place::Prefix(a), Place::Prefix(b)) => {
            path::prefix_segments(a).eq(path::prefix_segments(b))
        }
        // All expressions of a host stand together.
        (Place::Regex, Place::Regex) => true,
        (Place::Pathless, Place::Pathless) => true,
        _ => false,
    }
}

impl HostTable {
    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_empty() && self.expressions.is_empty() && self.pathless.is_empty()
    }

    pub(crate) fn insert(&mut self, entry: &Arc<Entry>) {
        match place(entry) {
            Place::Exact(path) => {
                if let Some(mut segments) = path::segments(path) {
                    edit(&mut self.root, &mut segments, &mut |node| {
                        node.exact.insert(entry.clone())
                    });
                }
            }
            Place::Prefix(prefix) => {
                edit(
                    &mut self.root,
                    &mut path::prefix_segments(prefix),
                    &mut |node| node.prefix.insert(entry.clone()),
                );
            }
            Place::Regex => self.expressions.insert(entry.clone()),
            Place::Pathless => self.pathless.insert(entry.clone()),
        }
    }

    pub(crate) fn remove(&mut self, entry: &Entry) {
        match place(entry) {
            Place::Exact(path) => {
                if let Some(mut segments) = path::segments(path) {
                    edit(&mut self.root, &mut segments, &mut |node| {
                        node.exact.remove(&entry.rank)
                    });
                }
            }
            Place::Prefix(prefix) => {
                edit(
                    &mut self.root,
                    &mut path::prefix_segments(prefix),
                    &mut |node| node.prefix.remove(&entry.rank),
                );
            }
            Place::Regex => self.expressions.remove(&entry.rank),
            Place::Pathless => self.pathless.remove(&entry.rank),
        }
    }

    /// The strongest entry that takes a request for this host.
    pub(crate) fn lookup<'t, R: Request, T: Recorder>(
        &'t self,
        context: &Context<'_, R>,
        recorder: &mut T,
    ) -> Option<&'t Entry> {
        let path = context.request.path();
        let mut search = Search {
            expressions: &self.expressions,
            strongest_expression: self.expressions.first().map(|entry| entry.rank.path),
            best: None,
            context,
            recorder,
        };
        // `*` and the like have no segments: only an expression can be meant for them.
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

/// A walk over all entries whose paths fit a request, in search of the strongest that admits it.
///
/// [`Rank`](crate::Rank) alone decides which is the strongest. The walk only tries those first that are likely to win (the longest path
/// before the shorter ones, expressions as soon as they outrank what comes), so that most others are skipped by a look at their rank.
struct Search<'t, 's, 'c, R, T> {
    expressions: &'t Ranked<Expressions>,
    /// The rank of the strongest expression that has not been tried.
    strongest_expression: Option<PathRank>,
    /// The strongest entry so far, and its path's rank: beside it, so that a look at it touches no more memory.
    best: Option<(&'t Entry, PathRank)>,
    context: &'s Context<'c, R>,
    recorder: &'s mut T,
}

impl<'t, R: Request, T: Recorder> Search<'t, '_, '_, R, T> {
    /// Tries what stands at a node and below it. `end` is where its path ends in the request's. The recursion is no deeper than the
    /// table, however long the path.
    fn descend(&mut self, node: &'t Node, path: &str, end: usize) {
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

    /// Tries entries that all have this rank.
    #[inline]
    fn try_entries(&mut self, entries: &'t Ranked, rank: PathRank) {
        if entries.is_empty() {
            return;
        }
        if self.strongest_expression.is_some_and(|other| other < rank) {
            self.try_expressions();
        }
        if self.is_beaten(rank) {
            return;
        }
        let (context, recorder) = (self.context, &mut *self.recorder);
        if let Some(found) = entries.find(|entry| entry.admits(context, recorder)) {
            self.offer(found, rank);
        }
    }

    /// Tries the regular expressions, once.
    fn try_expressions(&mut self) {
        let Some(rank) = self.strongest_expression.take() else {
            return;
        };
        if !self.is_beaten(rank)
            && let Some(found) = expression(self.expressions, self.context, self.recorder)
        {
            self.offer(found, found.rank.path);
        }
    }

    /// Reports whether what was found is stronger than anything of this rank.
    fn is_beaten(&self, rank: PathRank) -> bool {
        self.best.is_some_and(|(_, best)| best < rank)
    }

    #[inline]
    fn offer(&mut self, found: &'t Entry, path: PathRank) {
        if self.best.is_none_or(|(best, _)| found.rank < best.rank) {
            self.best = Some((found, path));
        }
    }
}

/// The strongest entry whose expression matches the path.
fn expression<'t, R: Request, T: Recorder>(
    regexes: &'t Ranked<Expressions>,
    context: &Context<'_, R>,
    recorder: &mut T,
) -> Option<&'t Entry> {
    if regexes.is_empty() {
        return None;
    }
    let path = context.request.path();
    let alone = |entry: &Entry| regex(entry).is_some_and(|regex| regex.is_match(path));
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

/// Changes the node at these segments, copying what is shared on the way. Nodes are made where they are missing and go when they
/// are empty.
fn edit<'s>(
    node: &mut Node,
    segments: &mut dyn Iterator<Item = &'s str>,
    change: &mut dyn FnMut(&mut Node),
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
    let mut child = Node::default();
    edit(&mut child, segments, change);
    if !child.is_empty() {
        node.children.insert(segment, Arc::new(child));
    }
}
