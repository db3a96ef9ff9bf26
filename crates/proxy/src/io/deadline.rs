//! Deadlines that cost nothing while they are kept. A connection has one timer; it is armed for the earliest deadline it has seen, and when it fires
//! early, because the deadline has moved on meanwhile, it is armed again. So a request that ends in time never touches the timer.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

/// It took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Elapsed;

/// Further away than any deadline.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// A timer for one deadline at a time.
#[derive(Debug)]
pub(crate) struct DeadlineTimer {
    sleep: Option<Pin<Box<Sleep>>>,
    /// Whom it wakes.
    wakes: Option<Waker>,
}

impl DeadlineTimer {
    /// One that is not armed.
    pub(crate) fn new() -> Self {
        DeadlineTimer {
            sleep: None,
            wakes: None,
        }
    }

    /// Waits for `work`, no longer than this. The clock is read only if there is something to wait for.
    pub(crate) async fn timeout<T>(
        &mut self,
        time: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        let end = Cell::new(None);
        let deadline = || {
            if end.get().is_none() {
                end.set(Some(Instant::now() + time));
            }
            end.get()
        };
        self.run_until(deadline, work).await
    }

    /// Waits for `work`, as long as the deadline, which is asked for anew whenever it seems to be over, lies ahead.
    pub(crate) async fn run_until<T>(
        &mut self,
        deadline: impl Fn() -> Option<Instant>,
        work: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            let Some(until) = deadline() else {
                return Poll::Pending;
            };
            let sleep = self
                .sleep
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until.into())));
            if sleep.deadline() > until.into() {
                sleep.as_mut().reset(until.into());
            }
            // Whom it wakes is told by polling it; who is told already need not do it again.
            if wakes(&mut self.wakes, cx) && !sleep.is_elapsed() {
                return Poll::Pending;
            }
            while sleep.as_mut().poll(cx).is_ready() {
                match deadline() {
                    Some(until) if until <= Instant::now() => return Poll::Ready(Err(Elapsed)),
                    Some(until) => sleep.as_mut().reset(until.into()),
                    // Armed far away, so that it is not polled again after it has fired.
                    None => sleep.as_mut().reset((Instant::now() + NEVER).into()),
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Whether it wakes the task that waits; from now on it will.
fn wakes(who: &mut Option<Waker>, cx: &Context<'_>) -> bool {
    match who {
        Some(who) if who.will_wake(cx.waker()) => true,
        other => {
            *other = Some(cx.waker().clone());
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_deadline_that_moves_on_is_kept_and_one_that_stands_elapses() {
        let mut timer = DeadlineTimer::new();
        let (now, short) = (Instant::now(), Duration::from_millis(5));
        assert_eq!(
            timer.timeout(short, std::future::pending::<()>()).await,
            Err(Elapsed)
        );
        assert!(now.elapsed() >= short);
        assert_eq!(timer.timeout(short, async { 7 }).await, Ok(7));
        let moved = Cell::new(0);
        let start = Instant::now();
        let deadline = || {
            moved.set(moved.get() + 1);
            Some(start + Duration::from_millis(5 * moved.get().min(4)))
        };
        assert_eq!(
            timer
                .run_until(deadline, std::future::pending::<()>())
                .await,
            Err(Elapsed)
        );
        assert!(start.elapsed() >= Duration::from_millis(20));
    }
}
