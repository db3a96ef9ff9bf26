//! What is counted for each listener, route, backend and worker, and under which names it is shown.
//!
//! The tables here are all there is: rendering goes through them, and `docs/observing.md` is held to them by a test.

use super::primitives::{Counter, Gauge, Histogram, StatusClassCounters};

/// What one worker sees of a listener, or of a port of a mesh parent.
#[derive(Debug, Default)]
pub(crate) struct ListenerSeries {
    /// Requests that ended.
    pub(crate) requests: StatusClassCounters,
    /// From a request's first byte to its answer's last.
    pub(crate) latency: Histogram,
    /// Bytes of bodies, streams or datagrams from clients.
    pub(crate) request_bytes: Counter,
    /// The same to clients.
    pub(crate) response_bytes: Counter,
    /// Connections or UDP sessions that began.
    pub(crate) connections: Counter,
    /// Those that have not ended.
    pub(crate) open: Gauge,
    /// TLS handshakes that were completed.
    pub(crate) handshakes: Counter,
    /// TLS handshakes that were not.
    pub(crate) failed_handshakes: Counter,
}

/// What one worker sees of a rule of a route.
#[derive(Debug, Default)]
pub(crate) struct RouteSeries {
    /// Requests that ended.
    pub(crate) requests: StatusClassCounters,
    /// From a request's first byte to its answer's last.
    pub(crate) latency: Histogram,
}

/// What one worker sees of a backend.
#[derive(Debug, Default)]
pub(crate) struct BackendSeries {
    /// Tries that ended, each of a request's on its own.
    pub(crate) requests: StatusClassCounters,
    /// From a try's begin to its response's head.
    pub(crate) latency: Histogram,
    /// Connections that were begun.
    pub(crate) connects: Counter,
    /// Those of them that came to nothing.
    pub(crate) failed_connects: Counter,
    /// Connections that are open.
    pub(crate) open: Gauge,
    /// Tries after the first.
    pub(crate) retries: Counter,
    /// Endpoints that were set aside.
    pub(crate) ejections: Counter,
    /// Tries that took too long.
    pub(crate) timeouts: Counter,
    /// Bytes of bodies, streams or datagrams to it.
    pub(crate) request_bytes: Counter,
    /// The same from it.
    pub(crate) response_bytes: Counter,
}

/// What one worker sees of itself.
#[derive(Debug, Default)]
pub(crate) struct WorkerSeries {
    /// Accepting that failed, such as for want of files.
    pub(crate) accept_errors: Counter,
    /// Idle client connections that were closed to make room.
    pub(crate) closed_idle: Counter,
    /// Copies that were sent.
    pub(crate) mirrors: Counter,
    /// Copies that were given up.
    pub(crate) dropped_mirrors: Counter,
    /// Lines of the access log that were dropped because it could not keep up. The log's own thread adds to it too.
    pub(crate) dropped_log_lines: Counter,
}

/// A name under which something is shown.
pub(crate) struct MetricFamily {
    /// The name.
    pub(crate) name: &'static str,
    /// What it is.
    pub(crate) help: &'static str,
}

