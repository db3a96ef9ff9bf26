//! Manifests: the files that paths name, the objects in each of them, and the source that watches them.
//!
//! Every file is read by itself and kept, so that a change costs what it touches. An object that several files name belongs to the first one, in the order of
//! the input, as if all had been read at once; one-shot commands and the watching [`FileSource`] use the same reader. A broken document keeps its last valid
//! version in effect (`content`). Only this module reads manifests.
//!
//! A folder's files are somebody else's: only regular ones are read, up to [`MANIFEST_SIZE`]. A pipe that `-f` names itself, such as a shell's `<(…)`, is
//! read once, as standard input is.

mod claims;
mod content;
mod find;
mod links;
mod order;
mod source;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File as OpenedFile;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pointsman_resources::{Finding, ObjectKey};

use crate::bounded;
use content::Content;
use find::Stamp;

pub use source::{FileSource, Reloader};

/// Largest file or stream of manifests in bytes.
pub const MANIFEST_SIZE: usize = 16 * 1024 * 1024;

/// A file: which of the paths led to it, and where it is. The order of files is the order of ages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct FileId {
    root: usize,
    path: Arc<Path>,
}

/// A file that was found.
#[derive(Default)]
struct File {
    /// Where it stands among the others.
    label: u64,
    /// How it looked when it was last read.
    stamp: Option<Stamp>,
    /// Where it really is.
    real: Option<PathBuf>,
    /// The links on the way to it.
    hops: Vec<PathBuf>,
    /// What it holds; nothing if an earlier path leads to the same file.
    content: Content,
}

/// A path of the command line.
struct Root {
    path: PathBuf,
    /// What could not be read of it, apart from its files.
    problems: Vec<Finding>,
    /// Its folders, itself included.
    folders: HashSet<PathBuf>,
    kind: RootKind,
}

/// What is known of a path of the command line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RootKind {
    /// Nothing yet.
    New,
    /// A file or folder, there or not.
    Path,
    /// Standard input, or a pipe or device that is named itself. It can be read only once.
    Stream,
}

/// What is concerned when a link changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Dependent {
    File(FileId),
    Root(usize),
}

/// Files in their order. Mostly there is one, and there are many of these.
#[derive(Default)]
struct InOrder(Vec<FileId>);

impl InOrder {
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

impl std::ops::Deref for InOrder {
    type Target = [FileId];

    fn deref(&self) -> &[FileId] {
        &self.0
    }
}

/// The objects that may have changed.
pub type Changed = BTreeSet<ObjectKey>;

/// Told of each folder before it is looked into.
pub type Watcher = Box<dyn FnMut(&Path) + Send>;

/// All files of some paths.
pub struct Files {
    roots: Vec<Root>,
    files: BTreeMap<FileId, File>,
    /// The files that name each object; the first has it.
    claims: HashMap<ObjectKey, InOrder>,
    /// The objects that more than one file names.
    contested: BTreeSet<ObjectKey>,
    /// The paths that lead to each real file; the first has it.
    reals: HashMap<PathBuf, InOrder>,
    links: HashMap<PathBuf, BTreeSet<Dependent>>,
    watcher: Option<Watcher>,
    /// Counts changes of what [`findings`](Self::findings) and [`passed_over`](Self::passed_over) say.
    noted: u64,
}

impl Files {
    /// The files of these paths: files, folders, and `-` for standard input. Nothing is read yet.
    pub fn new(paths: &[PathBuf], watcher: Option<Watcher>) -> Self {
        let root = |path: &PathBuf| Root {
            path: path.clone(),
            problems: Vec::new(),
            folders: HashSet::new(),
            kind: RootKind::New,
        };
        Files {
            roots: paths.iter().map(root).collect(),
            files: BTreeMap::new(),
            claims: HashMap::new(),
            contested: BTreeSet::new(),
            reals: HashMap::new(),
            links: HashMap::new(),
            watcher,
            noted: 0,
        }
    }

    /// Looks for files and reads what is new or looks different; all of them if `anew`.
    pub fn scan(&mut self, anew: bool) -> Changed {
        let mut changed = Changed::new();
        for root in 0..self.roots.len() {
            self.scan_root(root, anew, &mut changed);
        }
        changed
    }

