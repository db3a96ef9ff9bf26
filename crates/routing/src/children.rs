//! The children of a node, by path segment: a short list, or a shared map if there are many.

use std::sync::Arc;

use crate::Map;
use crate::host::PathNode;

/// Maximum length of the list. Up to this length, searching is as fast as hashing, and a map would take ten times the memory.
const MAX_LIST: usize = 4;

/// The children of a node.
#[derive(Clone, Debug)]
pub(crate) enum Children {
    Few(Vec<(Arc<str>, Arc<PathNode>)>),
    Many(Map<Arc<str>, Arc<PathNode>>),
}

impl Default for Children {
    fn default() -> Self {
        Children::Few(Vec::new())
    }
}

impl Children {
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Children::Few(list) => list.is_empty(),
            Children::Many(map) => map.is_empty(),
        }
    }

    pub(crate) fn get(&self, segment: &str) -> Option<&Arc<PathNode>> {
        match self {
            Children::Few(list) => {
                let found = list.iter().find(|(known, _)| **known == *segment);
                found.map(|(_, node)| node)
            }
            Children::Many(map) => map.get(segment),
        }
    }

    pub(crate) fn get_mut(&mut self, segment: &str) -> Option<&mut Arc<PathNode>> {
        match self {
            Children::Few(list) => {
                let found = list.iter_mut().find(|(known, _)| **known == *segment);
                found.map(|(_, node)| node)
            }
            Children::Many(map) => map.get_mut(segment),
        }
    }

    /// Inserts a node under a segment that has none.
    pub(crate) fn insert(&mut self, segment: &str, node: Arc<PathNode>) {
        match self {
            Children::Few(list) if list.len() < MAX_LIST => {
                list.reserve_exact(1);
                list.push((segment.into(), node));
            }
            Children::Few(list) => {
                let mut map: Map<Arc<str>, Arc<PathNode>> =
                    std::mem::take(list).into_iter().collect();
                map.insert(segment.into(), node);
                *self = Children::Many(map);
            }
            Children::Many(map) => {
                map.insert(segment.into(), node);
            }
        }
    }

    pub(crate) fn remove(&mut self, segment: &str) {
        match self {
            Children::Few(list) => list.retain(|(known, _)| **known != *segment),
            Children::Many(map) => {
                map.remove(segment);
            }
        }
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<PathNode>> {
        let (list, map) = match self {
            Children::Few(list) => (Some(list), None),
            Children::Many(map) => (None, Some(map)),
        };
        let few = list.into_iter().flatten().map(|(_, node)| node);
        few.chain(map.into_iter().flat_map(|map| map.values()))
    }
}
