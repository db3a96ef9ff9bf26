//! Manifests read and bound once, for commands that carry no traffic.

use std::path::PathBuf;

use pointsman_binding::{Binder, Change};
use pointsman_resources::Finding;
use pointsman_routing::Tables;

use crate::files::Files;
use crate::{Permissions, data_sources};

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
pub fn load(paths: &[PathBuf], permissions: &Permissions) -> World {
    let mut files = Files::new(paths, None);
    files.scan(true);
    let mut binder = Binder::new();
    let mut tables = Tables::default();
    let policy = Change::EndpointPolicy(permissions.endpoints.clone());
    let documents = files.documents().into_iter();
    let changes = documents.flat_map(|document| {
        let read = data_sources::read_all(&document.resource, &permissions.content).into_iter();
        let read = read.map(|(source, content)| Change::Content(source, Some(content)));
        read.chain([Change::Put(document.resource.clone())])
    });
    let rejected = files.rejected();
    let rejected = rejected.map(|(key, place)| Change::Reject(key, Some(place)));
    let changes = [policy].into_iter().chain(changes).chain(rejected);
    tables.apply(&binder.apply(changes));
    World {
        findings: files.findings(),
        files,
        binder,
        tables,
    }
}
