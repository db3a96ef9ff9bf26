//! Directory scans, and the symbolic links along a path.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Links that the kernel follows along one path.
const MAX_LINKS: usize = 40;

/// Identity, size and times of a file. A file that was replaced or written to has another stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    file: (u64, u64),
    size: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// Returns the stamp of the file at a path, if there is one.
    pub fn of(path: &Path) -> Option<FileStamp> {
        let data = path.metadata().ok()?;
        Some(FileStamp {
            file: (data.dev(), data.ino()),
            size: data.size(),
            written: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        })
    }
}

/// Result of a directory scan.
#[derive(Default)]
pub struct DirectoryScan {
    /// Files with the name of a manifest.
    pub files: Vec<PathBuf>,
    /// Directories, the first one included.
    pub directories: HashSet<PathBuf>,
    /// Directories that are symbolic links.
    pub links: Vec<PathBuf>,
    /// Directories that could not be read, with the error.
    pub problems: Vec<(PathBuf, String)>,
    /// Devices and inodes of the directories.
    seen: HashSet<(u64, u64)>,
    /// Real paths of the directories that `-f` names. Links to directories elsewhere are not followed: with a link to `/` among untrusted manifests, the whole
    /// machine would be scanned.
    roots: Vec<PathBuf>,
}

/// Maximum depth of directories below one that `-f` names.
const MAX_DEPTH: usize = 64;

impl DirectoryScan {
    /// Creates an empty result of a scan that follows links only to directories below these.
    pub fn within<'r>(roots: impl Iterator<Item = &'r Path>) -> Self {
        DirectoryScan {
            roots: roots.filter_map(|root| root.canonicalize().ok()).collect(),
            ..DirectoryScan::default()
        }
    }

    /// Adds the files below a directory. A directory that is linked into itself is scanned once. `enter` is called before each directory is read.
    pub fn add(&mut self, directory: &Path, enter: &mut impl FnMut(&Path)) {
        self.add_at(directory, 0, enter);
    }

    fn add_at(&mut self, directory: &Path, depth: usize, enter: &mut impl FnMut(&Path)) {
        // A directory that has disappeared counts as new: reading it fails below.
        let data = directory.metadata();
        if !data.map_or(true, |data| self.seen.insert((data.dev(), data.ino()))) {
            return;
        }
        self.directories.insert(directory.to_owned());
        enter(directory);
        let entries = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) => {
                return self
                    .problems
                    .push((directory.to_owned(), error.to_string()));
            }
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    return self
                        .problems
                        .push((directory.to_owned(), error.to_string()));
                }
            };
            let path = entry.path();
            // Hidden files belong to editors and mounts: a mounted ConfigMap contains every file twice, once under `..data`.
            if is_hidden(Path::new(&entry.file_name())) {
                continue;
            }
            let kind = entry.file_type().ok();
            let is_link = kind.is_none_or(|kind| kind.is_symlink());
            let is_directory = match is_link {
                true => path.is_dir(),
                false => kind.is_some_and(|kind| kind.is_dir()),
            };
            if is_directory {
                if is_link {
                    self.links.push(path.clone());
                }
                let problem = match is_link && !self.is_inside(&path) {
                    true => {
                        "this link leads out of the directories that -f names; it is not followed"
                    }
                    false if depth == MAX_DEPTH => {
                        "nested too deeply; this directory is not scanned"
                    }
                    false => {
                        self.add_at(&path, depth + 1, enter);
                        continue;
                    }
                };
                self.problems.push((path, problem.to_owned()));
            } else if is_manifest(&path) {
                self.files.push(path);
            }
        }
    }

    fn is_inside(&self, path: &Path) -> bool {
        let real = path.canonicalize();
        real.is_ok_and(|real| self.roots.iter().any(|root| real.starts_with(root)))
    }
}

/// Returns whether a file has the name of a manifest.
pub fn is_manifest(path: &Path) -> bool {
    let extension = path.extension();
    extension.is_some_and(|extension| {
        ["yaml", "yml", "json"]
            .iter()
            .any(|known| extension == *known)
    })
}

/// Returns whether a component of a path begins with a dot.
pub fn is_hidden(path: &Path) -> bool {
    path.components()
        .any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"."))
}

/// Returns the symbolic links along a path, followed by their final target. Empty if there are none.
pub fn link_chain(path: &Path) -> Vec<PathBuf> {
    let reversed_parts = |path: &Path| -> Vec<OsString> {
        let all = path.components().rev();
        all.map(|part| part.as_os_str().to_owned()).collect()
    };
    let (mut chain, mut at) = (Vec::new(), PathBuf::new());
    let mut rest = reversed_parts(path);
    while let Some(part) = rest.pop().filter(|_| chain.len() < MAX_LINKS) {
        match Path::new(&part).components().next() {
            Some(Component::ParentDir) if at.file_name().is_some() => {
                at.pop();
                continue;
            }
            _ => at.push(part),
        }
        if let Ok(target) = std::fs::read_link(&at) {
            chain.push(at.clone());
            at.pop();
            rest.extend(reversed_parts(&target));
        }
    }
    if !chain.is_empty() {
        chain.push(at);
    }
    chain
}
