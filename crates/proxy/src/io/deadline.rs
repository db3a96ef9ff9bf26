//! Cheap deadlines. A connection has one timer, armed for the earliest deadline it has seen. If it fires early because the deadline has moved,
//! it is armed again, so a request that completes in time never touches the timer.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

/// The error of an operation that exceeded its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Elapsed;

/// Longer than any configurable deadline.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// A timer that enforces one deadline at a time.
#[derive(Debug)]
pub(crate) struct DeadlineTimer {
    sleep: Option<Pin<Box<Sleep>>>,
    /// Task that is registered with `sleep`.
    waker: Option<Waker>,
}

impl DeadlineTimer {
    /// Creates an unarmed timer.
    pub(crate) fn new() -> Self {
        DeadlineTimer {
            sleep: None,
            waker: None,
        }
    }

    /// Runs a future for at most the given time. The clock is read only if the future is not ready at once.
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

    /// Runs a future until the deadline. The deadline may move: it is evaluated again when the timer fires.
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
            // Polling registers the task. A task that is already registered need not be polled for.
            if is_registered(&mut self.waker, cx) && !sleep.is_elapsed() {
                return Poll::Pending;
            }
            while sleep.as_mut().poll(cx).is_ready() {
                match deadline() {
                    Some(until) if until <= Instant::now() => return Poll::Ready(Err(Elapsed)),
                    Some(until) => sleep.as_mut().reset(until.into()),
                    // Set to the distant future, because a timer that has fired must not be polled again.
                    None => sleep.as_mut().reset((Instant::now() + NEVER).into()),
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Returns whether the task is registered already, and registers it if not.
fn is_registered(waker: &mut Option<Waker>, cx: &Context<'_>) -> bool {
    match waker {
        Some(waker) if waker.will_wake(cx.waker()) => true,
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
    async fn an_extended_deadline_is_honored_and_a_fixed_one_elapses() {
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
