//! File system events, from inotify watches on every directory that is scanned.
//!
//! A file is reported once it is complete: when its writer closes it, when it is moved into the directory, or when it is removed. A newly created file is
//! not reported, unless it is a link.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

use super::WatchDirectory;
use super::source::FileEvents;
use crate::mailbox::Mailbox;

/// Paths of the directory of each watch. Several paths may lead to one directory.
type WatchedPaths = Arc<Mutex<HashMap<i32, BTreeSet<PathBuf>>>>;

/// Starts a thread that sends events. Returns the function that adds a directory.
pub fn start(events: Arc<Mailbox<FileEvents>>) -> io::Result<WatchDirectory> {
    let inotify = Arc::new(inotify::init(CreateFlags::CLOEXEC)?);
    let watched = WatchedPaths::default();
    let reader = EventReader {
        inotify: inotify.clone(),
        watched: watched.clone(),
        events,
    };
    std::thread::Builder::new()
        .name("files".to_owned())
        .spawn(move || reader.run())?;
    let flags = WatchFlags::CLOSE_WRITE
        | WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::MOVE_SELF
        | WatchFlags::DELETE_SELF
        | WatchFlags::ONLYDIR;
    Ok(Box::new(move |directory| {
        let path = match directory.as_os_str().is_empty() {
            true => Path::new("."),
            false => directory,
        };
        // Locked while the watch is added, so that its first event finds the path.
        let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
        match inotify::add_watch(&*inotify, path, flags) {
            Ok(watch) => {
                let paths = watched.entry(watch).or_default();
                paths.insert(directory.to_owned());
            }
            Err(error) => tracing::warn!(
                "{}: can't be watched, changes there take effect only on SIGHUP: {error}",
                path.display()
            ),
        }
    }))
}

struct EventReader {
    inotify: Arc<OwnedFd>,
    watched: WatchedPaths,
    events: Arc<Mailbox<FileEvents>>,
}

impl EventReader {
    fn run(self) {
        let mut buffer = [MaybeUninit::uninit(); 64 * 1024];
        let mut reader = Reader::new(&*self.inotify, &mut buffer);
        let mut paths = BTreeSet::new();
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| name.to_bytes().to_vec());
                    self.handle(event.wd(), event.events(), name.as_deref(), &mut paths);
                }
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => {
                    return tracing::error!(
                        "file watch failed; changes take effect only on SIGHUP: {error}"
                    );
                }
            }
            if reader.is_buffer_empty()
                && !paths.is_empty()
                && !self.events.merge(|events| events.paths.append(&mut paths))
            {
                return;
            }
        }
    }

    /// Adds the paths that an event concerns to `paths`.
    fn handle(
        &self,
        watch: i32,
        event: ReadFlags,
        name: Option<&[u8]>,
        paths: &mut BTreeSet<PathBuf>,
    ) {
        if event.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.events.merge(|events| events.overflow = true);
            return;
        }
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if event.contains(ReadFlags::IGNORED) {
            watched.remove(&watch);
        } else if event.intersects(ReadFlags::MOVE_SELF | ReadFlags::DELETE_SELF) {
            // The directory is no longer at this path. If a scan finds it elsewhere, it is watched there.
            if event.contains(ReadFlags::MOVE_SELF) {
                let _ = inotify::remove_watch(&*self.inotify, watch);
            }
            paths.extend(watched.remove(&watch).into_iter().flatten());
        } else if let (Some(name), Some(directories)) = (name, watched.get(&watch)) {
            for directory in directories {
                let path = directory.join(OsStr::from_bytes(name));
                if event.contains(ReadFlags::CREATE) && is_incomplete(&path) {
                    continue;
                }
                paths.insert(path);
            }
        }
    }
}

/// Returns whether a newly created path will still be written to. Directories, symbolic links and hard links are complete at once.
fn is_incomplete(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|data| data.is_file() && data.nlink() < 2)
}