    /// Reads again what has to do with these paths, of which something was heard.
    pub fn touch(&mut self, paths: &BTreeSet<PathBuf>) -> Changed {
        let mut changed = Changed::new();
        let (mut reads, mut scans) = (BTreeSet::new(), BTreeSet::new());
        for path in paths {
            for dependent in self.links.get(path).into_iter().flatten() {
                match dependent {
                    Dependent::File(id) => drop(reads.insert(id.clone())),
                    Dependent::Root(root) => drop(scans.insert(*root)),
                }
            }
            let paths = self.roots.iter().enumerate();
            for (index, root) in paths.filter(|(_, root)| root.kind != RootKind::Stream) {
                let concerns = root.path.starts_with(path) || path.starts_with(&root.path);
                if root.path.starts_with(path) || (concerns && !root.problems.is_empty()) {
                    scans.insert(index);
                } else if let Ok(inner) = path.strip_prefix(&root.path)
                    && !find::is_hidden(inner)
                {
                    let id = FileId {
                        root: index,
                        path: path.as_path().into(),
                    };
                    if root.folders.contains(path) || path.is_dir() {
                        scans.insert(index);
                    } else if self.files.contains_key(&id) || find::is_manifest(path) {
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
                // The whole path is gone: its files are not what was taken away.
                self.scan_root(id.root, false, &mut changed);
            }
        }
        changed
    }

    fn scan_root(&mut self, index: usize, anew: bool, changed: &mut Changed) {
        let path = self.roots[index].path.clone();
        let known = self.of_root(index).map(|(id, _)| id.clone());
        let known: BTreeSet<FileId> = known.collect();
        match self.roots[index].kind {
            RootKind::Stream => return,
            RootKind::New if is_stream(&path) => {
                self.roots[index].kind = RootKind::Stream;
                return self.read_stream(index, &path, changed);
            }
            RootKind::New | RootKind::Path => self.roots[index].kind = RootKind::Path,
        }
        let hops = find::hops(&path);
        self.follow(Dependent::Root(index), &hops);
        self.watch_above(&path);
        let mut found = find::Found::default();
        let mut ids = BTreeSet::new();
        match path.metadata() {
            Ok(metadata) if metadata.is_dir() => {
                let watcher = &mut self.watcher;
                found.folder(&path, &mut |folder| {
                    if let Some(watcher) = watcher {
                        watcher(folder);
                    }
                });
                if found.files.is_empty() && found.problems.is_empty() {
                    let message = "this folder holds no *.yaml, *.yml or *.json".to_owned();
                    found.problems.push((path.clone(), message));
                }
                for path in &found.files {
                    ids.insert(FileId {
                        root: index,
                        path: path.as_path().into(),
                    });
                }
            }
            Ok(_) => {
                ids.insert(FileId {
                    root: index,
                    path: path.as_path().into(),
                });
            }
            Err(error) => {
                let mut message = error.to_string();
                if !known.is_empty() {
                    message += "; what was read there stays in effect";
                }
                found.problems.push((path.clone(), message));
                return self.finish_scan(index, found);
            }
        }
        for link in &found.links {
            let hops = find::hops(link);
            self.follow(Dependent::Root(index), &hops);
        }
        self.finish_scan(index, found);
        for id in known.difference(&ids) {
            self.remove(id, changed);
        }
        for id in ids {
            let file = self.files.get(&id);
            let same =
                file.is_some_and(|file| file.stamp.is_some() && file.stamp == Stamp::of(&id.path));
            if anew || !same {
                self.read(&id, changed);
            }
        }
    }

    fn finish_scan(&mut self, index: usize, found: find::Found) {
        let problems: Vec<Finding> = found
            .problems
            .into_iter()
            .map(|(path, message)| content::unreadable(&path, message))
            .collect();
        let root = &mut self.roots[index];
        root.folders = found.folders;
        if root.problems != problems {
            root.problems = problems;
            self.noted += 1;
        }
    }

    fn of_root(&self, root: usize) -> impl Iterator<Item = (&FileId, &File)> {
        let path: Arc<Path> = Path::new("").into();
        let files = self.files.range(FileId { root, path }..);
        files.take_while(move |(id, _)| id.root == root)
    }

    /// Reads a file, new or known, or takes note that it is gone.
    fn read(&mut self, id: &FileId, changed: &mut Changed) {
        let mut due = BTreeSet::from([id.clone()]);
        while let Some(id) = due.pop_first() {
            let stamp = Stamp::of(&id.path);
            let bytes = bounded::read_file(&id.path, MANIFEST_SIZE);
            if let Err(error) = &bytes
                && error.kind() == ErrorKind::NotFound
                && id.path.symlink_metadata().is_err()
                && *id.path != *self.roots[id.root].path
            {
                self.remove(&id, changed);
                continue;
            }
            self.enter(&id, changed);
            // Several names of one device are no names of one manifest.
            let is_manifest = !bytes.as_ref().is_err_and(bounded::is_irregular);
            let real = id.path.canonicalize().ok().filter(|_| is_manifest);
            due.extend(self.really_at(&id, real.clone()));
            let hops = match id.path.is_symlink() {
                true => find::hops(&id.path),
                false => Vec::new(),
            };
            self.follow(Dependent::File(id.clone()), &hops);
            let is_first = real.is_none_or(|real| {
                let first = self.reals.get(&real).and_then(|files| files.first());
                first.is_none_or(|first| *first == id)
            });
            let Some(file) = self.files.get_mut(&id) else {
                continue;
            };
            file.stamp = stamp;
            file.hops = hops;
            let name = id.path.to_string_lossy();
            let old = &file.content;
            let content = match bytes {
                _ if !is_first => Content::default(),
                Ok(bytes) => Content::read(&name, &bytes, file.label, old),
                Err(error) => Content::unreadable(&id.path, &error.to_string(), old),
            };
            self.replace(&id, content, changed);
        }
    }

    fn read_stream(&mut self, root: usize, path: &Path, changed: &mut Changed) {
        let id = FileId {
            root,
            path: path.into(),
        };
        self.enter(&id, changed);
        let label = self.files.get(&id).map_or(0, |file| file.label);
        let stream: std::io::Result<Box<dyn Read>> = match path.as_os_str() == "-" {
            true => Ok(Box::new(std::io::stdin())),
            false => OpenedFile::open(path).map(|file| Box::new(file) as Box<dyn Read>),
        };
        let bytes = stream.and_then(|stream| bounded::read_stream(stream, MANIFEST_SIZE));
        let name = path.to_string_lossy();
        let content = match bytes {
            Ok(bytes) => Content::read(&name, &bytes, label, &Content::default()),
            Err(error) => Content::unreadable(path, &error.to_string(), &Content::default()),
        };
        self.replace(&id, content, changed);
    }

    /// Makes sure that a file is known, and has its place among the others.
    fn enter(&mut self, id: &FileId, changed: &mut Changed) {
        if self.files.contains_key(id) {
            return;
        }
        self.files.insert(id.clone(), File::default());
        for (id, label) in order::place(&self.files, id, |file| file.label) {
            if let Some(file) = self.files.get_mut(&id) {
                file.label = label;
                changed.extend(file.content.move_to(label));
            }
        }
    }

    fn remove(&mut self, id: &FileId, changed: &mut Changed) {
        if !self.files.contains_key(id) {
            return;
        }
        self.replace(id, Content::default(), changed);
        self.follow(Dependent::File(id.clone()), &[]);
        let again = self.really_at(id, None);
        self.files.remove(id);
        for id in again {
            self.read(&id, changed);
        }
    }

    /// A number that is another when findings or what was passed over are.
    pub fn noted(&self) -> u64 {
        self.noted
    }

    /// Whether some path led anywhere.
    pub fn is_readable(&self) -> bool {
        let read = |file: &File| file.content.was_read || file.real.is_some();
        let folders = self.roots.iter().any(|root| !root.folders.is_empty());
        folders || self.files.values().any(read)
    }
}

/// Whether a path of the command line is standard input, a pipe or a device.
fn is_stream(path: &Path) -> bool {
    let irregular = || {
        path.metadata()
            .is_ok_and(|data| !data.is_file() && !data.is_dir())
    };
    path.as_os_str() == "-" || irregular()
}
