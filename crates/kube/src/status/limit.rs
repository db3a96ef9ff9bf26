//! The rate of writes: a token bucket.

use std::time::{Duration, Instant};

/// Writes per second over a longer time. An API server handles some hundreds per second, and others write too.
const RATE: f64 = 200.0;
/// Writes that may be made at once after a quiet time.
const BURST: f64 = 200.0;

/// A token bucket.
#[derive(Debug)]
pub struct Limit {
    tokens: f64,
    at: Option<Instant>,
}

impl Limit {
    /// Creates a full bucket.
    pub fn new() -> Self {
        Limit {
            tokens: BURST,
            at: None,
        }
    }

    /// Takes a token, or returns the time until there is one.
    pub fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let passed = self.at.map_or(Duration::ZERO, |at| now - at);
        self.at = Some(now);
        self.tokens = (self.tokens + passed.as_secs_f64() * RATE).min(BURST);
        if self.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.tokens) / RATE));
        }
        self.tokens -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pointsman_control::clock;

    use super::*;

    #[test]
    fn a_burst_is_followed_by_a_steady_rate() {
        let mut limit = Limit::new();
        let mut now = clock::instant();
        let mut taken = 0;
        let end = now + Duration::from_secs(2);
        while now < end {
            match limit.take(now) {
                Ok(()) => taken += 1,
                Err(wait) => now += wait.max(Duration::from_millis(1)),
            }
        }
        assert!((598..=600).contains(&taken), "{taken}");
    }
}
