//! Manifests: the files that paths name, the objects in each of them, and the source that watches them.
//!
//! Each file is parsed separately and its content is kept, so that only changed files are parsed again. An object that several files declare belongs to the
//! first of them in the order of the input, as if all files had been read at once. One-shot commands and the watching [`FileSource`] use the same code. A
//! broken document keeps its last valid version in effect (`content`). Only this module reads manifests.
//! Files in a directory may be untrusted: only regular files of at most [`MANIFEST_SIZE`] bytes are read. A pipe given with `-f`, such as a shell's `<(…)`, is
//! read once, like standard input.

mod content;
mod directory;
mod links;
mod order_labels;
mod ownership;
mod source;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pointsman_resources::{Finding, ObjectKey};

use crate::safe_read;
use content::FileContent;
use directory::{DirectoryScan, FileStamp};

pub use source::{FileSource, Reloader};

/// Largest file or stream of manifests in bytes.
pub const MANIFEST_SIZE: usize = 16 * 1024 * 1024;

/// Key of a file. The order of keys is the order of the input.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct FileId {
    /// Index of the command-line path that the file was found under.
    root: usize,
    path: Arc<Path>,
}

impl FileId {
    fn new(root: usize, path: &Path) -> Self {
        FileId {
            root,
            path: path.into(),
        }
    }
}

/// A file that was found.
#[derive(Default)]
struct ManifestFile {
    /// Position among the other files ([`order_labels`]).
    label: u64,
    /// Stamp at the time of the last read.
    stamp: Option<FileStamp>,
    canonical: Option<PathBuf>,
    /// Symbolic links along the path.
    links: Vec<PathBuf>,
    /// Empty if an earlier path leads to the same file.
    content: FileContent,
}

/// A path of the command line.
struct InputPath {
    path: PathBuf,
    /// Errors that concern the path or its directories.
    problems: Vec<Finding>,
    /// Directories below the path, itself included.
    directories: HashSet<PathBuf>,
    kind: InputPathKind,
}

/// Kind of a command-line path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InputPathKind {
    /// Not examined yet.
    New,
    /// A file or directory, which may be missing.
    Path,
    /// Standard input, or a pipe or device named on the command line. It can be read only once.
    Stream,
}

/// A file or root that has to be read again when a link changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Dependent {
    File(FileId),
    Root(usize),
}

/// A set of files in the order of the input. A sorted vector, because there are many of these and most have one file.
#[derive(Default)]
struct FileSet(Vec<FileId>);

impl FileSet {
    fn insert(&mut self, id: &FileId) {
        if let Err(at) = self.0.binary_search(id) {
            self.0.reserve_exact(1);
            self.0.insert(at, id.clone());
        }
    }

    fn remove(&mut self, id: &FileId) {
        if let Ok(at) = self.0.binary_search(id) {
            self.0.remove(at);
        }
    }
}

impl std::ops::Deref for FileSet {
    type Target = [FileId];

    fn deref(&self) -> &[FileId] {
        &self.0
    }
}

/// Keys of objects that may have changed.
pub type ChangedObjects = BTreeSet<ObjectKey>;

/// Starts to watch a directory. Called before the directory is read, so that no change is missed.
pub type WatchDirectory = Box<dyn FnMut(&Path) + Send>;

/// All files below some command-line paths.
pub struct Files {
    roots: Vec<InputPath>,
    files: BTreeMap<FileId, ManifestFile>,
    /// Files that declare each object; the first one owns it.
    owners: HashMap<ObjectKey, FileSet>,
    /// Objects that more than one file declares.
    duplicates: BTreeSet<ObjectKey>,
    /// Paths that lead to each file; the first one is used.
    by_canonical_path: HashMap<PathBuf, FileSet>,
    /// Dependents of symbolic links.
    links: HashMap<PathBuf, BTreeSet<Dependent>>,
    watch: Option<WatchDirectory>,
    findings_version: u64,
}

impl Files {
    /// Creates the set of files below some paths: files, directories, and `-` for standard input. Reads nothing yet.
    pub fn new(paths: &[PathBuf], watch: Option<WatchDirectory>) -> Self {
        let root = |path: &PathBuf| InputPath {
            path: path.clone(),
            problems: Vec::new(),
            directories: HashSet::new(),
            kind: InputPathKind::New,
        };
        Files {
            roots: paths.iter().map(root).collect(),
            files: BTreeMap::new(),
            owners: HashMap::new(),
            duplicates: BTreeSet::new(),
            by_canonical_path: HashMap::new(),
            links: HashMap::new(),
            watch,
            findings_version: 0,
        }
    }

