//! Finding files in folders, and the links on the way to them.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// How a file looks without being read. A file that was replaced or written to looks different.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    file: (u64, u64),
    size: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// How the file at a path looks; none if there is none.
    pub fn of(path: &Path) -> Option<Stamp> {
        let data = path.metadata().ok()?;
        Some(Stamp {
            file: (data.dev(), data.ino()),
            size: data.size(),
            written: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        })
    }
}

/// What was found under a folder.
#[derive(Default)]
pub struct Found {
    /// The files that hold manifests by their name.
    pub files: Vec<PathBuf>,
    /// The folders, the first included.
    pub folders: HashSet<PathBuf>,
    /// The folders that are links.
    pub links: Vec<PathBuf>,
    /// What could not be read, and why.
    pub problems: Vec<(PathBuf, String)>,
    seen: HashSet<PathBuf>,
}

impl Found {
    /// Finds the files of a folder. One that is linked into itself is searched once. `enter` is told of each folder first.
    pub fn folder(&mut self, folder: &Path, enter: &mut impl FnMut(&Path)) {
        // What has no real path is always new.
        let real = folder.canonicalize();
        if !real.map_or(true, |real| self.seen.insert(real)) {
            return;
        }
        self.folders.insert(folder.to_owned());
        enter(folder);
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => {
                return self.problems.push((folder.to_owned(), error.to_string()));
            }
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    return self.problems.push((folder.to_owned(), error.to_string()));
                }
            };
            let path = entry.path();
            // Hidden files are editors' and mounts' own: a mounted ConfigMap holds everything twice, once under `..data`.
            if is_hidden(Path::new(&entry.file_name())) {
                continue;
            }
            let kind = entry.file_type().ok();
            let is_link = kind.is_none_or(|kind| kind.is_symlink());
            let is_folder = match is_link {
                true => path.is_dir(),
                false => kind.is_some_and(|kind| kind.is_dir()),
            };
            if is_folder {
                if is_link {
                    self.links.push(path.clone());
                }
                self.folder(&path, enter);
            } else if is_manifest(&path) {
                self.files.push(path);
            }
        }
    }
}

/// Whether a file is taken for manifests by its name.
pub fn is_manifest(path: &Path) -> bool {
    let end = path.extension();
    end.is_some_and(|end| ["yaml", "yml", "json"].iter().any(|known| end == *known))
}

/// Whether some part of a path begins with a dot.
pub fn is_hidden(path: &Path) -> bool {
    path.components()
        .any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"."))
}

/// The links on the way along a path, and what is at its end if there are any.
pub fn hops(path: &Path) -> Vec<PathBuf> {
    let parts = |path: &Path| -> Vec<OsString> {
        let all = path.components().rev();
        all.map(|part| part.as_os_str().to_owned()).collect()
    };
    let (mut hops, mut at) = (Vec::new(), PathBuf::new());
    let mut rest = parts(path);
    // As many links as the kernel follows.
    while let Some(part) = rest.pop().filter(|_| hops.len() < 40) {
        match Path::new(&part).components().next() {
            Some(Component::ParentDir) if at.file_name().is_some() => {
                at.pop();
                continue;
            }
            _ => at.push(part),
        }
        if let Ok(target) = std::fs::read_link(&at) {
            hops.push(at.clone());
            at.pop();
            rest.extend(parts(&target));
        }
    }
    if !hops.is_empty() {
        hops.push(at);
    }
    hops
}
