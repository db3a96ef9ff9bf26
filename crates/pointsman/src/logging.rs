//! Logs to standard error.

use crate::output;

/// Starts to log to standard error, at the levels in `RUST_LOG`. By default, logs Pointsman's messages, and warnings of its dependencies.
pub fn start(quiet: bool) {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_default_env();
    let filter = filter.unwrap_or_else(|_| {
        EnvFilter::new(match quiet {
            true => "warn,h2=error",
            false => "warn,h2=error,pointsman=info",
        })
    });
    let logging = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_target(false)
        .try_init();
    if let Err(error) = logging {
        output::print_error(&format!("pointsman: logging is disabled: {error}"));
    }
}
