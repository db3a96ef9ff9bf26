//! The series of listeners, routes, backends and workers, with the names and help texts of their metrics.
//!
//! Everything is rendered from the tables in this file, and a test compares them with `docs/observing.md`.

use super::primitives::{Counter, Gauge, Histogram, StatusClassCounters};

/// One worker's series of a listener, or of a mesh parent's port.
#[derive(Debug, Default)]
pub(crate) struct ListenerSeries {
    /// Completed requests.
    pub(crate) requests: StatusClassCounters,
    /// Time from the first byte of a request to the last byte of its response.
    pub(crate) latency: Histogram,
    /// Bytes of bodies, streams and datagrams from clients.
    pub(crate) request_bytes: Counter,
    /// Bytes of bodies, streams and datagrams to clients.
    pub(crate) response_bytes: Counter,
    /// Accepted connections and UDP sessions.
    pub(crate) connections: Counter,
    /// Open connections and UDP sessions.
    pub(crate) open: Gauge,
    /// Completed TLS handshakes.
    pub(crate) handshakes: Counter,
    /// Failed TLS handshakes.
    pub(crate) failed_handshakes: Counter,
}

/// One worker's series of a rule.
#[derive(Debug, Default)]
pub(crate) struct RouteSeries {
    /// Completed requests.
    pub(crate) requests: StatusClassCounters,
    /// Time from the first byte of a request to the last byte of its response.
    pub(crate) latency: Histogram,
}

/// One worker's series of a backend.
#[derive(Debug, Default)]
pub(crate) struct BackendSeries {
    /// Completed attempts, including retries.
    pub(crate) requests: StatusClassCounters,
    /// Time from the start of an attempt to the response headers.
    pub(crate) latency: Histogram,
    /// Connection attempts.
    pub(crate) connects: Counter,
    /// Failed connection attempts.
    pub(crate) failed_connects: Counter,
    /// Open connections.
    pub(crate) open: Gauge,
    /// Attempts after the first.
    pub(crate) retries: Counter,
    /// Ejections of endpoints.
    pub(crate) ejections: Counter,
    /// Attempts that timed out.
    pub(crate) timeouts: Counter,
    /// Bytes of bodies, streams and datagrams to the backend.
    pub(crate) request_bytes: Counter,
    /// Bytes of bodies, streams and datagrams from the backend.
    pub(crate) response_bytes: Counter,
}

/// One worker's own series.
#[derive(Debug, Default)]
pub(crate) struct WorkerSeries {
    /// Errors of `accept`, such as running out of files.
    pub(crate) accept_errors: Counter,
    /// Idle client connections closed to make room.
    pub(crate) closed_idle: Counter,
    /// Mirrored requests.
    pub(crate) mirrors: Counter,
    /// Mirrored requests that were abandoned.
    pub(crate) dropped_mirrors: Counter,
    /// Access log entries that were dropped. The log's own thread counts here too.
    pub(crate) dropped_log_lines: Counter,
}

/// Name and help text of a metric.
pub(crate) struct MetricFamily {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
}

