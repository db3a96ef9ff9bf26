//! Access to the clocks. No other module of this crate reads the time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Returns the monotonic time, for durations.
#[allow(clippy::disallowed_methods, reason = "this is the one place")]
pub fn instant() -> Instant {
    Instant::now()
}

/// Returns the current time in the format of Kubernetes' timestamps.
pub fn now() -> String {
    pointsman_resources::meta::to_rfc3339(unix_seconds())
}

/// Returns the current time in seconds since the Unix epoch.
pub fn unix_seconds() -> i64 {
    since_epoch().as_secs().try_into().unwrap_or(i64::MAX)
}

/// Returns the current time in microseconds since the Unix epoch.
pub fn unix_micros() -> i64 {
    since_epoch().as_micros().try_into().unwrap_or(i64::MAX)
}

#[allow(clippy::disallowed_methods, reason = "this is the one place")]
fn since_epoch() -> Duration {
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).unwrap_or_default()
}
