//! Content of one file, and the objects that stay in effect when the file becomes invalid.
//!
//! A broken object keeps its last valid version in effect as long as the file still names the object. If the file contains a document whose name can't be
//! read, that document may be any of the objects that the file no longer names, so all of those stay in effect. An unreadable file keeps everything.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use pointsman_resources::read::{DeclaredObject, Document, ManifestReader, Manifests};
use pointsman_resources::{Finding, Kind, ObjectKey, Severity};

use super::order_labels;

/// Content of a file.
#[derive(Default)]
pub struct FileContent {
    /// Objects in effect.
    pub documents: HashMap<ObjectKey, Arc<Document>>,
    /// Objects that the file names, and those that stay in effect although it no longer does.
    pub declared: DeclaredObjects,
    /// Errors and warnings.
    pub findings: Vec<Finding>,
    /// Number of ignored objects of each kind that Pointsman does not use.
    pub ignored: BTreeMap<String, usize>,
    /// True if the file could be read.
    pub was_read: bool,
}

/// Declared objects by key. A sorted vector, because a map would store each key twice.
#[derive(Clone, Default)]
pub struct DeclaredObjects(Vec<DeclaredObject>);

impl DeclaredObjects {
    fn new(mut objects: Vec<DeclaredObject>) -> Self {
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        objects.shrink_to_fit();
        DeclaredObjects(objects)
    }

    fn find(&self, key: &ObjectKey) -> Result<usize, usize> {
        self.0.binary_search_by(|object| object.key.cmp(key))
    }

    /// Returns an object.
    pub fn get(&self, key: &ObjectKey) -> Option<&DeclaredObject> {
        self.find(key).ok().map(|at| &self.0[at])
    }

    /// Returns the object with this key, inserting `object` if there is none.
    fn get_or_insert(&mut self, object: &DeclaredObject) -> &mut DeclaredObject {
        let at = self.find(&object.key).unwrap_or_else(|at| {
            self.0.insert(at, object.clone());
            at
        });
        &mut self.0[at]
    }

    /// Iterates over the keys in order.
    pub fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.0.iter().map(|object| &object.key)
    }
}

impl FileContent {
    /// Parses the bytes of a file whose content was `old` before.
    pub fn parse(name: &str, bytes: &[u8], label: u64, old: &FileContent) -> FileContent {
        let mut reader = ManifestReader::new();
        reader.read(name, bytes);
        let Manifests {
            documents,
            findings,
            ignored,
            declared,
            has_unidentified,
        } = reader.finish();
        let documents = documents.into_iter().map(|mut document| {
            let meta = document.resource.meta_mut();
            meta.input_order = order_labels::position(label, meta.input_order);
            let key = document.resource.key();
            // An unchanged document keeps its allocation, so that it does not count as a change.
            let same = old.documents.get(&key).filter(|old| ***old == document);
            let document = same.cloned().unwrap_or_else(|| Arc::new(document));
            (key, document)
        });
        let mut content = FileContent {
            documents: documents.collect(),
            declared: DeclaredObjects::new(declared),
            findings,
            ignored,
            was_read: true,
        };
        content.retain_last_valid(name, old, has_unidentified);
        content
    }

    /// Keeps the last valid version of each broken object in effect, with a warning.
    fn retain_last_valid(&mut self, name: &str, old: &FileContent, has_unidentified: bool) {
        let mut retained: Vec<&ObjectKey> = old
            .documents
            .keys()
            .filter(|key| !self.documents.contains_key(key))
            .filter(|key| has_unidentified || self.declared.get(key).is_some())
            .collect();
        retained.sort();
        for key in retained {
            let (Some(document), Some(before)) = (old.documents.get(key), old.declared.get(key))
            else {
                continue;
            };
            self.documents.insert(key.clone(), document.clone());
            let declared = self.declared.get_or_insert(before);
            let at = declared.at;
            // The status of listeners that use the Secret reports it even where the file could not be parsed.
            if key.kind == Kind::Secret {
                declared.rejected_at.get_or_insert(at);
            }
            self.findings.push(Finding {
                severity: Severity::Warning,
                file: name.into(),
                line: at.line as usize,
                column: at.column as usize,
                field: String::new(),
                message: format!("{key}: its last valid version stays in effect"),
            });
        }
    }

    /// Creates the content of a file that can't be read: its last content stays in effect.
    pub fn from_read_error(path: &Path, error: &str, old: &FileContent) -> FileContent {
        let message = read_error_message(error, !old.documents.is_empty());
        FileContent {
            documents: old.documents.clone(),
            declared: old.declared.clone(),
            findings: vec![read_error_finding(path, message)],
            ignored: old.ignored.clone(),
            was_read: false,
        }
    }

    /// Updates the positions of all objects for a new label of their file. Returns their keys.
    pub fn relabel(&mut self, label: u64) -> Vec<ObjectKey> {
        for document in self.documents.values_mut() {
            let meta = Arc::make_mut(document).resource.meta_mut();
            meta.input_order = order_labels::position(label, order_labels::index(meta.input_order));
        }
        self.documents.keys().cloned().collect()
    }
}

/// Returns the error message for a path that can't be read.
pub fn read_error_message(error: &str, is_in_effect: bool) -> String {
    match is_in_effect {
        true => format!("{error}; its last content stays in effect"),
        false => error.to_owned(),
    }
}

/// Creates an error for a file or directory that can't be read. It has no line.
pub fn read_error_finding(path: &Path, message: String) -> Finding {
    Finding {
        severity: Severity::Error,
        file: path.to_string_lossy().into(),
        line: 0,
        column: 0,
        field: String::new(),
        message,
    }
}
