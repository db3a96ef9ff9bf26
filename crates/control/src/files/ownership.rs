//! Ownership of objects: an object that several files declare belongs to the first of them. The contents of all files are merged here.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pointsman_resources::read::Document;
use pointsman_resources::{Finding, Kind, ObjectKey, Severity};

use super::content::FileContent;
use super::{ChangedObjects, FileId, Files};

impl Files {
    /// Replaces a file's content, updates the owners of the objects in it, and adds the objects that may have changed to `changed`.
    pub(super) fn replace(
        &mut self,
        id: &FileId,
        content: FileContent,
        changed: &mut ChangedObjects,
    ) {
        let Some(file) = self.files.get_mut(id) else {
            return;
        };
        let old = std::mem::replace(&mut file.content, content);
        let new = &file.content;
        if old.findings != new.findings || old.ignored != new.ignored {
            self.findings_version += 1;
        }
        for key in old.declared.keys() {
            if new.declared.get(key).is_none()
                && let Some(files) = self.owners.get_mut(key)
            {
                files.remove(id);
                self.findings_version += u64::from(!files.is_empty());
                if files.len() < 2 {
                    self.duplicates.remove(key);
                }
                if files.is_empty() {
                    self.owners.remove(key);
                }
                changed.insert(key.clone());
            }
        }
        for key in new.declared.keys() {
            let rejected_at = |content: &FileContent| {
                let object = content.declared.get(key);
                object.and_then(|object| object.rejected_at)
            };
            if old.declared.get(key).is_none() {
                let files = self.owners.entry(key.clone()).or_default();
                files.insert(id);
                if files.len() > 1 {
                    self.duplicates.insert(key.clone());
                    self.findings_version += 1;
                }
                changed.insert(key.clone());
            } else if !is_same(old.documents.get(key), new.documents.get(key))
                || rejected_at(&old) != rejected_at(new)
            {
                changed.insert(key.clone());
            }
        }
    }

    /// Returns the version of an object that is in effect, from the file that owns it.
    pub fn document(&self, key: &ObjectKey) -> Option<&Arc<Document>> {
        let owner = self.owners.get(key)?.first()?;
        self.files.get(owner)?.content.documents.get(key)
    }

    /// Returns the position (`file:line:column`) at which validation rejected an object. Only for objects without a valid version in effect, and for Secrets, whose
    /// rejection is always reported.
    pub fn rejected_at(&self, key: &ObjectKey) -> Option<Arc<str>> {
        let owner = self.owners.get(key)?.first()?;
        let content = &self.files.get(owner)?.content;
        let at = content.declared.get(key)?.rejected_at?;
        let file = owner.path.to_string_lossy();
        let is_in_effect = content.documents.contains_key(key);
        let is_reported = !is_in_effect || key.kind == Kind::Secret;
        is_reported.then(|| format!("{file}:{}:{}", at.line, at.column).into())
    }

    /// Returns the objects for which [`Self::rejected_at`] returns a position, with that position.
    pub fn rejected(&self) -> impl Iterator<Item = (ObjectKey, Arc<str>)> {
        let keys = self.owners.keys();
        keys.filter_map(|key| Some((key.clone(), self.rejected_at(key)?)))
    }

    /// Returns all objects in effect, in the order of the input.
    pub fn documents(&self) -> Vec<&Arc<Document>> {
        let mut all: Vec<&Arc<Document>> = self
            .owners
            .keys()
            .filter_map(|key| self.document(key))
            .collect();
        all.sort_by_key(|document| document.resource.meta().input_order);
        all
    }

    /// Returns all errors and warnings, in the order of the input.
    pub fn findings(&self) -> Vec<Finding> {
        let mut duplicates = self.duplicate_findings();
        let mut all = Vec::new();
        for (index, root) in self.roots.iter().enumerate() {
            all.extend(root.problems.iter().cloned());
            for (id, file) in self.of_root(index) {
                let start = all.len();
                all.extend(file.content.findings.iter().cloned());
                if let Some(more) = duplicates.remove(id) {
                    all.extend(more);
                    all[start..].sort_by_key(|finding| (finding.line, finding.column));
                }
            }
        }
        all
    }

    /// Returns an error for each object that an earlier file already declares, by file.
    fn duplicate_findings(&self) -> HashMap<&FileId, Vec<Finding>> {
        let mut findings: HashMap<&FileId, Vec<Finding>> = HashMap::new();
        let declared =
            |id: &FileId, key| self.files.get(id).and_then(|f| f.content.declared.get(key));
        for key in &self.duplicates {
            let Some((owner, others)) = self.owners.get(key).and_then(|files| files.split_first())
            else {
                continue;
            };
            let Some(first) = declared(owner, key) else {
                continue;
            };
            let owner = owner.path.to_string_lossy();
            for id in others {
                let finding = declared(id, key).map(|object| Finding {
                    severity: Severity::Error,
                    file: id.path.to_string_lossy().into(),
                    line: object.name_at.line as usize,
                    column: object.name_at.column as usize,
                    field: object.field.clone(),
                    message: object.duplicate_message(&owner, first.at),
                });
                findings.entry(id).or_default().extend(finding);
            }
        }
        findings
    }

    /// Returns the number of ignored objects of each kind that Pointsman does not use.
    pub fn ignored_kinds(&self) -> BTreeMap<String, usize> {
        let mut all = BTreeMap::new();
        for file in self.files.values() {
            for (kind, number) in &file.content.ignored {
                *all.entry(kind.clone()).or_default() += number;
            }
        }
        all
    }
}

fn is_same(old: Option<&Arc<Document>>, new: Option<&Arc<Document>>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => Arc::ptr_eq(old, new),
        (None, None) => true,
        _ => false,
    }
}
