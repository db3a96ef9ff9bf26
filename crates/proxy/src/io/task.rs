//! Tasks with bounded future sizes. A future reserves space for everything that it may await, and grows unnoticed. These functions reject a future that is too
//! large at compile time.

use tokio::task::spawn_local;

/// Fails to compile if the future is larger than `MAX` bytes.
pub(crate) const fn assert_size<const MAX: usize, F: Future>(_: &F) {
    const { assert!(size_of::<F>() <= MAX, "the future is too large") };
}

/// Spawns a task on this thread whose future has at most `MAX` bytes. A panic ends only this task.
pub(crate) fn spawn_within<const MAX: usize, F: Future<Output = ()> + 'static>(future: F) {
    assert_size::<MAX, F>(&future);
    spawn_local(future);
}
