//! Tasks of a busy connection that wait for their next stream. A new task's future is several kilobytes that are moved more than once; one that is there already has
//! only to be woken.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Tasks that may wait at once.
const MOST: usize = 64;

/// Where tasks wait for work.
#[derive(Debug)]
pub(super) struct Seats<W> {
    taken: RefCell<Vec<Rc<Seat<W>>>>,
    closed: Cell<bool>,
}

/// Hands work to a task, one piece after the other. It is allocated once: work that were an argument would have its room in the task's future twice.
#[derive(Debug)]
pub(super) struct Seat<W> {
    work: RefCell<Option<W>>,
    /// There will be none.
    over: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl<W> Default for Seats<W> {
    fn default() -> Self {
        Seats {
            taken: RefCell::default(),
            closed: Cell::new(false),
        }
    }
}

impl<W> Seats<W> {
    /// Gives work to a task that waits. It comes back if none does.
    pub(super) fn give(&self, work: W) -> Option<W> {
        let Some(seat) = self.taken.borrow_mut().pop() else {
            return Some(work);
        };
        *seat.work.borrow_mut() = Some(work);
        seat.wake();
        None
    }

    /// Waits until the seat has work; false if there will be none.
    pub(super) async fn wait(&self, seat: &Rc<Seat<W>>) -> bool {
        {
            let mut taken = self.taken.borrow_mut();
            if self.closed.get() || taken.len() == MOST {
                return false;
            }
            taken.push(seat.clone());
        }
        poll_fn(|cx| {
            if seat.work.borrow().is_some() {
                return Poll::Ready(true);
            }
            if seat.over.get() {
                return Poll::Ready(false);
            }
            *seat.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.taken.borrow().is_empty()
    }

    /// Sends home all who wait.
    pub(super) fn clear(&self) {
        for seat in self.taken.borrow_mut().drain(..) {
            seat.over.set(true);
            seat.wake();
        }
    }

    /// Sends home all who wait, and who would.
    pub(super) fn close(&self) {
        self.closed.set(true);
        self.clear();
    }
}

impl<W> Seat<W> {
    /// Creates the seat of a new task, with its first work.
    pub(super) fn new(work: W) -> Rc<Self> {
        Rc::new(Seat {
            work: RefCell::new(Some(work)),
            over: Cell::new(false),
            waker: RefCell::new(None),
        })
    }

    /// Takes the work.
    pub(super) fn take(&self) -> Option<W> {
        self.work.borrow_mut().take()
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn work_goes_to_who_waits_and_nobody_waits_for_ever() {
        let seats = Rc::new(Seats::default());
        assert_eq!(seats.give(1), Some(1), "nobody waits");
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let waiting: Vec<_> = (0..3)
                    .map(|_| {
                        let seats = seats.clone();
                        let seat = Seat::new(0);
                        tokio::task::spawn_local(async move {
                            assert_eq!(seat.take(), Some(0));
                            seats.wait(&seat).await.then(|| seat.take()).flatten()
                        })
                    })
                    .collect();
                tokio::task::yield_now().await;
                assert_eq!(seats.give(2), None);
                assert_eq!(seats.give(3), None);
                seats.close();
                let mut got = Vec::new();
                for task in waiting {
                    got.push(task.await.expect("it ends"));
                }
                got.sort();
                assert_eq!(got, [None, Some(2), Some(3)]);
                assert!(!seats.wait(&Seat::new(0)).await, "it is closed");
            })
            .await;
    }
}
