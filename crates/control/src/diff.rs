//! Comparison of two sets of manifests by the requests that they treat differently.

use pointsman_routing::diff::{Comparison, RecordedRequest, Side, compare as compare_sides};

use crate::explain::directory;
use crate::offline::Loaded;

/// Compares two sets of objects, and the treatment of recorded requests if there are any.
pub fn compare(old: &Loaded, new: &Loaded, recorded: Option<&[RecordedRequest]>) -> Comparison {
    let directories = [directory(&old.binder), directory(&new.binder)];
    let [old, new] = [(old, &directories[0]), (new, &directories[1])].map(|(loaded, directory)| {
        let tables = &loaded.tables;
        Side { tables, directory }
    });
    compare_sides(&old, &new, recorded)
}
