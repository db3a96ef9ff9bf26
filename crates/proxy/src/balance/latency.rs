//! Latency of an endpoint as a moving average that rises at once and falls with time.

use std::time::Duration;

/// A peak-sensitive, exponentially weighted moving average. A slower response raises the value at once; the value decays towards faster responses, and also
/// without responses, so that a slow endpoint is tried again.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Latency {
    /// Seconds at the time `at`; `None` before the first response.
    value: Option<f64>,
    at: Duration,
}

impl Latency {
    /// Records the latency of a response.
    pub(super) fn observe(&mut self, latency: Duration, now: Duration, decay: Duration) {
        let latency = latency.as_secs_f64();
        let value = match self.value {
            Some(value) if latency < value => {
                let remaining_share = remaining_share(now.saturating_sub(self.at), decay);
                value * remaining_share + latency * (1.0 - remaining_share)
            }
            _ => latency,
        };
        *self = Latency {
            value: Some(value),
            at: now,
        };
    }

    /// Returns the average at this time, in seconds.
    pub(super) fn get(&self, now: Duration, decay: Duration) -> Option<f64> {
        let remaining_share = remaining_share(now.saturating_sub(self.at), decay);
        self.value.map(|value| value * remaining_share)
    }
}

/// Returns the share of a value that is left after a time.
fn remaining_share(elapsed: Duration, decay: Duration) -> f64 {
    if decay.is_zero() {
        return 0.0;
    }
    (-elapsed.as_secs_f64() / decay.as_secs_f64()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECAY: Duration = Duration::from_secs(10);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn it_rises_at_once_and_decays_with_time() {
        let mut latency = Latency::default();
        assert_eq!(latency.get(seconds(5), DECAY), None);
        latency.observe(Duration::from_millis(10), seconds(1), DECAY);
        assert_eq!(latency.get(seconds(1), DECAY), Some(0.01));
        latency.observe(Duration::from_millis(100), seconds(1), DECAY);
        assert_eq!(latency.get(seconds(1), DECAY), Some(0.1));
        latency.observe(Duration::from_millis(10), seconds(2), DECAY);
        let after = latency.get(seconds(2), DECAY).unwrap();
        assert!((0.08..0.1).contains(&after), "{after}");
        let later = latency.get(seconds(60), DECAY).unwrap();
        assert!(later < 0.001, "{later}");
    }
}
