//! Where files really are, and the links on the way to them: several paths may lead to one file, and a link that changes changes what
//! is behind it.

use std::path::{Path, PathBuf};

use super::{Dependent, FileId, Files};

impl Files {
    /// Notes where a file really is. Returns the files that have to be read again for it.
    pub(super) fn really_at(&mut self, id: &FileId, real: Option<PathBuf>) -> Vec<FileId> {
        let Some(file) = self.files.get_mut(id) else {
            return Vec::new();
        };
        if file.real == real {
            return Vec::new();
        }
        let mut again = Vec::new();
        if let Some(old) = std::mem::replace(&mut file.real, real.clone())
            && let Some(paths) = self.reals.get_mut(&old)
        {
            let had_it = paths.first() == Some(id);
            paths.remove(id);
            again.extend(paths.first().filter(|_| had_it).cloned());
            if paths.is_empty() {
                self.reals.remove(&old);
            }
        }
        if let Some(real) = real {
            let paths = self.reals.entry(real).or_default();
            let first = paths.first().cloned();
            paths.insert(id);
            again.extend(first.filter(|first| id < first));
        }
        again
    }

    /// Notes on which links something depends, and has their folders watched.
    pub(super) fn follow(&mut self, dependent: Dependent, hops: &[PathBuf]) {
        let old = match &dependent {
            Dependent::File(id) => self.files.get_mut(id).map(|file| &mut file.hops),
            Dependent::Root(_) => None,
        };
        for hop in old.map(std::mem::take).into_iter().flatten() {
            if let Some(dependents) = self.links.get_mut(&hop) {
                dependents.remove(&dependent);
                if dependents.is_empty() {
                    self.links.remove(&hop);
                }
            }
        }
        for hop in hops {
            let dependents = self.links.entry(hop.clone()).or_default();
            if dependents.insert(dependent.clone()) {
                self.watch_above(hop);
            }
        }
    }

    /// Has the folder watched that a path is in, or the nearest one above it that exists.
    pub(super) fn watch_above(&mut self, path: &Path) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        let real = |folder: &Path| folder.as_os_str().is_empty() || folder.is_dir();
        if path.file_name().is_some()
            && let Some(folder) = path.ancestors().skip(1).find(|folder| real(folder))
        {
            watcher(folder);
        }
    }
}
