//! Metrics of the process, from `/proc`. Those that are unavailable are left out.

use std::fs;

use super::series::MetricFamily;

/// A metric of the process, its type, and a function that reads its value.
pub(crate) type ProcessMetric = (MetricFamily, &'static str, fn() -> Option<f64>);

/// Metrics under the names that all Prometheus client libraries use.
pub(crate) const PROCESS: [ProcessMetric; 5] = [
    (
        MetricFamily {
            name: "process_resident_memory_bytes",
            help: "Resident memory size in bytes.",
        },
        "gauge",
        || stat(23).map(|pages| pages * rustix::param::page_size() as f64),
    ),
    (
        MetricFamily {
            name: "process_open_fds",
            help: "Number of open file descriptors.",
        },
        "gauge",
        || Some(fs::read_dir("/proc/self/fd").ok()?.count() as f64),
    ),
    (
        MetricFamily {
            name: "process_max_fds",
            help: "Maximum number of open file descriptors.",
        },
        "gauge",
        max_files,
    ),
    (
        MetricFamily {
            name: "process_start_time_seconds",
            help: "Start time of the process, in seconds since the Unix epoch.",
        },
        "gauge",
        || Some(boot_time()? + stat(21)? / clock_ticks()),
    ),
    (
        MetricFamily {
            name: "process_cpu_seconds_total",
            help: "User and system CPU time, in seconds.",
        },
        "counter",
        || Some((stat(13)? + stat(14)?) / clock_ticks()),
    ),
];

/// Returns a field of `/proc/self/stat`, numbered from 0. Parsing starts after the second field, the program's name, which may contain any characters.
fn stat(field: usize) -> Option<f64> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_whitespace().nth(field - 2)?.parse().ok()
}

fn max_files() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/limits").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the boot time, in seconds since the Unix epoch.
fn boot_time() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()
}

/// Returns the number of clock ticks per second.
fn clock_ticks() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}
