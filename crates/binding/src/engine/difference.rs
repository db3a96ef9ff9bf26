//! Differences between old and new results.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Records the differences between two maps.
pub(crate) fn difference<K: Ord + Clone, V: PartialEq + Clone>(
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
    out: &mut Vec<(K, Option<Arc<V>>)>,
) {
    for key in before.keys().filter(|key| !after.contains_key(key)) {
        out.push((key.clone(), None));
    }
    for (key, value) in after {
        if before.get(key) != Some(value) {
            out.push((key.clone(), Some(Arc::new(value.clone()))));
        }
    }
}

/// Records a value if it differs from the old one. Returns the value to keep.
pub(crate) fn record_if_changed<K: Clone, V: PartialEq>(
    key: &K,
    old: Option<Arc<V>>,
    new: Option<V>,
    out: &mut Vec<(K, Option<Arc<V>>)>,
) -> Option<Arc<V>> {
    if old.as_deref() == new.as_ref() {
        return old;
    }
    let new = new.map(Arc::new);
    out.push((key.clone(), new.clone()));
    new
}

/// Like [`difference`], for values that are already shared.
pub(crate) fn difference_arc<K: Ord + Clone, V: PartialEq>(
    before: &BTreeMap<K, Arc<V>>,
    after: &BTreeMap<K, Arc<V>>,
    out: &mut Vec<(K, Option<Arc<V>>)>,
) {
    for key in before.keys().filter(|key| !after.contains_key(key)) {
        out.push((key.clone(), None));
    }
    for (key, value) in after {
        let same = before.get(key).is_some_and(|old| old == value);
        if !same {
            out.push((key.clone(), Some(value.clone())));
        }
    }
}
