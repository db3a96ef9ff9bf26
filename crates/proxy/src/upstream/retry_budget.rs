//! Retry budget: limits retries to a share of recent requests, plus a minimum, so that retries add little load to a failing backend.

use std::time::Duration;

use pointsman_binding::bound::RetryBudget;

/// The defaults of XBackendTrafficPolicy.
const DEFAULT: RetryBudget = RetryBudget {
    percent: 20,
    interval: Duration::from_secs(10),
    min_count: 10,
    min_interval: Duration::from_secs(1),
};

/// Counts requests and retries over the last interval.
#[derive(Debug)]
pub(crate) struct RetryBudgetTracker {
    policy: RetryBudget,
    requests: Window,
    retries: Window,
    minimum: Window,
}

/// A sliding window count, approximated by the current interval and a decreasing share of the previous one.
#[derive(Debug, Default)]
struct Window {
    start: Duration,
    current: u64,
    previous: u64,
}

impl Window {
    fn roll(&mut self, now: Duration, length: Duration) {
        let elapsed = now.saturating_sub(self.start);
        if elapsed < length {
            return;
        }
        self.previous = if elapsed < length * 2 {
            self.current
        } else {
            0
        };
        self.current = 0;
        self.start = now;
    }

    fn count(&self, now: Duration, length: Duration) -> f64 {
        let elapsed =
            now.saturating_sub(self.start).as_secs_f64() / length.as_secs_f64().max(0.001);
        self.current as f64 + self.previous as f64 * (1.0 - elapsed).clamp(0.0, 1.0)
    }
}

impl RetryBudgetTracker {
    /// Creates a budget with a policy, or with the defaults.
    pub(crate) fn new(policy: Option<RetryBudget>) -> Self {
        RetryBudgetTracker {
            policy: policy.unwrap_or(DEFAULT),
            requests: Window::default(),
            retries: Window::default(),
            minimum: Window::default(),
        }
    }

    /// Counts a request.
    pub(crate) fn record_request(&mut self, now: Duration) {
        self.requests.roll(now, self.policy.interval);
        self.requests.current += 1;
    }

    /// Returns whether a retry is allowed, and counts it if so.
    pub(crate) fn try_retry(&mut self, now: Duration) -> bool {
        let policy = self.policy;
        self.requests.roll(now, policy.interval);
        self.retries.roll(now, policy.interval);
        self.minimum.roll(now, policy.min_interval);
        let share = self.requests.count(now, policy.interval) * f64::from(policy.percent) / 100.0;
        let in_share = self.retries.count(now, policy.interval) + 1.0 <= share;
        let minimum = self.minimum.current < u64::from(policy.min_count);
        if in_share || minimum {
            self.retries.current += 1;
            self.minimum.current += 1;
        }
        in_share || minimum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_limited_to_a_share_of_requests_plus_a_minimum() {
        let policy = RetryBudget {
            percent: 20,
            interval: Duration::from_secs(10),
            min_count: 2,
            min_interval: Duration::from_secs(1),
        };
        let mut budget = RetryBudgetTracker::new(Some(policy));
        let at = Duration::from_secs(100);
        assert!(
            budget.try_retry(at) && budget.try_retry(at),
            "two are always allowed"
        );
        assert!(
            !budget.try_retry(at),
            "a third exceeds the share of no requests"
        );
        for _ in 0..100 {
            budget.record_request(at);
        }
        let allowed = (0..100).filter(|_| budget.try_retry(at)).count();
        assert_eq!(allowed, 18, "20% of 100, less the two before");
        let later = at + Duration::from_secs(1);
        assert!(
            budget.try_retry(later),
            "another second has its own minimum"
        );
        let much_later = at + Duration::from_secs(60);
        let allowed = (0..100).filter(|_| budget.try_retry(much_later)).count();
        assert_eq!(allowed, 2, "old requests do not count");
    }
}
