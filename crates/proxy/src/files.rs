//! How many files may be open, and what that means for connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that are kept for other uses than connections.
const RESERVE: u64 = 256;

/// How many clients may be connected: each may need a connection to a backend too. What the system allows is made use of first.
pub(crate) fn connections() -> usize {
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
    let connections = (files.saturating_sub(RESERVE) / 2).max(16);
    usize::try_from(connections).unwrap_or(usize::MAX)
}
