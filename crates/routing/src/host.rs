//! The rules of one hostname: a tree over path segments, exact paths beside prefixes, and the regular expressions.
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
    pub(crate) regexes: Ranked<Expressions>,
    /// Those that come after prefixes.
    pub(crate) late: Ranked<Expressions>,
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
    LateRegex,
}

fn place(entry: &Entry) -> Place<'_> {
    match entry.matched().map(|matched| &matched.path) {
        Some(PathPredicate::Exact(path)) => Place::Exact(path),
        Some(PathPredicate::Prefix(prefix)) => Place::Prefix(prefix),
        Some(PathPredicate::Regex(_)) => match entry.rank.path {
            PathRank::LateRegex(_) => Place::LateRegex,
            _ => Place::Regex,
        },
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
        (Place::Regex, Place::Regex) | (Place::LateRegex, Place::LateRegex) => true,
        _ => false,
    }
}

impl HostTable {
    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_empty() && self.regexes.is_empty() && self.late.is_empty()
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
            Place::Regex => self.regexes.insert(entry.clone()),
            Place::LateRegex => self.late.insert(entry.clone()),
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
            Place::Regex => self.regexes.remove(&entry.rank),
            Place::LateRegex => self.late.remove(&entry.rank),
        }
    }

    /// The strongest entry that takes a request for this host.
    pub(crate) fn lookup<'t, R: Request, T: Recorder>(
        &'t self,
        context: &Context<'_, R>,
        recorder: &mut T,
    ) -> Option<&'t Entry> {
        let found = match context.request.path().strip_prefix('/') {
            Some(rest) => self.descend(&self.root, Some(rest), context, recorder),
            // `*` and the like have no segments: only an expression can be meant for them.
            None => expression(&self.regexes, context, recorder),
        };
        found.or_else(|| expression(&self.late, context, recorder))
    }

    /// The strongest entry at or below a node, `rest` being what is left of the path.
    ///
    /// On the way down nothing is tried. At the end of the way come the exact path and the expressions, on the way back the prefixes,
    /// the longest first: the order of precedence. It is no deeper than the table, however long the path.
    fn descend<'t, R: Request, T: Recorder>(
        &'t self,
        node: &'t Node,
        rest: Option<&str>,
        context: &Context<'_, R>,
        recorder: &mut T,
    ) -> Option<&'t Entry> {
        let found = match rest {
            None => node
                .exact
                .find(|entry| entry.admits(context, recorder))
                .or_else(|| expression(&self.regexes, context, recorder)),
            Some(_) if node.children.is_empty() => expression(&self.regexes, context, recorder),
            Some(rest) => {
                let (segment, rest) = match rest.split_once('/') {
                    Some((segment, rest)) => (segment, Some(rest)),
                    None => (rest, None),
                };
                match node.children.get(segment) {
                    Some(child) => self.descend(child, rest, context, recorder),
                    None => expression(&self.regexes, context, recorder),
                }
            }
        };
        found.or_else(|| node.prefix.find(|entry| entry.admits(context, recorder)))
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
