//! Setting an endpoint aside when it fails, and trying it again.
//!
//! An endpoint that fails several times in a row is set aside. When its time is over one request tries it: if that succeeds the endpoint
//! is back, if not it is aside again for twice as long.

use std::time::Duration;

/// How endpoints are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BalancerPolicy {
    /// How fast old latencies are forgotten: what is left after this time is a third.
    pub decay: Duration,
    /// How long a new endpoint gets less than its share; zero for never.
    pub slow_start: Duration,
    /// Failures in a row that set an endpoint aside; zero for never.
    pub consecutive_failures: u32,
    /// How long it is aside the first time. Each time after that is twice as long.
    pub base_ejection_time: Duration,
    /// The longest time that it is aside. One that has been well for as long is forgiven.
    pub max_ejection_time: Duration,
}

impl Default for BalancerPolicy {
    fn default() -> Self {
        BalancerPolicy {
            decay: Duration::from_secs(10),
            slow_start: Duration::from_secs(10),
            consecutive_failures: 5,
            base_ejection_time: Duration::from_secs(5),
            max_ejection_time: Duration::from_secs(300),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Health {
    state: HealthState,
    /// How often it was set aside of late.
    ejections: u32,
    /// When it was last back.
    recovered_at: Duration,
}

#[derive(Debug, Clone, Copy)]
enum HealthState {
    /// In use, with so many failures in a row.
    Healthy(u32),
    /// Not in use until then.
    Ejected(Duration),
    /// One request tries it.
    Probing,
}

impl Default for HealthState {
    fn default() -> Self {
        HealthState::Healthy(0)
    }
}

impl Health {
    /// Whether it may get a request: it is well, or it is time to try.
    pub(super) fn is_usable(&self, now: Duration) -> bool {
        match self.state {
            HealthState::Healthy(_) => true,
            HealthState::Ejected(until) => now >= until,
            HealthState::Probing => false,
        }
    }

    /// Whether it is set aside or on trial.
    pub(super) fn is_ejected(&self) -> bool {
        !matches!(self.state, HealthState::Healthy(_))
    }

    /// A request goes there.
    pub(super) fn start_request(&mut self, now: Duration) {
        if let HealthState::Ejected(until) = self.state
            && now >= until
        {
            self.state = HealthState::Probing;
        }
    }

    /// A request came back well.
    pub(super) fn record_success(&mut self, now: Duration, policy: &BalancerPolicy) {
        match self.state {
            HealthState::Probing => {
                self.state = HealthState::Healthy(0);
                self.recovered_at = now;
            }
            HealthState::Healthy(_) => {
                self.state = HealthState::Healthy(0);
                if self.ejections > 0
                    && now.saturating_sub(self.recovered_at) >= policy.max_ejection_time
                {
                    self.ejections = 0;
                }
            }
            // It was sent before the endpoint was set aside, or while all were: no trial.
            HealthState::Ejected(_) => {}
        }
    }

    /// A request failed. Returns whether this set the endpoint aside.
    pub(super) fn record_failure(&mut self, now: Duration, policy: &BalancerPolicy) -> bool {
        match self.state {
            HealthState::Healthy(failures)
                if policy.consecutive_failures == 0
                    || failures + 1 < policy.consecutive_failures =>
            {
                self.state = HealthState::Healthy(failures.saturating_add(1));
                false
            }
            // It is known by now.
            HealthState::Ejected(_) => false,
            HealthState::Healthy(_) | HealthState::Probing => {
                let factor = 1u32.checked_shl(self.ejections).unwrap_or(u32::MAX);
                let time = policy
                    .base_ejection_time
                    .saturating_mul(factor)
                    .min(policy.max_ejection_time);
                self.state = HealthState::Ejected(now.saturating_add(time));
                self.ejections = self.ejections.saturating_add(1);
                true
            }
        }
    }

    /// A request ended without telling anything: a trial has to be made again.
    pub(super) fn record_cancellation(&mut self, now: Duration) {
        if let HealthState::Probing = self.state {
            self.state = HealthState::Ejected(now);
        }
    }
}