    /// Finds files and reads those that are new or have another stamp; with `reread`, all of them.
    pub fn scan_all(&mut self, reread: bool) -> ChangedObjects {
        let mut changed = ChangedObjects::new();
        for root in 0..self.roots.len() {
            self.scan_root(root, reread, &mut changed);
        }
        changed
    }

    /// Reads all files again that depend on these paths, for which the kernel reported events.
    pub fn reread_changed(&mut self, paths: &BTreeSet<PathBuf>) -> ChangedObjects {
        let mut changed = ChangedObjects::new();
        let (mut reads, mut scans) = (BTreeSet::new(), BTreeSet::new());
        for path in paths {
            for dependent in self.links.get(path).into_iter().flatten() {
                match dependent {
                    Dependent::File(id) => drop(reads.insert(id.clone())),
                    Dependent::Root(root) => drop(scans.insert(*root)),
                }
            }
            let roots = self.roots.iter().enumerate();
            for (index, root) in roots.filter(|(_, root)| root.kind != InputPathKind::Stream) {
                let concerns = root.path.starts_with(path) || path.starts_with(&root.path);
                if root.path.starts_with(path) || (concerns && !root.problems.is_empty()) {
                    scans.insert(index);
                } else if let Ok(inner) = path.strip_prefix(&root.path)
                    && !directory::is_hidden(inner)
                {
                    let id = FileId::new(index, path);
                    if root.directories.contains(path) || path.is_dir() {
                        scans.insert(index);
                    } else if self.files.contains_key(&id) || directory::is_manifest(path) {
                        reads.insert(id);
                    }
                }
            }
        }
        for root in &scans {
            self.scan_root(*root, false, &mut changed);
        }
        for id in reads {
            if self.roots[id.root].path.symlink_metadata().is_ok() {
                self.read(&id, &mut changed);
                if self.of_root(id.root).next().is_none() {
                    self.scan_root(id.root, false, &mut changed);
                }
            } else if !scans.contains(&id.root) {
                // The whole root is missing, which does not remove its files.
                self.scan_root(id.root, false, &mut changed);
            }
        }
        changed
    }

    fn scan_root(&mut self, index: usize, reread: bool, changed: &mut ChangedObjects) {
        let path = self.roots[index].path.clone();
        match self.roots[index].kind {
            InputPathKind::Stream => return,
            InputPathKind::New if is_stream(&path) => {
                self.roots[index].kind = InputPathKind::Stream;
                return self.read_stream(index, &path, changed);
            }
            InputPathKind::New | InputPathKind::Path => {
                self.roots[index].kind = InputPathKind::Path
            }
        }
        self.set_links(Dependent::Root(index), &directory::link_chain(&path));
        self.watch_parent(&path);
        let known: BTreeSet<FileId> = self.of_root(index).map(|(id, _)| id.clone()).collect();
        let found = match self.find_files(&path) {
            Ok(found) => found,
            Err(error) => {
                let message = content::read_error_message(&error.to_string(), !known.is_empty());
                let mut found = DirectoryScan::default();
                found.problems.push((path, message));
                return self.finish_scan(index, found);
            }
        };
        for link in &found.links {
            self.set_links(Dependent::Root(index), &directory::link_chain(link));
        }
        let ids = found.files.iter().map(|path| FileId::new(index, path));
        let ids: BTreeSet<FileId> = ids.collect();
        self.finish_scan(index, found);
        for id in known.difference(&ids) {
            self.remove(id, changed);
        }
        for id in ids {
            let file = self.files.get(&id);
            let same = file
                .is_some_and(|file| file.stamp.is_some() && file.stamp == FileStamp::of(&id.path));
            if reread || !same {
                self.read(&id, changed);
            }
        }
    }

    /// Finds the files of a root: the manifests in a directory, or the file itself.
    fn find_files(&mut self, path: &Path) -> std::io::Result<DirectoryScan> {
        let roots = self.roots.iter().map(|root| &*root.path);
        let mut found = DirectoryScan::within(roots);
        if !path.metadata()?.is_dir() {
            found.files.push(path.to_owned());
            return Ok(found);
        }
        let watch = &mut self.watch;
        found.add(path, &mut |directory| {
            if let Some(watch) = watch {
                watch(directory);
            }
        });
        if found.files.is_empty() && found.problems.is_empty() {
            let message = "this directory contains no *.yaml, *.yml or *.json file".to_owned();
            found.problems.push((path.to_owned(), message));
        }
        Ok(found)
    }

    fn finish_scan(&mut self, index: usize, mut found: DirectoryScan) {
        found.problems.sort_unstable();
        let problems: Vec<Finding> = found
            .problems
            .into_iter()
            .map(|(path, message)| content::read_error_finding(&path, message))
            .collect();
        let root = &mut self.roots[index];
        root.directories = found.directories;
        if root.problems != problems {
            root.problems = problems;
            self.findings_version += 1;
        }
    }

