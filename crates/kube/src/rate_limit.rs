//! Rate limit of requests.

use std::time::{Duration, Instant};

/// A token bucket.
#[derive(Debug)]
pub struct TokenBucket {
    /// Tokens per second.
    rate: f64,
    /// Maximum number of tokens.
    burst: f64,
    tokens: f64,
    at: Option<Instant>,
}

impl TokenBucket {
    /// Creates a full bucket with a sustained rate per second and a burst.
    pub fn new(rate: u32, burst: u32) -> Self {
        TokenBucket {
            rate: rate.into(),
            burst: burst.into(),
            tokens: burst.into(),
            at: None,
        }
    }

    /// Takes a token, or returns the time until there is one.
    pub fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let passed = self.at.map_or(Duration::ZERO, |at| now - at);
        self.at = Some(now);
        self.tokens = (self.tokens + passed.as_secs_f64() * self.rate).min(self.burst);
        if self.tokens < 1.0 {
            let wait = Duration::from_secs_f64((1.0 - self.tokens) / self.rate);
            return Err(wait.max(Duration::from_millis(1)));
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
        let mut limit = TokenBucket::new(100, 300);
        let mut now = clock::instant();
        for _ in 0..2 {
            let mut taken = 0;
            let end = now + Duration::from_secs(2);
            while now < end {
                match limit.take(now) {
                    Ok(()) => taken += 1,
                    Err(wait) => now += wait,
                }
            }
            assert!((498..=500).contains(&taken), "{taken}");
            // However long nothing is sent, it is a burst that may follow.
            now += Duration::from_secs(60);
        }
    }
}
