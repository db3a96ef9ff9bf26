//! A slot that passes values between threads. Values that the receiver has not taken yet are merged, so a slow receiver costs no more memory than the
//! merged value.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::clock;

/// A slot into which senders merge values and from which one receiver takes them.
#[derive(Debug, Default)]
pub struct Mailbox<T> {
    state: Mutex<MailboxState<T>>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct MailboxState<T> {
    content: Option<T>,
    /// Number of calls of [`Mailbox::merge`].
    merges: u64,
    closed: bool,
}

/// Reason for which a receiver woke up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The mailbox has content.
    Content,
    /// The time limit has passed.
    Timeout,
    /// The mailbox is closed.
    Closed,
}

impl<T: Default> Mailbox<T> {
    /// Merges a value into the content. Returns false if the mailbox is closed.
    pub fn merge(&self, apply: impl FnOnce(&mut T)) -> bool {
        let mut state = self.lock();
        if state.closed {
            return false;
        }
        apply(state.content.get_or_insert_default());
        state.merges += 1;
        self.changed.notify_all();
        true
    }

    /// Closes the mailbox and wakes the receiver.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Returns whether the mailbox is closed.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Waits until the mailbox has content or is closed, at most until a time.
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

    /// Waits until nothing was merged for `quiet`, but no longer than `limit`.
    pub fn wait_until_quiet(&self, quiet: Duration, limit: Duration) {
        let end = clock::instant() + limit;
        let mut state = self.lock();
        loop {
            let before = state.merges;
            let left = end.saturating_duration_since(clock::instant());
            state = self.wait_for(state, left.min(quiet));
            if state.closed || left.is_zero() || state.merges == before {
                return;
            }
        }
    }

    /// Takes the content, if there is any.
    pub fn take(&self) -> Option<T> {
        self.lock().content.take()
    }

    fn lock(&self) -> MutexGuard<'_, MailboxState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for<'a>(
        &self,
        state: MutexGuard<'a, MailboxState<T>>,
        time: Duration,
    ) -> MutexGuard<'a, MailboxState<T>> {
        let woken = self.changed.wait_timeout(state, time);
        woken.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_merged_until_they_are_taken() {
        let mailbox: Mailbox<Vec<u8>> = Mailbox::default();
        assert_eq!(mailbox.take(), None);
        assert!(mailbox.merge(|all| all.push(1)));
        assert!(mailbox.merge(|all| all.push(2)));
        assert_eq!(mailbox.wait(None), Wake::Content);
        assert_eq!(mailbox.take(), Some(vec![1, 2]));
        assert_eq!(mailbox.wait(Some(clock::instant())), Wake::Timeout);
    }

    #[test]
    fn a_closed_mailbox_wakes_its_receiver_and_rejects_values() {
        let mailbox: Mailbox<Vec<u8>> = Mailbox::default();
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| mailbox.wait(None));
            mailbox.close();
            assert_eq!(receiver.join().expect("it ends"), Wake::Closed);
        });
        assert!(!mailbox.merge(|all| all.push(1)));
    }
}
