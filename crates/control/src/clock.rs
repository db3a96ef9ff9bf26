//! The time of day, for status.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Now, for how long something takes.
#[allow(clippy::disallowed_methods, reason = "this is the one place")]
pub fn instant() -> Instant {
    Instant::now()
}

/// Now, as Kubernetes writes it.
pub fn now() -> String {
    #[allow(clippy::disallowed_methods, reason = "this is the one place")]
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    format(since.as_secs())
}

/// Seconds since 1970 as `2026-01-31T12:00:00Z`.
fn format(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years are counted from March, so that a leap day is a year's last; eras are of 400 years.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        0..10 => (era * 400 + year, month + 3),
        _ => (era * 400 + year + 1, month - 9),
    };
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_read_back_as_they_were() {
        for seconds in [
            0,
            951_782_399,
            951_782_400,
            951_868_800,
            1_709_164_800,
            4_102_444_799,
        ] {
            let text = super::format(seconds);
            let read = pointsman_resources::meta::rfc3339(&text);
            assert_eq!(read, i64::try_from(seconds).ok(), "{text}");
        }
    }
}