/// One of a series' figures, as it is shown.
pub(crate) enum MetricValue<'s> {
    Counter(&'s Counter),
    Gauge(&'s Gauge),
    /// A counter with the label `code`.
    StatusClasses(&'s StatusClassCounters),
    /// A counter with the label `result`.
    Results([(&'static str, &'s Counter); 2]),
    Histogram(&'s Histogram),
}

/// A figure's family and where it stands in its series.
pub(crate) type MetricDef<S> = (MetricFamily, for<'s> fn(&'s S) -> MetricValue<'s>);

const fn family(name: &'static str, help: &'static str) -> MetricFamily {
    MetricFamily { name, help }
}

/// Those of a listener.
pub(crate) const LISTENER: &[MetricDef<ListenerSeries>] = &[
    (
        family(
            "pointsman_listener_requests_total",
            "Requests that ended, by class of status; none if there was no answer.",
        ),
        |series| MetricValue::StatusClasses(&series.requests),
    ),
    (
        family(
            "pointsman_listener_request_seconds",
            "From a request's first byte to its answer's last.",
        ),
        |series| MetricValue::Histogram(&series.latency),
    ),
    (
        family(
            "pointsman_listener_request_bytes_total",
            "Bytes of bodies, streams or datagrams from clients.",
        ),
        |series| MetricValue::Counter(&series.request_bytes),
    ),
    (
        family(
            "pointsman_listener_response_bytes_total",
            "Bytes of bodies, streams or datagrams to clients.",
        ),
        |series| MetricValue::Counter(&series.response_bytes),
    ),
    (
        family(
            "pointsman_listener_connections_total",
            "Connections or UDP sessions that began.",
        ),
        |series| MetricValue::Counter(&series.connections),
    ),
    (
        family(
            "pointsman_listener_open_connections",
            "Connections or UDP sessions that are open.",
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

/// Those of a rule.
pub(crate) const ROUTE: &[MetricDef<RouteSeries>] = &[
    (
        family(
            "pointsman_route_requests_total",
            "Requests that ended, by class of status; none if there was no answer.",
        ),
        |series| MetricValue::StatusClasses(&series.requests),
    ),
    (
        family(
            "pointsman_route_request_seconds",
            "From a request's first byte to its answer's last.",
        ),
        |series| MetricValue::Histogram(&series.latency),
    ),
];

/// Those of a backend.
pub(crate) const BACKEND: &[MetricDef<BackendSeries>] = &[
    (
        family(
            "pointsman_backend_requests_total",
            "Tries that ended, by class of status; none if there was no response.",
        ),
        |series| MetricValue::StatusClasses(&series.requests),
    ),
    (
        family(
            "pointsman_backend_response_seconds",
            "From a try's begin to its response's head.",
        ),
        |series| MetricValue::Histogram(&series.latency),
    ),
    (
        family(
            "pointsman_backend_connects_total",
            "Connections that were begun.",
        ),
        |series| MetricValue::Counter(&series.connects),
    ),
    (
        family(
            "pointsman_backend_connect_failures_total",
            "Connections that could not be made, TLS included.",
        ),
        |series| MetricValue::Counter(&series.failed_connects),
    ),
    (
        family(
            "pointsman_backend_open_connections",
            "Connections that are open.",
        ),
        |series| MetricValue::Gauge(&series.open),
    ),
    (
        family(
            "pointsman_backend_retries_total",
            "Tries after a request's first.",
        ),
        |series| MetricValue::Counter(&series.retries),
    ),
    (
        family(
            "pointsman_backend_ejections_total",
            "Times that an endpoint was set aside because it failed.",
        ),
        |series| MetricValue::Counter(&series.ejections),
    ),
    (
        family(
            "pointsman_backend_timeouts_total",
            "Tries that took longer than they may.",
        ),
        |series| MetricValue::Counter(&series.timeouts),
    ),
    (
        family(
            "pointsman_backend_request_bytes_total",
            "Bytes of bodies, streams or datagrams to the backend.",
        ),
        |series| MetricValue::Counter(&series.request_bytes),
    ),
    (
        family(
            "pointsman_backend_response_bytes_total",
            "Bytes of bodies, streams or datagrams from the backend.",
        ),
        |series| MetricValue::Counter(&series.response_bytes),
    ),
];

/// Those of all workers together.
pub(crate) const WORKER: &[MetricDef<WorkerSeries>] = &[
    (
        family(
            "pointsman_accept_errors_total",
            "Connections that could not be accepted.",
        ),
        |series| MetricValue::Counter(&series.accept_errors),
    ),
    (
        family(
            "pointsman_idle_connections_closed_total",
            "Idle client connections that were closed to make room for others.",
        ),
        |series| MetricValue::Counter(&series.closed_idle),
    ),
    (
        family("pointsman_mirrors_total", "Copies of requests, by result."),
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
            "Lines of the access log that were dropped because it could not keep up.",
        ),
        |series| MetricValue::Counter(&series.dropped_log_lines),
    ),
];

/// Answers that no backend gave, with the label `reason`.
pub(crate) const LOCAL_REPLIES: MetricFamily = family(
    "pointsman_answers_total",
    "Answers that Pointsman made itself, by reason.",
);

/// Connections that were refused, with the label `reason`.
pub(crate) const REFUSED_CONNECTIONS: MetricFamily = family(
    "pointsman_connections_refused_total",
    "Clients' connections that were closed without being served, by reason.",
);

/// The version that runs, with the label `version`.
pub(crate) const BUILD: MetricFamily =
    family("pointsman_build_info", "1; the label is the version.");

/// How many workers there are.
pub(crate) const WORKERS: MetricFamily = family("pointsman_workers", "Threads that carry traffic.");
