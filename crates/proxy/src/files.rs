//! The limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// File descriptors reserved for other uses than connections: listening sockets, manifests, logs, name lookups.
const RESERVE: u64 = 256;

/// Raises the limit to the hard limit and returns the number of files for client and upstream connections.
pub(crate) fn available() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        let raised = Rlimit {
            current: maximum,
            maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::debug!(%error, "can't raise the limit of open files");
        }
    }
    let files = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    usize::try_from(files.saturating_sub(RESERVE).max(32)).unwrap_or(usize::MAX)
}