/// A value of a series.
pub(crate) enum MetricValue<'s> {
    Counter(&'s Counter),
    Gauge(&'s Gauge),
    /// A counter with the label `code`.
    StatusClasses(&'s StatusClassCounters),
    /// A counter with the label `result`.
    Results([(&'static str, &'s Counter); 2]),
    Histogram(&'s Histogram),
}

/// A metric of a series, and the value to render.
pub(crate) type MetricDef<S> = (MetricFamily, for<'s> fn(&'s S) -> MetricValue<'s>);

const fn family(name: &'static str, help: &'static str) -> MetricFamily {
    MetricFamily { name, help }
}

/// Metrics of listeners.
pub(crate) const LISTENER: &[MetricDef<ListenerSeries>] = &[
    (
        family(
            "pointsman_listener_requests_total",
            "Completed requests, by class of status; `none` if no response was sent.",
        ),
        |series| MetricValue::StatusClasses(&series.requests),
    ),
    (
        family(
            "pointsman_listener_request_seconds",
            "Time from the first byte of a request to the last byte of its response.",
        ),
        |series| MetricValue::Histogram(&series.latency),
    ),
    (
        family(
            "pointsman_listener_request_bytes_total",
            "Bytes of bodies, streams and datagrams from clients.",
        ),
        |series| MetricValue::Counter(&series.request_bytes),
    ),
    (
        family(
            "pointsman_listener_response_bytes_total",
            "Bytes of bodies, streams and datagrams to clients.",
        ),
        |series| MetricValue::Counter(&series.response_bytes),
    ),
    (
        family(
            "pointsman_listener_connections_total",
            "Accepted connections and UDP sessions.",
        ),
        |series| MetricValue::Counter(&series.connections),
    ),
    (
        family(
            "pointsman_listener_open_connections",
            "Open connections and UDP sessions.",
        ),
        |series| MetricValue::Gauge(&series.open),
    ),
    (
        family(
            "pointsman_listener_tls_handshakes_total",
            "TLS handshakes, by result.",
        ),
        |series| {
            MetricValue::Results([
                ("ok", &series.handshakes),
                ("failed", &series.failed_handshakes),
            ])
        },
    ),
];

/// Metrics of rules.
pub(crate) const ROUTE: &[MetricDef<RouteSeries>] = &[
    (
        family(
            "pointsman_route_requests_total",
            "Completed requests, by class of status; `none` if no response was sent.",
        ),
        |series| MetricValue::StatusClasses(&series.requests),
    ),
    (
        family(
            "pointsman_route_request_seconds",
            "Time from the first byte of a request to the last byte of its response.",
        ),
        |series| MetricValue::Histogram(&series.latency),
    ),
];

/// Metrics of backends.
pub(crate) const BACKEND: &[MetricDef<BackendSeries>] = &[
    (
        family(
            "pointsman_backend_requests_total",
            "Completed attempts, by class of status; `none` if no response was received.",
        ),
        |series| MetricValue::StatusClasses(&series.requests),
    ),
    (
        family(
            "pointsman_backend_response_seconds",
            "Time from the start of an attempt to the response headers.",
        ),
        |series| MetricValue::Histogram(&series.latency),
    ),
    (
        family("pointsman_backend_connects_total", "Connection attempts."),
        |series| MetricValue::Counter(&series.connects),
    ),
    (
        family(
            "pointsman_backend_connect_failures_total",
            "Failed connection attempts, including TLS handshakes.",
        ),
        |series| MetricValue::Counter(&series.failed_connects),
    ),
    (
        family("pointsman_backend_open_connections", "Open connections."),
        |series| MetricValue::Gauge(&series.open),
    ),
    (
        family("pointsman_backend_retries_total", "Retries."),
        |series| MetricValue::Counter(&series.retries),
    ),
    (
        family(
            "pointsman_backend_ejections_total",
            "Ejections of endpoints after consecutive failures.",
        ),
        |series| MetricValue::Counter(&series.ejections),
    ),
    (
        family(
            "pointsman_backend_timeouts_total",
            "Attempts that timed out.",
        ),
        |series| MetricValue::Counter(&series.timeouts),
    ),
    (
        family(
            "pointsman_backend_request_bytes_total",
            "Bytes of bodies, streams and datagrams to the backend.",
        ),
        |series| MetricValue::Counter(&series.request_bytes),
    ),
    (
        family(
            "pointsman_backend_response_bytes_total",
            "Bytes of bodies, streams and datagrams from the backend.",
        ),
        |series| MetricValue::Counter(&series.response_bytes),
    ),
];

/// Metrics of the workers.
pub(crate) const WORKER: &[MetricDef<WorkerSeries>] = &[
    (
        family(
            "pointsman_accept_errors_total",
            "Errors while accepting connections.",
        ),
        |series| MetricValue::Counter(&series.accept_errors),
    ),
    (
        family(
            "pointsman_idle_connections_closed_total",
            "Idle client connections closed to make room for others.",
        ),
        |series| MetricValue::Counter(&series.closed_idle),
    ),
    (
        family("pointsman_mirrors_total", "Mirrored requests, by result."),
        |series| {
            MetricValue::Results([
                ("sent", &series.mirrors),
                ("dropped", &series.dropped_mirrors),
            ])
        },
    ),
    (
        family(
            "pointsman_access_log_dropped_total",
            "Access log entries dropped because the log could not keep up.",
        ),
        |series| MetricValue::Counter(&series.dropped_log_lines),
    ),
];

/// Local replies, with the label `reason`.
pub(crate) const LOCAL_REPLIES: MetricFamily = family(
    "pointsman_answers_total",
    "Responses generated by Pointsman itself, by reason.",
);

/// Refused client connections, with the label `reason`.
pub(crate) const REFUSED_CONNECTIONS: MetricFamily = family(
    "pointsman_connections_refused_total",
    "Client connections closed without being served, by reason.",
);

pub(crate) const BUILD: MetricFamily = family(
    "pointsman_build_info",
    "Always 1; the label is the version.",
);

pub(crate) const WORKERS: MetricFamily = family("pointsman_workers", "Worker threads.");
