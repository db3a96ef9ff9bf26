//! Manifests read and bound once, for commands that carry no traffic.

use std::path::PathBuf;

use pointsman_binding::{Binder, Change};
use pointsman_resources::Finding;
use pointsman_routing::Tables;

use crate::data_sources;
use crate::files::Files;

/// What was read, and what came of it.
pub struct World {
    /// The documents.
    pub files: Files,
    /// What is wrong with them.
    pub findings: Vec<Finding>,
    /// The documents, bound.
    pub binder: Binder,
    /// The tables made of that.
    pub tables: Tables,
}

/// Reads everything that the paths name, and binds it. What can't be read is a finding like any other.
pub fn load(paths: &[PathBuf]) -> World {
    let mut files = Files::new(paths, None);
    files.scan(true);
    let mut binder = Binder::new();
    let mut tables = Tables::default();
    let documents = files.documents().into_iter();
    let changes = documents.flat_map(|document| {
        let read = data_sources::read_all(&document.resource).into_iter();
        let read = read.map(|(source, content)| Change::Content(source, Some(content)));
        read.chain([Change::Put(document.resource.clone())])
    });
    let rejected = files.rejected();
    let rejected = rejected.map(|(key, place)| Change::Reject(key, Some(place)));
    tables.apply(&binder.apply(changes.chain(rejected)));
    World {
        findings: files.findings(),
        files,
        binder,
        tables,
    }
}
