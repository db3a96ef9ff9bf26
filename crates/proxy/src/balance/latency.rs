//! How long an endpoint takes to answer: a moving average that rises at once and falls with time.

use std::time::Duration;

/// A peak-sensitive, exponentially weighted moving average. A slower answer counts at once; a faster one, or none at all, lowers the
/// figure as time passes, so that an endpoint that was slow is tried again.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Latency {
    /// Seconds, as of `at`. None before the first answer.
    value: Option<f64>,
    at: Duration,
}

impl Latency {
    /// An answer took this long.
    pub(super) fn observe(&mut self, took: Duration, now: Duration, decay: Duration) {
        let took = took.as_secs_f64();
        let value = match self.value {
            Some(value) if took < value => {
                let kept = kept(now.saturating_sub(self.at), decay);
                value * kept + took * (1.0 - kept)
            }
            _ => took,
        };
        *self = Latency {
            value: Some(value),
            at: now,
        };
    }

    /// The figure now, in seconds.
    pub(super) fn get(&self, now: Duration, decay: Duration) -> Option<f64> {
        let kept = kept(now.saturating_sub(self.at), decay);
        self.value.map(|value| value * kept)
    }
}

/// What is left of a figure after this time.
fn kept(elapsed: Duration, decay: Duration) -> f64 {
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
    fn it_rises_at_once_and_falls_with_time() {
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
