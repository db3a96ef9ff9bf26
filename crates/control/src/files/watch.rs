//! Hearing of changes to files: inotify on every folder that is looked into.
//!
//! A file is spoken of when it is whole: when who wrote it closes it, when it is moved in, or when it is gone. One that is only just
//! made is not, unless it is a link.

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

use super::Watcher;
use super::source::FileEvents;
use crate::mailbox::Mailbox;

/// The folders behind each watch: the same one may be reached by several paths.
type Folders = Arc<Mutex<HashMap<i32, BTreeSet<PathBuf>>>>;

/// Starts to listen. What is returned is to be told of each folder; what happens there is sent.
pub fn start(events: Arc<Mailbox<FileEvents>>) -> io::Result<Watcher> {
    let heard = Arc::new(inotify::init(CreateFlags::CLOEXEC)?);
    let folders = Folders::default();
    let listener = Listener {
        heard: heard.clone(),
        folders: folders.clone(),
        events,
    };
    std::thread::Builder::new()
        .name("files".to_owned())
        .spawn(move || listener.run())?;
    let flags = WatchFlags::CLOSE_WRITE
        | WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::MOVE_SELF
        | WatchFlags::DELETE_SELF
        | WatchFlags::ONLYDIR;
    Ok(Box::new(move |folder| {
        let path = match folder.as_os_str().is_empty() {
            true => Path::new("."),
            false => folder,
        };
        // Held while the watch is made, so that nothing is heard of it before it is known.
        let mut folders = folders.lock().unwrap_or_else(PoisonError::into_inner);
        match inotify::add_watch(&*heard, path, flags) {
            Ok(watch) => {
                folders.entry(watch).or_default().insert(folder.to_owned());
            }
            Err(error) => tracing::warn!(
                "{}: changes there are not noticed, only SIGHUP reads them: {error}",
                path.display()
            ),
        }
    }))
}

struct Listener {
    heard: Arc<OwnedFd>,
    folders: Folders,
    events: Arc<Mailbox<FileEvents>>,
}

impl Listener {
    fn run(self) {
        let mut buffer = [MaybeUninit::uninit(); 64 * 1024];
        let mut reader = Reader::new(&*self.heard, &mut buffer);
        let mut paths = BTreeSet::new();
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| name.to_bytes().to_vec());
                    self.take(event.wd(), event.events(), name.as_deref(), &mut paths);
                }
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => {
                    return tracing::error!("changes to files are not noticed any more: {error}");
                }
            }
            if reader.is_buffer_empty()
                && !paths.is_empty()
                && !self.events.put(|events| events.paths.append(&mut paths))
            {
                return;
            }
        }
    }

    fn take(
        &self,
        watch: i32,
        what: ReadFlags,
        name: Option<&[u8]>,
        paths: &mut BTreeSet<PathBuf>,
    ) {
        if what.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.events.put(|events| events.overflow = true);
            return;
        }
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        if what.contains(ReadFlags::IGNORED) {
            folders.remove(&watch);
        } else if what.intersects(ReadFlags::MOVE_SELF | ReadFlags::DELETE_SELF) {
            // It is no longer where it was; if it is found elsewhere, it is watched there.
            if what.contains(ReadFlags::MOVE_SELF) {
                let _ = inotify::remove_watch(&*self.heard, watch);
            }
            paths.extend(folders.remove(&watch).into_iter().flatten());
        } else if let (Some(name), Some(folders)) = (name, folders.get(&watch)) {
            for folder in folders {
                let path = folder.join(OsStr::from_bytes(name));
                if what.contains(ReadFlags::CREATE) && is_unfinished(&path) {
                    continue;
                }
                paths.insert(path);
            }
        }
    }
}

/// Whether a file that was just made will be written to: folders, links and second names of files won't.
fn is_unfinished(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|data| data.is_file() && data.nlink() < 2)
}
