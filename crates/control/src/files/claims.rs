//! Which file has which object, and what is said of all of them together.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pointsman_resources::read::Document;
use pointsman_resources::{Finding, ObjectKey, Severity};

use super::content::Content;
use super::{Changed, FileId, Files};

impl Files {
    /// Puts a file's new content in place of the old, and sees who has which object now.
    pub(super) fn replace(&mut self, id: &FileId, content: Content, changed: &mut Changed) {
        let Some(file) = self.files.get_mut(id) else {
            return;
        };
        let old = std::mem::replace(&mut file.content, content);
        let new = &file.content;
        if old.findings != new.findings || old.passed_over != new.passed_over {
            self.noted += 1;
        }
        for key in old.named.keys() {
            if !new.named.contains_key(key)
                && let Some(files) = self.claims.get_mut(key)
            {
                files.remove(id);
                self.noted += u64::from(!files.is_empty());
                if files.len() < 2 {
                    self.contested.remove(key);
                }
                if files.is_empty() {
                    self.claims.remove(key);
                }
                changed.insert(key.clone());
            }
        }
        for key in new.named.keys() {
            if !old.named.contains_key(key) {
                let files = self.claims.entry(key.clone()).or_default();
                files.insert(id);
                if files.len() > 1 {
                    self.contested.insert(key.clone());
                    self.noted += 1;
                }
                changed.insert(key.clone());
            } else if !is_same(old.documents.get(key), new.documents.get(key))
                || old.named[key].rejected_at != new.named[key].rejected_at
            {
                changed.insert(key.clone());
            }
        }
    }

    /// An object, as the file that has it says.
    pub fn document(&self, key: &ObjectKey) -> Option<&Arc<Document>> {
        let first = self.claims.get(key)?.first()?;
        self.files.get(first)?.content.documents.get(key)
    }

    /// Where validation rejected an object that has no valid version in effect: `file:line:column`.
    pub fn rejected_at(&self, key: &ObjectKey) -> Option<Arc<str>> {
        let first = self.claims.get(key)?.first()?;
        let content = &self.files.get(first)?.content;
        let at = content.named.get(key)?.rejected_at?;
        let file = first.path.to_string_lossy();
        let is_in_effect = content.documents.contains_key(key);
        (!is_in_effect).then(|| format!("{file}:{}:{}", at.line, at.column).into())
    }

    /// All objects that validation rejected and that have no valid version in effect, and where.
    pub fn rejected(&self) -> impl Iterator<Item = (ObjectKey, Arc<str>)> {
        let keys = self.claims.keys();
        keys.filter_map(|key| Some((key.clone(), self.rejected_at(key)?)))
    }

    /// All objects, in the order of the input.
    pub fn documents(&self) -> Vec<&Arc<Document>> {
        let mut all: Vec<&Arc<Document>> = self
            .claims
            .keys()
            .filter_map(|key| self.document(key))
            .collect();
        all.sort_by_key(|document| document.resource.meta().input_order);
        all
    }

    /// Everything that was found, in the order of the input.
    pub fn findings(&self) -> Vec<Finding> {
        let mut second: HashMap<&FileId, Vec<Finding>> = HashMap::new();
        for key in &self.contested {
            let mut files = self
                .claims
                .get(key)
                .into_iter()
                .flat_map(|files| files.iter());
            let Some(first) = files.next() else { continue };
            let Some(there) = self.files.get(first).and_then(|f| f.content.named.get(key)) else {
                continue;
            };
            let place = first.path.to_string_lossy();
            for id in files {
                let named = self.files.get(id).and_then(|f| f.content.named.get(key));
                let findings = named.map(|named| Finding {
                    severity: Severity::Error,
                    file: id.path.to_string_lossy().into(),
                    line: named.name_at.line as usize,
                    column: named.name_at.column as usize,
                    field: named.field.clone(),
                    message: named.duplicate_message(&place, there.at),
                });
                second.entry(id).or_default().extend(findings);
            }
        }
        let mut all = Vec::new();
        for (index, root) in self.roots.iter().enumerate() {
            all.extend(root.problems.iter().cloned());
            for (id, file) in self.of_root(index) {
                let start = all.len();
                all.extend(file.content.findings.iter().cloned());
                if let Some(more) = second.remove(id) {
                    all.extend(more);
                    all[start..].sort_by_key(|finding| (finding.line, finding.column));
                }
            }
        }
        all
    }

    /// How many objects of each kind that is not ours were passed over.
    pub fn passed_over(&self) -> BTreeMap<String, usize> {
        let mut all = BTreeMap::new();
        for file in self.files.values() {
            for (kind, number) in &file.content.passed_over {
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
