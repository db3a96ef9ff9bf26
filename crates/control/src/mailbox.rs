//! Hands values from one thread to another. What has not been taken yet is merged, so that a slow receiver costs no more memory than the merged value.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::clock;

/// A slot that senders merge values into and one receiver empties.
#[derive(Debug, Default)]
pub struct Mailbox<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State<T> {
    content: Option<T>,
    /// Counts what was put.
    puts: u64,
    closed: bool,
}

/// Why a receiver woke up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// There is something to take.
    Content,
    /// The time has come.
    Timeout,
    /// The mailbox is closed.
    Closed,
}

impl<T: Default> Mailbox<T> {
    /// Merges something into the content. Returns false if the mailbox is closed.
    pub fn put(&self, merge: impl FnOnce(&mut T)) -> bool {
        let mut state = self.lock();
        if state.closed {
            return false;
        }
        merge(state.content.get_or_insert_default());
        state.puts += 1;
        self.changed.notify_all();
        true
    }

    /// Closes the mailbox: the receiver is to end.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Whether the mailbox is closed.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Waits until there is something to take, at most until a time.
    pub fn wait(&self, until: Option<Instant>) -> Wake {
        let mut state = self.lock();
        loop {
            if state.closed {
                return Wake::Closed;
            }
            if state.content.is_some() {
                return Wake::Content;
            }
            let left = until.map(|until| until.saturating_duration_since(clock::instant()));
            state = match left {
                Some(Duration::ZERO) => return Wake::Timeout,
                Some(left) => self.wait_for(state, left),
                None => {
                    let woken = self.changed.wait(state);
                    woken.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }

    /// Waits until a burst is over: until nothing was put for `quiet`, for `most` in all.
    pub fn settle(&self, quiet: Duration, most: Duration) {
        let end = clock::instant() + most;
        let mut state = self.lock();
        loop {
            let before = state.puts;
            let left = end.saturating_duration_since(clock::instant());
            state = self.wait_for(state, left.min(quiet));
            if state.closed || left.is_zero() || state.puts == before {
                return;
            }
        }
    }

    /// Takes the content, if there is any.
    pub fn take(&self) -> Option<T> {
        self.lock().content.take()
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for<'a>(
        &self,
        state: MutexGuard<'a, State<T>>,
        time: Duration,
    ) -> MutexGuard<'a, State<T>> {
        let woken = self.changed.wait_timeout(state, time);
        woken.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_before_it_is_taken_is_merged() {
        let mailbox: Mailbox<Vec<u8>> = Mailbox::default();
        assert_eq!(mailbox.take(), None);
        assert!(mailbox.put(|all| all.push(1)));
        assert!(mailbox.put(|all| all.push(2)));
        assert_eq!(mailbox.wait(None), Wake::Content);
        assert_eq!(mailbox.take(), Some(vec![1, 2]));
        assert_eq!(mailbox.wait(Some(clock::instant())), Wake::Timeout);
    }

    #[test]
    fn a_closed_mailbox_wakes_its_receiver_and_refuses_more() {
        let mailbox: Mailbox<Vec<u8>> = Mailbox::default();
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| mailbox.wait(None));
            mailbox.close();
            assert_eq!(receiver.join().expect("it ends"), Wake::Closed);
        });
        assert!(!mailbox.put(|all| all.push(1)));
    }
}
