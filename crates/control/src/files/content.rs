//! What one file holds, and what is kept of what it held when it breaks.
//!
//! An object that is broken keeps the form that worked, as long as the file still names it. Where something stands that nobody can put
//! a name to, everything that the file no longer names is kept, as it may be that. A file that can't be read keeps all.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use pointsman_resources::read::{DeclaredObject, Document, ManifestReader, Manifests};
use pointsman_resources::{Finding, ObjectKey, Severity};

use super::order;

/// What a file holds.
#[derive(Default)]
pub struct Content {
    /// The objects in effect.
    pub documents: HashMap<ObjectKey, Arc<Document>>,
    /// Every object that is named, and those that are kept.
    pub named: HashMap<ObjectKey, DeclaredObject>,
    /// What is wrong with it.
    pub findings: Vec<Finding>,
    /// How many objects of each kind that is not ours were passed over.
    pub passed_over: BTreeMap<String, usize>,
    /// Whether its bytes could be had.
    pub was_read: bool,
}

impl Content {
    /// What these bytes hold, where `old` stood before.
    pub fn read(name: &str, bytes: &[u8], label: u64, old: &Content) -> Content {
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
            meta.input_order = order::in_file(label, meta.input_order);
            let key = document.resource.key();
            // What is the same stays the same thing, so that nobody looks at it again.
            let same = old.documents.get(&key).filter(|old| ***old == document);
            let document = same.cloned().unwrap_or_else(|| Arc::new(document));
            (key, document)
        });
        let mut content = Content {
            documents: documents.collect(),
            named: declared.into_iter().map(|n| (n.key.clone(), n)).collect(),
            findings,
            passed_over: ignored,
            was_read: true,
        };
        content.keep(name, old, has_unidentified);
        content
    }

    /// Takes over of the old content what this one has broken.
    fn keep(&mut self, name: &str, old: &Content, has_unidentified: bool) {
        let mut kept: Vec<&ObjectKey> = old
            .documents
            .keys()
            .filter(|key| !self.documents.contains_key(key))
            .filter(|key| has_unidentified || self.named.contains_key(key))
            .collect();
        kept.sort();
        for key in kept {
            let (Some(document), Some(before)) = (old.documents.get(key), old.named.get(key))
            else {
                continue;
            };
            self.documents.insert(key.clone(), document.clone());
            let named = self.named.entry(key.clone());
            let at = named.or_insert_with(|| before.clone()).at;
            self.findings.push(Finding {
                severity: Severity::Warning,
                file: name.into(),
                line: at.line as usize,
                column: at.column as usize,
                field: String::new(),
                message: format!("{key}: what stood here before stays in effect"),
            });
        }
    }

    /// What a file holds that can't be read: what it held.
    pub fn unreadable(path: &Path, error: &str, old: &Content) -> Content {
        let mut message = error.to_owned();
        if !old.documents.is_empty() {
            message += "; what was read there stays in effect";
        }
        Content {
            documents: old.documents.clone(),
            named: old.named.clone(),
            findings: vec![unreadable(path, message)],
            passed_over: old.passed_over.clone(),
            was_read: false,
        }
    }

    /// Gives all objects their places in a file of another number. Returns which they are.
    pub fn move_to(&mut self, label: u64) -> Vec<ObjectKey> {
        for document in self.documents.values_mut() {
            let meta = Arc::make_mut(document).resource.meta_mut();
            meta.input_order = order::in_file(label, meta.input_order & 0xf_ffff);
        }
        self.documents.keys().cloned().collect()
    }
}

/// That a file or folder could not be read at all. It has no line to point at.
pub fn unreadable(path: &Path, message: String) -> Finding {
    Finding {
        severity: Severity::Error,
        file: path.to_string_lossy().into(),
        line: 0,
        column: 0,
        field: String::new(),
        message,
    }
}
