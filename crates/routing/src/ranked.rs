//! Entries in order of precedence, shared between versions.
//!
//! Most nodes of a table have one entry, some have thousands (one path with many headers). Entries are stored in sorted chunks, so that a change copies one
//! chunk and a list of pointers.

use std::sync::Arc;

use crate::entry::MatchEntry;
use crate::precedence::Rank;

/// Maximum number of entries in a chunk.
const CHUNK: usize = 32;

/// Data compiled once for a chunk of entries.
pub(crate) trait CompileChunk: Sized {
    fn compile(entries: &[Arc<MatchEntry>]) -> Self;
}

impl CompileChunk for () {
    fn compile(_: &[Arc<MatchEntry>]) {}
}

/// Entries in order of precedence.
#[derive(Debug)]
pub(crate) enum Ranked<C = ()> {
    /// A single entry, which is the common case, without the indirection of a chunk.
    One(Arc<MatchEntry>),
    Chunks(Vec<Arc<Chunk<C>>>),
}

#[derive(Debug)]
pub(crate) struct Chunk<C> {
    pub(crate) entries: Vec<Arc<MatchEntry>>,
    pub(crate) compiled: C,
}

impl<C> Clone for Ranked<C> {
    fn clone(&self) -> Self {
        match self {
            Ranked::One(entry) => Ranked::One(entry.clone()),
            Ranked::Chunks(chunks) => Ranked::Chunks(chunks.clone()),
        }
    }
}

impl<C> Default for Ranked<C> {
    fn default() -> Self {
        Ranked::Chunks(Vec::new())
    }
}

impl<C: CompileChunk> Ranked<C> {
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Ranked::Chunks(chunks) if chunks.is_empty())
    }

    /// Returns the entries in order of precedence.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<MatchEntry>> {
        let (one, chunks) = match self {
            Ranked::One(entry) => (Some(entry), [].as_slice()),
            Ranked::Chunks(chunks) => (None, chunks.as_slice()),
        };
        one.into_iter()
            .chain(chunks.iter().flat_map(|chunk| &chunk.entries))
    }

    /// Returns the entry with the highest precedence.
    #[inline]
    pub(crate) fn first(&self) -> Option<&MatchEntry> {
        match self {
            Ranked::One(entry) => Some(entry),
            Ranked::Chunks(chunks) => Some(&**chunks.first()?.entries.first()?),
        }
    }

    /// Returns the first entry for which `wanted` returns true.
    #[inline]
    pub(crate) fn find<'t>(
        &'t self,
        mut wanted: impl FnMut(&'t MatchEntry) -> bool,
    ) -> Option<&'t MatchEntry> {
        match self {
            Ranked::One(entry) => wanted(entry).then_some(&**entry),
            Ranked::Chunks(chunks) => chunks
                .iter()
                .flat_map(|chunk| &chunk.entries)
                .map(|entry| &**entry)
                .find(|entry| wanted(entry)),
        }
    }

    pub(crate) fn insert(&mut self, entry: Arc<MatchEntry>) {
        let chunks = match self {
            Ranked::Chunks(chunks) if chunks.is_empty() => {
                *self = Ranked::One(entry);
                return;
            }
            Ranked::Chunks(chunks) => chunks,
            Ranked::One(first) => {
                let first = first.clone();
                *self = Ranked::Chunks(vec![chunk(vec![first])]);
                return self.insert(entry);
            }
        };
        let at = position(chunks, &entry.rank);
        let mut entries = chunks[at].entries.clone();
        match entries.binary_search_by(|other| other.rank.cmp(&entry.rank)) {
            Ok(same) => entries[same] = entry,
            Err(index) => entries.insert(index, entry),
        }
        if entries.len() > CHUNK {
            let second = entries.split_off(CHUNK / 2);
            chunks.insert(at + 1, chunk(second));
        }
        chunks[at] = chunk(entries);
    }

    pub(crate) fn remove(&mut self, rank: &Rank) {
        let chunks = match self {
            Ranked::One(entry) => {
                if entry.rank == *rank {
                    *self = Ranked::default();
                }
                return;
            }
            Ranked::Chunks(chunks) if chunks.is_empty() => return,
            Ranked::Chunks(chunks) => chunks,
        };
        let at = position(chunks, rank);
        let Ok(index) = chunks[at]
            .entries
            .binary_search_by(|other| other.rank.cmp(rank))
        else {
            return;
        };
        let mut entries = chunks[at].entries.clone();
        entries.remove(index);
        match entries.len() {
            0 => drop(chunks.remove(at)),
            1 if chunks.len() == 1 => *self = Ranked::One(entries.remove(0)),
            _ => chunks[at] = chunk(entries),
        }
    }
}

/// Returns the index of the chunk that an entry of this rank is in or belongs to.
fn position<C>(chunks: &[Arc<Chunk<C>>], rank: &Rank) -> usize {
    chunks
        .partition_point(|chunk| chunk.entries[0].rank <= *rank)
        .saturating_sub(1)
}

fn chunk<C: CompileChunk>(entries: Vec<Arc<MatchEntry>>) -> Arc<Chunk<C>> {
    let compiled = C::compile(&entries);
    Arc::new(Chunk { entries, compiled })
}
