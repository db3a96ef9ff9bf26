//! Log messages about reached limits, rate-limited so that misbehaving clients can't flood the log.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Minimum interval between two messages about one limit.
const INTERVAL: Duration = Duration::from_secs(1);

/// The limits that were reached recently.
#[derive(Debug, Default)]
pub(crate) struct LimitLog(RefCell<Vec<LoggedLimit>>);

/// A limit, the time of its last message, and the number of events since.
#[derive(Debug)]
struct LoggedLimit {
    limit: &'static str,
    logged_at: Instant,
    unlogged: u64,
}

impl LimitLog {
    /// Records that a limit was reached. Returns the number of times since the last message if another message is due.
    pub(crate) fn due(&self, limit: &'static str) -> Option<u64> {
        let now = Instant::now();
        let mut all = self.0.borrow_mut();
        let Some(logged) = all.iter_mut().find(|logged| logged.limit == limit) else {
            all.push(LoggedLimit {
                limit,
                logged_at: now,
                unlogged: 0,
            });
            return Some(1);
        };
        logged.unlogged += 1;
        if now.duration_since(logged.logged_at) < INTERVAL {
            return None;
        }
        logged.logged_at = now;
        Some(std::mem::take(&mut logged.unlogged))
    }

    /// Records a client that was refused because of a limit.
    pub(crate) fn record_refusal(&self, limit: &'static str, client: SocketAddr) {
        if let Some(count) = self.due(limit) {
            tracing::warn!(limit, %client, count, "refused: limit exceeded");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_logged_once_a_second_with_the_number_of_times_it_was_reached() {
        let log = LimitLog::default();
        assert_eq!(log.due("headers"), Some(1));
        assert_eq!(log.due("uri-bytes"), Some(1), "limits are independent");
        assert_eq!(log.due("headers"), None);
        assert_eq!(log.due("headers"), None);
        for logged in log.0.borrow_mut().iter_mut() {
            logged.logged_at -= INTERVAL;
        }
        assert_eq!(log.due("headers"), Some(3));
    }
}
