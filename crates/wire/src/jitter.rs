//! Random delays, so that many peers do not act at the same time.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Returns a random time that is shorter than `time` by at most `spread`.
pub(crate) fn jittered(time: Duration, spread: Duration) -> Duration {
    let random = RandomState::new().hash_one(0u8) % 1024;
    time.saturating_sub(spread * random as u32 / 1024)
}
