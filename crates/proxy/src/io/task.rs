//! Tasks whose futures have bounded sizes. A future has room for everything that it may ever await, and grows unnoticed; here too large a one does not compile.

use tokio::task::spawn_local;

/// Fails to compile if the future is larger than `MOST` bytes.
pub(crate) const fn assert_size<const MOST: usize, F: Future>(_: &F) {
    const { assert!(size_of::<F>() <= MOST, "the future is too large") };
}

/// Spawns a task on this thread whose future has at most `MOST` bytes. A task that panics ends alone.
pub(crate) fn spawn_within<const MOST: usize, F: Future<Output = ()> + 'static>(future: F) {
    assert_size::<MOST, F>(&future);
    spawn_local(future);
}
