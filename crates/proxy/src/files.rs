//! The limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files for other uses than connections: listening sockets, manifests, logs, name lookups.
const RESERVE: u64 = 256;

/// Raises the limit as far as the system allows, and returns the number of files for connections of clients and to endpoints.
pub(crate) fn available() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        let raised = Rlimit {
            current: maximum,
            maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::debug!(%error, "the limit on open files stays as it is");
        }
    }
    let files = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    usize::try_from(files.saturating_sub(RESERVE).max(32)).unwrap_or(usize::MAX)
}
