//! One-time loading of manifests, for commands that carry no traffic.

use std::path::PathBuf;

use pointsman_binding::{Binder, Change};
use pointsman_resources::Finding;
use pointsman_routing::Tables;

use crate::files::Files;
use crate::{Permissions, data_sources};

/// Manifests and the configuration that they result in.
pub struct LoadedManifests {
    /// The manifests.
    pub files: Files,
    /// Errors and warnings about the manifests as such.
    pub findings: Vec<Finding>,
    /// Binder to which all objects were applied.
    pub binder: Binder,
    /// Routing tables.
    pub tables: Tables,
}

/// Reads and binds all manifests below some paths. An unreadable file is reported among the findings.
pub fn load(paths: &[PathBuf], permissions: &Permissions) -> LoadedManifests {
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
    let rejected = rejected.map(|(key, position)| Change::Reject(key, Some(position)));
    let changes = [policy].into_iter().chain(changes).chain(rejected);
    tables.apply(&binder.apply(changes));
    LoadedManifests {
        findings: files.findings(),
        files,
        binder,
        tables,
    }
}
