//! The time of day, for status.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Now, for how long something takes.
#[allow(clippy::disallowed_methods, reason = "this is the one place")]
pub fn instant() -> Instant {
    Instant::now()
}

/// Now, as Kubernetes writes it.
pub fn now() -> String {
    pointsman_resources::meta::to_rfc3339(unix_seconds())
}

/// Now, in Unix seconds.
pub fn unix_seconds() -> i64 {
    #[allow(clippy::disallowed_methods, reason = "this is the one place")]
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    since.as_secs().try_into().unwrap_or(i64::MAX)
}
