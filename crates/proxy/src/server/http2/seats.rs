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

/// A task that waits.
#[derive(Debug)]
struct Seat<W> {
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

    /// Waits for work; none if there will be none.
    pub(super) async fn wait(&self) -> Option<W> {
        let seat = Rc::new(Seat {
            work: RefCell::new(None),
            over: Cell::new(false),
            waker: RefCell::new(None),
        });
        {
            let mut taken = self.taken.borrow_mut();
            if self.closed.get() || taken.len() == MOST {
                return None;
            }
            taken.push(seat.clone());
        }
        poll_fn(|cx| {
            if let Some(work) = seat.work.borrow_mut().take() {
                return Poll::Ready(Some(work));
            }
            if seat.over.get() {
                return Poll::Ready(None);
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
                        tokio::task::spawn_local(async move { seats.wait().await })
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
                assert_eq!(seats.wait().await, None, "it is closed");
            })
            .await;
    }
}
