//! A signal to all who wait on a thread: that a socket is closed, that the worker drains. Waiting costs a slot in a list.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

/// Rings once, for everybody, for ever.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Cell<bool>,
    waiting: RefCell<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

/// A place among those who wait; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place<'b> {
    bell: &'b Bell,
    slot: Option<usize>,
}

impl Bell {
    /// Whether it has rung.
    pub(crate) fn has_rung(&self) -> bool {
        self.rung.get()
    }

    /// Wakes everybody.
    pub(crate) fn ring(&self) {
        self.rung.set(true);
        for waker in self.waiting.borrow().wakers.iter().flatten() {
            waker.wake_by_ref();
        }
    }

    /// A place to wait at.
    pub(crate) fn place(&self) -> Place<'_> {
        Place {
            bell: self,
            slot: None,
        }
    }

    /// Waits until it rings.
    pub(crate) async fn wait(&self) {
        let mut place = self.place();
        poll_fn(|cx| place.poll(cx)).await
    }
}

impl Place<'_> {
    /// Ready once the bell has rung.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.bell.rung.get() {
            return Poll::Ready(());
        }
        let mut waiting = self.bell.waiting.borrow_mut();
        let slot = match self.slot {
            Some(slot) => slot,
            None => {
                let slot = waiting.free.pop().unwrap_or_else(|| {
                    waiting.wakers.push(None);
                    waiting.wakers.len() - 1
                });
                self.slot = Some(slot);
                slot
            }
        };
        match &mut waiting.wakers[slot] {
            Some(waker) => waker.clone_from(cx.waker()),
            empty => *empty = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            let mut waiting = self.bell.waiting.borrow_mut();
            waiting.wakers[slot] = None;
            waiting.free.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[tokio::test(flavor = "current_thread")]
    async fn everybody_who_waits_hears_it_and_so_does_who_comes_later() {
        let bell = Rc::new(Bell::default());
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let waiting: Vec<_> = (0..3)
                    .map(|_| {
                        let bell = bell.clone();
                        tokio::task::spawn_local(async move { bell.wait().await })
                    })
                    .collect();
                tokio::task::yield_now().await;
                assert!(!bell.has_rung());
                bell.ring();
                for task in waiting {
                    task.await.expect("it rang");
                }
                bell.wait().await;
            })
            .await;
        assert_eq!(bell.waiting.borrow().free.len(), 3);
    }
}
