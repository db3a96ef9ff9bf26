//! One-time loading of objects, for commands that carry no traffic.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use pointsman_binding::{Binder, Change, Controller, ServedApi};
use pointsman_resources::read::Document;
use pointsman_resources::{Finding, ObjectKey};
use pointsman_routing::Tables;

use crate::files::Files;
use crate::{ManifestPermissions, data_sources};

/// Objects of files or of a cluster.
#[derive(Default)]
pub struct LoadedObjects {
    /// Valid objects, in the order of the input.
    pub documents: Vec<Arc<Document>>,
    /// Objects that validation rejected, with the position or the reason.
    pub rejected: Vec<(ObjectKey, Arc<str>)>,
    /// Errors and warnings from reading and validating the objects.
    pub findings: Vec<Finding>,
    /// Numbers of objects of kinds that are not used.
    pub ignored_kinds: BTreeMap<String, usize>,
    /// Kinds that the cluster serves; `None` for files.
    pub served_api: Option<Arc<ServedApi>>,
}

/// Objects and the configuration that they result in.
pub struct Loaded {
    /// The objects.
    pub objects: LoadedObjects,
    /// Binder to which all objects were applied.
    pub binder: Binder,
    /// Routing tables.
    pub tables: Tables,
    index: BTreeMap<ObjectKey, usize>,
}

impl Loaded {
    /// Returns the document of an object.
    pub fn document(&self, key: &ObjectKey) -> Option<&Arc<Document>> {
        self.objects.documents.get(*self.index.get(key)?)
    }
}

/// Reads all manifests below some paths. An unreadable file is reported among the findings.
pub fn read(paths: &[PathBuf]) -> LoadedObjects {
    let mut files = Files::new(paths, None);
    files.scan_all(true);
    LoadedObjects {
        documents: files.documents().into_iter().cloned().collect(),
        rejected: files.rejected().collect(),
        findings: files.findings(),
        ignored_kinds: files.ignored_kinds(),
        ..LoadedObjects::default()
    }
}

/// Binds objects for the statuses of a controller.
pub fn bind(
    objects: LoadedObjects,
    controller: Controller,
    permissions: &ManifestPermissions,
) -> Loaded {
    let mut binder = Binder::new();
    let mut tables = Tables::default();
    let policy = Change::EndpointPolicy(permissions.endpoints.clone());
    let served = objects.served_api.clone().map(Change::ServedApi);
    let controller = Change::Controller(Arc::new(controller));
    let changes = objects.documents.iter().flat_map(|document| {
        let read = data_sources::read_all(&document.resource, &permissions.content).into_iter();
        let read = read.map(|(source, content)| Change::Content(source, Some(content)));
        read.chain([Change::Put(document.resource.clone())])
    });
    let rejected = objects.rejected.iter().cloned();
    let rejected = rejected.map(|(key, position)| Change::Reject(key, Some(position)));
    let settings = [policy, controller].into_iter().chain(served);
    let changes = settings.chain(changes).chain(rejected);
    tables.apply(&binder.apply(changes));
    let documents = objects.documents.iter().enumerate();
    Loaded {
        index: documents
            .map(|(index, document)| (document.resource.key(), index))
            .collect(),
        binder,
        tables,
        objects,
    }
}
