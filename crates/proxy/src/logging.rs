//! Log lines for each of several items, limited so that a large change does not flood the log.

/// Maximum number of lines of one kind that a change logs.
const MAX_LINES: usize = 10;

/// Logs an event of the first listeners and counts the others.
pub(crate) fn log_each<'a>(event: &str, listeners: impl Iterator<Item = &'a String>) {
    let mut listeners = listeners;
    for listener in listeners.by_ref().take(MAX_LINES) {
        tracing::info!("{event}: {listener}");
    }
    if let more @ 1.. = listeners.count() {
        tracing::info!("{event}: {more} more listeners");
    }
}

/// Logs the first warnings and counts the others.
pub(crate) fn warn_each<'a>(lines: impl Iterator<Item = &'a String>) {
    let mut lines = lines;
    for line in lines.by_ref().take(MAX_LINES) {
        tracing::warn!("{line}");
    }
    if let more @ 1.. = lines.count() {
        tracing::warn!("{more} more warnings of this kind; /config lists all sockets");
    }
}