    fn of_root(&self, root: usize) -> impl Iterator<Item = (&FileId, &ManifestFile)> {
        let files = self.files.range(FileId::new(root, Path::new(""))..);
        files.take_while(move |(id, _)| id.root == root)
    }

    /// Reads a file, or removes it if it no longer exists. Also reads files whose canonical path this affects.
    fn read(&mut self, id: &FileId, changed: &mut ChangedObjects) {
        let mut pending = BTreeSet::from([id.clone()]);
        while let Some(id) = pending.pop_first() {
            let stamp = FileStamp::of(&id.path);
            let bytes = safe_read::read_file(&id.path, MANIFEST_SIZE);
            if let Err(error) = &bytes
                && error.kind() == ErrorKind::NotFound
                && id.path.symlink_metadata().is_err()
                && *id.path != *self.roots[id.root].path
            {
                self.remove(&id, changed);
                continue;
            }
            self.insert(&id, changed);
            // Devices are not manifests, so several paths to one device are not merged.
            let is_manifest = !bytes.as_ref().is_err_and(safe_read::is_not_regular_file);
            let canonical = id.path.canonicalize().ok().filter(|_| is_manifest);
            pending.extend(self.set_canonical_path(&id, canonical.clone()));
            let links = match id.path.is_symlink() {
                true => directory::link_chain(&id.path),
                false => Vec::new(),
            };
            self.set_links(Dependent::File(id.clone()), &links);
            let is_first = canonical.is_none_or(|canonical| {
                let paths = self.by_canonical_path.get(&canonical);
                let first = paths.and_then(|files| files.first());
                first.is_none_or(|first| *first == id)
            });
            let Some(file) = self.files.get_mut(&id) else {
                continue;
            };
            file.stamp = stamp;
            file.links = links;
            let name = id.path.to_string_lossy();
            let old = &file.content;
            let content = match bytes {
                _ if !is_first => FileContent::default(),
                Ok(bytes) => FileContent::parse(&name, &bytes, file.label, old),
                Err(error) => FileContent::from_read_error(&id.path, &error.to_string(), old),
            };
            self.replace(&id, content, changed);
        }
    }

    fn read_stream(&mut self, root: usize, path: &Path, changed: &mut ChangedObjects) {
        let id = FileId::new(root, path);
        self.insert(&id, changed);
        let label = self.files.get(&id).map_or(0, |file| file.label);
        let stream: std::io::Result<Box<dyn Read>> = match path.as_os_str() == "-" {
            true => Ok(Box::new(std::io::stdin())),
            false => File::open(path).map(|file| Box::new(file) as Box<dyn Read>),
        };
        let bytes = stream.and_then(|stream| safe_read::read_stream(stream, MANIFEST_SIZE));
        let name = path.to_string_lossy();
        let old = FileContent::default();
        let content = match bytes {
            Ok(bytes) => FileContent::parse(&name, &bytes, label, &old),
            Err(error) => FileContent::from_read_error(path, &error.to_string(), &old),
        };
        self.replace(&id, content, changed);
    }

    /// Inserts a file that is not known yet, with a label that fits its position.
    fn insert(&mut self, id: &FileId, changed: &mut ChangedObjects) {
        if self.files.contains_key(id) {
            return;
        }
        self.files.insert(id.clone(), ManifestFile::default());
        for (id, label) in order_labels::assign_labels(&self.files, id, |file| file.label) {
            if let Some(file) = self.files.get_mut(&id) {
                file.label = label;
                changed.extend(file.content.relabel(label));
            }
        }
    }

    fn remove(&mut self, id: &FileId, changed: &mut ChangedObjects) {
        if !self.files.contains_key(id) {
            return;
        }
        self.replace(id, FileContent::default(), changed);
        self.set_links(Dependent::File(id.clone()), &[]);
        let affected = self.set_canonical_path(id, None);
        self.files.remove(id);
        for id in affected {
            self.read(&id, changed);
        }
    }

    /// Returns the version of [`findings`](Self::findings) and [`ignored_kinds`](Self::ignored_kinds). It increases when either changes.
    pub fn findings_version(&self) -> u64 {
        self.findings_version
    }

    /// Returns whether at least one path could be read.
    pub fn is_readable(&self) -> bool {
        let was_read = |file: &ManifestFile| file.content.was_read || file.canonical.is_some();
        let directories = self.roots.iter().any(|root| !root.directories.is_empty());
        directories || self.files.values().any(was_read)
    }
}

/// Returns whether a command-line path is standard input, a pipe or a device.
fn is_stream(path: &Path) -> bool {
    let is_irregular = || {
        path.metadata()
            .is_ok_and(|data| !data.is_file() && !data.is_dir())
    };
    path.as_os_str() == "-" || is_irregular()
}
