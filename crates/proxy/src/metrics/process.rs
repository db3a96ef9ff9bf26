//! What the system says of this process. Where it says nothing, nothing is shown.

use std::fs;

use super::series::MetricFamily;

/// A figure of the process: its family, what it is in Prometheus' words, and how it is found out.
pub(crate) type ProcessMetric = (MetricFamily, &'static str, fn() -> Option<f64>);

/// All of them, under the names that every Prometheus client gives them.
pub(crate) const PROCESS: [ProcessMetric; 5] = [
    (
        MetricFamily {
            name: "process_resident_memory_bytes",
            help: "Memory in use.",
        },
        "gauge",
        || stat(23).map(|pages| pages * rustix::param::page_size() as f64),
    ),
    (
        MetricFamily {
            name: "process_open_fds",
            help: "Files and sockets that are open.",
        },
        "gauge",
        || Some(fs::read_dir("/proc/self/fd").ok()?.count() as f64),
    ),
    (
        MetricFamily {
            name: "process_max_fds",
            help: "Files and sockets that may be open.",
        },
        "gauge",
        max_files,
    ),
    (
        MetricFamily {
            name: "process_start_time_seconds",
            help: "When it was started, in seconds since 1970.",
        },
        "gauge",
        || Some(boot()? + stat(21)? / ticks()),
    ),
    (
        MetricFamily {
            name: "process_cpu_seconds_total",
            help: "Time spent working, in the system too.",
        },
        "counter",
        || Some((stat(13)? + stat(14)?) / ticks()),
    ),
];

/// A field of `/proc/self/stat`, numbered from 0. The second, the program's name, may hold anything, so counting begins behind it.
fn stat(field: usize) -> Option<f64> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, behind) = text.rsplit_once(')')?;
    behind.split_whitespace().nth(field - 2)?.parse().ok()
}

fn max_files() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/limits").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// When the system was started, in seconds since 1970.
fn boot() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()
}

/// In how many parts the system counts a second.
fn ticks() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}
