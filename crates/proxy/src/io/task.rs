//! Tasks whose futures have bounded sizes. A future has room for everything that it may ever await, and grows unnoticed; here too large a one does not compile.

use tokio::task::spawn_local;

/// Fails to compile if the future is larger than `MAX` bytes.
pub(crate) const fn assert_size<const MAX: usize, F: Future>(_: &F) {
    const { assert!(size_of::<F>() <= MAX, "the future is too large") };
}

/// Spawns a task on this thread whose future has at most `MAX` bytes. A task that panics ends alone.
pub(crate) fn spawn_within<const MAX: usize, F: Future<Output = ()> + 'static>(future: F) {
    assert_size::<MAX, F>(&future);
    spawn_local(future);
}
