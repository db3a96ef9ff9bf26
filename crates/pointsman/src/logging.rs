//! Logs to standard error.

use crate::output;

/// Levels of dependencies. Warnings of h2 concern peers, and Pointsman logs errors of watches itself.
const DEPENDENCIES: &str = "warn,h2=error,kube_runtime=error";

/// Starts to log to standard error, at the levels in `RUST_LOG`. By default, logs Pointsman's messages, and warnings of its dependencies.
pub fn start(quiet: bool) {
    use tracing_subscriber::EnvFilter;
    let variable = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    let default = if quiet { "warn" } else { "info" };
    let filter = EnvFilter::try_new(directives(&variable, default));
    let filter = filter.unwrap_or_else(|_| EnvFilter::new(directives("", default)));
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

/// Returns the filter for a value of `RUST_LOG`. With `info` or `warn`, dependencies log as they do by default.
fn directives(variable: &str, default: &str) -> String {
    let level = match variable.trim() {
        "" => default,
        other => other,
    };
    match level.to_ascii_lowercase().as_str() {
        "info" => format!("{DEPENDENCIES},pointsman=info"),
        "warn" => DEPENDENCIES.to_owned(),
        _ => level.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_that_of_pointsman_and_directives_are_used_as_they_are() {
        let info = "warn,h2=error,kube_runtime=error,pointsman=info";
        assert_eq!(directives("", "info"), info);
        assert_eq!(directives(" INFO", "warn"), info);
        assert_eq!(directives("", "warn"), DEPENDENCIES);
        for other in ["error", "debug", "pointsman=trace", "off"] {
            assert_eq!(directives(other, "info"), other);
        }
    }
}
