//! Files, folders and standard input, read and bound.

use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use pointsman_binding::{Binder, Change};
use pointsman_resources::read::{Input, Reader};
use pointsman_routing::Tables;

/// What was read, and what came of it.
pub struct World {
    /// The documents and what is wrong with them.
    pub input: Input,
    /// The documents, bound.
    pub binder: Binder,
    /// The tables made of that.
    pub tables: Tables,
}

/// Reads everything that the paths name, and binds it. What can't be read is a finding like any other.
pub fn load(paths: &[PathBuf]) -> World {
    let mut sources = Sources::default();
    for path in paths {
        sources.take(path);
    }
    let input = sources.reader.finish();
    let mut binder = Binder::new();
    let mut tables = Tables::default();
    let changes = input
        .documents
        .iter()
        .map(|document| Change::Put(document.resource.clone()));
    tables.apply(&binder.apply(changes));
    World {
        input,
        binder,
        tables,
    }
}

#[derive(Default)]
struct Sources {
    reader: Reader,
    /// The real paths of what was read: a file that is named twice, or linked to, is read once.
    read: HashSet<PathBuf>,
}

impl Sources {
    fn take(&mut self, path: &Path) {
        if path.as_os_str() == "-" {
            let mut bytes = Vec::new();
            match std::io::stdin().read_to_end(&mut bytes) {
                Ok(_) => self.reader.read("-", &bytes),
                Err(error) => self.reader.unreadable("-", error.to_string()),
            }
        } else if path.is_dir() {
            let (mut files, mut folders) = (Vec::new(), HashSet::new());
            self.collect(path, &mut files, &mut folders);
            if files.is_empty() {
                let message = "this folder holds no *.yaml, *.yml or *.json".to_owned();
                self.unreadable(path, message);
            }
            // A file's path stands for the age of what is in it.
            files.sort();
            files.iter().for_each(|file| self.read(file));
        } else {
            self.read(path);
        }
    }

    fn read(&mut self, file: &Path) {
        match std::fs::read(file) {
            Err(error) => self.unreadable(file, error.to_string()),
            Ok(bytes) if is_new(file, &mut self.read) => {
                self.reader.read(&file.to_string_lossy(), &bytes)
            }
            Ok(_) => {}
        }
    }

    /// Finds the files of a folder. One that is linked into itself is searched once.
    fn collect(&mut self, folder: &Path, files: &mut Vec<PathBuf>, folders: &mut HashSet<PathBuf>) {
        if !is_new(folder, folders) {
            return;
        }
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => return self.unreadable(folder, error.to_string()),
        };
        for entry in entries {
            let path = match entry {
                Ok(entry) => entry.path(),
                Err(error) => return self.unreadable(folder, error.to_string()),
            };
            // Hidden files are editors' and mounts' own: a mounted ConfigMap holds everything twice, once under `..data`.
            let hidden = path
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if hidden {
                continue;
            }
            if path.is_dir() {
                self.collect(&path, files, folders);
            } else if path
                .extension()
                .is_some_and(|end| ["yaml", "yml", "json"].iter().any(|known| end == *known))
            {
                files.push(path);
            }
        }
    }

    fn unreadable(&mut self, path: &Path, message: String) {
        self.reader.unreadable(&path.to_string_lossy(), message);
    }
}

/// Whether a path is seen for the first time. What has no real path, such as a pipe, always is.
fn is_new(path: &Path, seen: &mut HashSet<PathBuf>) -> bool {
    path.canonicalize().map_or(true, |real| seen.insert(real))
}
