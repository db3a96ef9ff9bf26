//! Symbolic links: several paths may lead to one file, and a changed link leads to another file.

use std::path::{Path, PathBuf};

use super::{Dependent, FileId, Files};

impl Files {
    /// Records the canonical path of a file. Returns the files that have to be read again because another path to them now comes first.
    pub(super) fn set_canonical_path(
        &mut self,
        id: &FileId,
        canonical: Option<PathBuf>,
    ) -> Vec<FileId> {
        let Some(file) = self.files.get_mut(id) else {
            return Vec::new();
        };
        if file.canonical == canonical {
            return Vec::new();
        }
        let mut affected = Vec::new();
        if let Some(old) = std::mem::replace(&mut file.canonical, canonical.clone())
            && let Some(paths) = self.by_canonical_path.get_mut(&old)
        {
            let was_first = paths.first() == Some(id);
            paths.remove(id);
            affected.extend(paths.first().filter(|_| was_first).cloned());
            if paths.is_empty() {
                self.by_canonical_path.remove(&old);
            }
        }
        if let Some(canonical) = canonical {
            let paths = self.by_canonical_path.entry(canonical).or_default();
            let first = paths.first().cloned();
            paths.insert(id);
            affected.extend(first.filter(|first| id < first));
        }
        affected
    }

    /// Records the links that a file or root depends on, and watches their directories.
    pub(super) fn set_links(&mut self, dependent: Dependent, links: &[PathBuf]) {
        let old = match &dependent {
            Dependent::File(id) => self.files.get_mut(id).map(|file| &mut file.links),
            Dependent::Root(_) => None,
        };
        for link in old.map(std::mem::take).into_iter().flatten() {
            if let Some(dependents) = self.links.get_mut(&link) {
                dependents.remove(&dependent);
                if dependents.is_empty() {
                    self.links.remove(&link);
                }
            }
        }
        for link in links {
            let dependents = self.links.entry(link.clone()).or_default();
            if dependents.insert(dependent.clone()) {
                self.watch_parent(link);
            }
        }
    }

    /// Watches the directory that contains a path, or its nearest ancestor that exists.
    pub(super) fn watch_parent(&mut self, path: &Path) {
        let Some(watch) = &mut self.watch else {
            return;
        };
        let exists = |directory: &Path| directory.as_os_str().is_empty() || directory.is_dir();
        if path.file_name().is_some()
            && let Some(directory) = path.ancestors().skip(1).find(|directory| exists(directory))
        {
            watch(directory);
        }
    }
}
