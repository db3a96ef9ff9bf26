//! Passive health checking: ejection of failing endpoints and their return.
//!
//! Consecutive failures eject an endpoint. After the ejection time one request probes it: success returns it to rotation, failure ejects it for twice as long.

use std::time::Duration;

/// Parameters of the load balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BalancerPolicy {
    /// Time constant of the latency average: old values decay to about a third in this time.
    pub decay: Duration,
    /// Duration of slow start, in which a new endpoint gets less than its share; zero disables it.
    pub slow_start: Duration,
    /// Consecutive failures that eject an endpoint; zero disables ejection.
    pub consecutive_failures: u32,
    /// Duration of the first ejection; each further one takes twice as long.
    pub base_ejection_time: Duration,
    /// Longest ejection. After this time without failures, the next ejection lasts `base_ejection_time` again.
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
    /// Recent ejections.
    ejections: u32,
    /// Time of the last recovery.
    recovered_at: Duration,
}

#[derive(Debug, Clone, Copy)]
enum HealthState {
    /// In rotation, with this number of consecutive failures.
    Healthy(u32),
    /// Out of rotation until this time.
    Ejected(Duration),
    /// Out of rotation except for one request in progress, the probe.
    Probing,
}

impl Default for HealthState {
    fn default() -> Self {
        HealthState::Healthy(0)
    }
}

impl Health {
    /// Returns whether the endpoint may get a request: it is healthy or due to be probed.
    pub(super) fn is_usable(&self, now: Duration) -> bool {
        match self.state {
            HealthState::Healthy(_) => true,
            HealthState::Ejected(until) => now >= until,
            HealthState::Probing => false,
        }
    }

    /// Returns whether the endpoint is ejected or being probed.
    #[cfg(test)]
    pub(super) fn is_ejected(&self) -> bool {
        !matches!(self.state, HealthState::Healthy(_))
    }

    /// Records that a request is sent. If a probe is due, this request is the probe.
    pub(super) fn start_request(&mut self, now: Duration) {
        if let HealthState::Ejected(until) = self.state
            && now >= until
        {
            self.state = HealthState::Probing;
        }
    }

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
            // Not a probe: the request was sent before the ejection, or while all endpoints were ejected.
            HealthState::Ejected(_) => {}
        }
    }

    /// Records a failed request. Returns true if it ejected the endpoint.
    pub(super) fn record_failure(&mut self, now: Duration, policy: &BalancerPolicy) -> bool {
        match self.state {
            HealthState::Healthy(failures)
                if policy.consecutive_failures == 0
                    || failures + 1 < policy.consecutive_failures =>
            {
                self.state = HealthState::Healthy(failures.saturating_add(1));
                false
            }
            // Ejected already.
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

    /// Records a request without an outcome. If it was the probe, another request has to probe.
    pub(super) fn record_cancellation(&mut self, now: Duration) {
        if let HealthState::Probing = self.state {
            self.state = HealthState::Ejected(now);
        }
    }
}
