//! Times at which sinks are retried.

use std::time::{Duration, Instant};

use crate::sink::Sink;

/// Interval between retries of operations that failed in a sink.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The schedule of [`Sink::retry`]: at the time that a sink requests, and at an interval while an operation has failed.
#[derive(Debug)]
pub struct RetrySchedule {
    retry_at: Instant,
}

impl RetrySchedule {
    /// Creates a schedule whose first interval begins now.
    pub fn new(now: Instant) -> Self {
        RetrySchedule {
            retry_at: now + RETRY_INTERVAL,
        }
    }

    /// Returns the time of the next retry; `None` if nothing has to be retried.
    pub fn next(&self, sinks: &[Box<dyn Sink>]) -> Option<Instant> {
        let retry = needs_retry(sinks).then_some(self.retry_at);
        retry.into_iter().chain(next_wake(sinks)).min()
    }

    /// Returns whether the sinks have to be retried now.
    pub fn is_due(&mut self, sinks: &[Box<dyn Sink>], now: Instant) -> bool {
        let is_requested = next_wake(sinks).is_some_and(|wake| now >= wake);
        if now < self.retry_at {
            return is_requested;
        }
        self.retry_at = now + RETRY_INTERVAL;
        is_requested || needs_retry(sinks)
    }
}

fn needs_retry(sinks: &[Box<dyn Sink>]) -> bool {
    sinks.iter().any(|sink| sink.needs_retry())
}

fn next_wake(sinks: &[Box<dyn Sink>]) -> Option<Instant> {
    sinks.iter().filter_map(|sink| sink.next_wake()).min()
}

#[cfg(test)]
mod tests {
    use pointsman_binding::{Change, Delta};
    use pointsman_routing::Tables;

    use super::*;
    use crate::clock;

    /// A sink with a failed operation, and with a time at which it has something to report.
    struct TestSink(bool, Option<Instant>);

    impl Sink for TestSink {
        fn stage(&mut self, _: &Delta, _: &Tables) -> Vec<Change> {
            Vec::new()
        }

        fn commit(&mut self, _: &Tables) -> Vec<Change> {
            Vec::new()
        }

        fn needs_retry(&self) -> bool {
            self.0
        }

        fn next_wake(&self) -> Option<Instant> {
            self.1
        }
    }

    fn sinks(sink: TestSink) -> [Box<dyn Sink>; 1] {
        [Box::new(sink)]
    }

    #[test]
    fn a_failed_operation_is_retried_at_an_interval() {
        let start = clock::instant();
        let mut schedule = RetrySchedule::new(start);
        let failed = sinks(TestSink(true, None));
        let first = start + RETRY_INTERVAL;
        assert_eq!(schedule.next(&failed), Some(first));
        assert!(!schedule.is_due(&failed, start));
        assert!(schedule.is_due(&failed, first));
        assert!(!schedule.is_due(&failed, first));
        assert_eq!(schedule.next(&failed), Some(first + RETRY_INTERVAL));
        let successful = sinks(TestSink(false, None));
        assert_eq!(schedule.next(&successful), None);
        assert!(!schedule.is_due(&successful, first + RETRY_INTERVAL));
    }

    #[test]
    fn a_sink_is_retried_at_the_time_it_requests() {
        let start = clock::instant();
        let mut schedule = RetrySchedule::new(start);
        let soon = start + Duration::from_secs(1);
        let waiting = sinks(TestSink(true, Some(soon)));
        assert_eq!(schedule.next(&waiting), Some(soon));
        assert!(!schedule.is_due(&waiting, start));
        assert!(schedule.is_due(&waiting, soon));
    }
}
