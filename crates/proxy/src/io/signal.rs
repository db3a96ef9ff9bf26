//! A one-shot broadcast to tasks of the same thread, for closed sockets and draining workers. A waiter takes one slot in a list.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

/// Wakes all waiters once. It stays notified, so later waiters return at once.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    notified: Cell<bool>,
    slots: RefCell<WaiterSlots>,
}

#[derive(Debug, Default)]
struct WaiterSlots {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

/// A registration with a [`Signal`], removed when dropped.
#[derive(Debug)]
pub(crate) struct Waiter<'s> {
    signal: &'s Signal,
    slot: Option<usize>,
}

impl Signal {
    /// Returns whether [`notify`](Self::notify) was called.
    pub(crate) fn is_notified(&self) -> bool {
        self.notified.get()
    }

    /// Wakes all current and future waiters.
    pub(crate) fn notify(&self) {
        self.notified.set(true);
        for waker in self.slots.borrow().wakers.iter().flatten() {
            waker.wake_by_ref();
        }
    }

    /// Registers a waiter on its first poll.
    pub(crate) fn waiter(&self) -> Waiter<'_> {
        Waiter {
            signal: self,
            slot: None,
        }
    }

    /// Waits for the notification.
    pub(crate) async fn wait(&self) {
        let mut waiter = self.waiter();
        poll_fn(|cx| waiter.poll(cx)).await
    }
}

impl Waiter<'_> {
    /// Becomes ready once the signal was notified.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.signal.notified.get() {
            return Poll::Ready(());
        }
        let mut slots = self.signal.slots.borrow_mut();
        let slot = match self.slot {
            Some(slot) => slot,
            None => {
                let slot = slots.free.pop().unwrap_or_else(|| {
                    slots.wakers.push(None);
                    slots.wakers.len() - 1
                });
                self.slot = Some(slot);
                slot
            }
        };
        match &mut slots.wakers[slot] {
            Some(waker) => waker.clone_from(cx.waker()),
            empty => *empty = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            let mut slots = self.signal.slots.borrow_mut();
            slots.wakers[slot] = None;
            slots.free.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[tokio::test(flavor = "current_thread")]
    async fn current_and_later_waiters_are_notified() {
        let signal = Rc::new(Signal::default());
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let waiters: Vec<_> = (0..3)
                    .map(|_| {
                        let signal = signal.clone();
                        tokio::task::spawn_local(async move { signal.wait().await })
                    })
                    .collect();
                tokio::task::yield_now().await;
                assert!(!signal.is_notified());
                signal.notify();
                for task in waiters {
                    task.await.expect("notified");
                }
                signal.wait().await;
            })
            .await;
        assert_eq!(signal.slots.borrow().free.len(), 3);
    }
}
