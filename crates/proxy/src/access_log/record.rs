//! What is told of a request, a stream or a UDP session, and how it is written. A line is one line, whatever a client sent.

use std::fmt::Display;
use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pointsman_binding::bound::{BackendId, FrontendId, Scope};
use pointsman_resources::{Kind, ObjectKey};

use super::escape::{escape_json, escape_text};
use crate::options::AccessLogFormat;

/// What is told. What there is none of is left out.
#[derive(Debug, Clone)]
pub(crate) struct LogRecord<'r> {
    /// When it began.
    pub(crate) time: SystemTime,
    /// How long it took.
    pub(crate) duration: Duration,
    /// Who asked.
    pub(crate) client: Option<SocketAddr>,
    /// Where it arrived.
    pub(crate) listener: Option<&'r FrontendId>,
    /// What was spoken: `HTTP/1.1`, `HTTP/2`, `TLS`, `TCP`, `UDP`.
    pub(crate) protocol: &'static str,
    /// The request's method.
    pub(crate) method: Option<&'r [u8]>,
    /// The host that was asked for, by authority, `Host` or SNI.
    pub(crate) authority: Option<&'r [u8]>,
    /// The path and query, as they were sent.
    pub(crate) path: Option<&'r [u8]>,
    /// The answer's status.
    pub(crate) status: Option<u16>,
    /// The gRPC status in the answer's head or trailers.
    pub(crate) grpc_status: Option<u32>,
    /// Bytes of the body, stream or datagrams from the client.
    pub(crate) request_bytes: u64,
    /// The same to the client.
    pub(crate) response_bytes: u64,
    /// The rule that took it.
    pub(crate) rule: Option<LoggedRule<'r>>,
    /// The backend of the last try.
    pub(crate) backend: Option<&'r BackendId>,
    /// Its endpoint.
    pub(crate) endpoint: Option<SocketAddr>,
    /// From the last try's begin to its response's head.
    pub(crate) upstream: Option<Duration>,
    /// Tries after the first.
    pub(crate) retries: u32,
    /// Why Pointsman answered itself, or why it ended early.
    pub(crate) reason: Option<&'r str>,
    /// The request's id.
    pub(crate) request_id: Option<&'r [u8]>,
}

/// A rule that took a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoggedRule<'r> {
    /// Its route.
    pub(crate) route: &'r ObjectKey,
    /// Its place there.
    pub(crate) index: usize,
    /// Which of its matches.
    pub(crate) matched: usize,
}

impl Default for LogRecord<'_> {
    fn default() -> Self {
        LogRecord {
            time: UNIX_EPOCH,
            duration: Duration::ZERO,
            client: None,
            listener: None,
            protocol: "",
            method: None,
            authority: None,
            path: None,
            status: None,
            grpc_status: None,
            request_bytes: 0,
            response_bytes: 0,
            rule: None,
            backend: None,
            endpoint: None,
            upstream: None,
            retries: 0,
            reason: None,
            request_id: None,
        }
    }
}

/// A value of a field.
enum FieldValue<'v> {
    /// Of our own making.
    Trusted(&'v dyn Display),
    /// From elsewhere, to be escaped.
    Untrusted(&'v [u8]),
    Number(u64),
    /// To be told in milliseconds.
    Milliseconds(Duration),
}

/// So many fields come first in every line of text, without a name; `-` stands for one that is missing.
const UNNAMED_COLUMNS: usize = 11;

/// Every field in its order: its name, and what it is.
#[cfg(test)]
pub(crate) const FIELDS: [(&str, &str); 21] = [
    ("time", "when it began: RFC 3339, UTC, to the millisecond"),
    ("client", "who asked: address and port"),
    (
        "listener",
        "where it arrived: `namespace/gateway/listener`, `ListenerSet/namespace/name/listener`, or in the mesh `Service/namespace/name:port`, with `@namespace` if that consumer's own routes took it",
    ),
    (
        "protocol",
        "what was spoken: `HTTP/1.0`, `HTTP/1.1`, `HTTP/2`, `TLS`, `TCP`, `UDP`",
    ),
    ("method", "the request's method"),
    (
        "authority",
        "the host that was asked for; of a TLS stream its SNI",
    ),
    ("path", "path and query, as they were sent"),
    ("status", "the answer's status; missing if there was none"),
    ("duration_ms", "how long all of it took, in milliseconds"),
    (
        "request_bytes",
        "bytes of the body, stream or datagrams from the client",
    ),
    (
        "response_bytes",
        "bytes of the body, stream or datagrams to the client",
    ),
    (
        "grpc_status",
        "the gRPC status in the answer's head or trailers",
    ),
    ("route", "the route that took it: `kind/namespace/name`"),
    ("rule", "the rule's place in the route, from 0"),
    ("match", "the match's place in the rule, from 0"),
    (
        "backend",
        "the backend of the last try: `kind/namespace/name:port`",
    ),
    ("endpoint", "its endpoint: address and port"),
    (
        "upstream_ms",
        "from the last try's begin to its response's head, in milliseconds",
    ),
    ("retries", "tries after the first, if there were any"),
    (
        "reason",
        "why Pointsman answered itself, or why it ended early; `Drained` if it was cut at the end of `--drain`",
    ),
    ("request_id", "the request's id"),
];

impl LogRecord<'_> {
    /// Writes the line and what ends it.
    pub(crate) fn write(&self, format: AccessLogFormat, out: &mut Vec<u8>) {
        match format {
            AccessLogFormat::Text => self.write_text(out),
            AccessLogFormat::Json => self.write_json(out),
        }
        out.push(b'\n');
    }

    fn write_text(&self, out: &mut Vec<u8>) {
        let mut column = 0;
        self.fields(|name, value| {
            column += 1;
            match value {
                None if column <= UNNAMED_COLUMNS => out.push(b'-'),
                None => return,
                Some(value) => {
                    if column > UNNAMED_COLUMNS {
                        out.extend_from_slice(name.as_bytes());
                        out.push(b'=');
                    }
                    write_value(out, &value, escape_text);
                }
            }
            out.push(b' ');
        });
        out.pop();
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        self.fields(|name, value| {
            let Some(value) = value else {
                return;
            };
            out.push(b'"');
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
            let quoted = matches!(value, FieldValue::Trusted(_) | FieldValue::Untrusted(_));
            if quoted {
                out.push(b'"');
            }
            write_value(out, &value, escape_json);
            if quoted {
                out.push(b'"');
            }
            out.push(b',');
        });
        out.pop();
        out.push(b'}');
    }

    /// Every field in its order.
    fn fields(&self, mut visit: impl FnMut(&'static str, Option<FieldValue<'_>>)) {
        visit("time", Some(FieldValue::Trusted(&Rfc3339(self.time))));
        match self.client {
            Some(client) => visit("client", Some(FieldValue::Trusted(&client))),
            None => visit("client", None),
        }
        match self.listener {
            Some(listener) => {
                let mut name = Vec::new();
                listener_name(listener, &mut name);
                visit("listener", Some(FieldValue::Untrusted(&name)));
            }
            None => visit("listener", None),
        }
        visit("protocol", Some(FieldValue::Trusted(&self.protocol)));
        visit("method", self.method.map(FieldValue::Untrusted));
        visit("authority", self.authority.map(FieldValue::Untrusted));
        visit("path", self.path.map(FieldValue::Untrusted));
        visit(
            "status",
            self.status.map(|status| FieldValue::Number(status.into())),
        );
        visit("duration_ms", Some(FieldValue::Milliseconds(self.duration)));
        visit(
            "request_bytes",
            Some(FieldValue::Number(self.request_bytes)),
        );
        visit(
            "response_bytes",
            Some(FieldValue::Number(self.response_bytes)),
        );
        visit(
            "grpc_status",
            self.grpc_status
                .map(|status| FieldValue::Number(status.into())),
        );
        if let Some(LoggedRule {
            route,
            index,
            matched,
        }) = self.rule
        {
            let ObjectKey { kind, name } = route;
            visit(
                "route",
                Some(FieldValue::Trusted(&format_args!("{kind}/{name}"))),
            );
            visit("rule", Some(FieldValue::Number(index as u64)));
            visit("match", Some(FieldValue::Number(matched as u64)));
        }
        if let Some(BackendId { object, port, .. }) = self.backend {
            let ObjectKey { kind, name } = object;
            visit(
                "backend",
                Some(FieldValue::Trusted(&format_args!("{kind}/{name}:{port}"))),
            );
        }
        if let Some(endpoint) = self.endpoint {
            visit("endpoint", Some(FieldValue::Trusted(&endpoint)));
        }
        visit("upstream_ms", self.upstream.map(FieldValue::Milliseconds));
        let retries = Some(u64::from(self.retries)).filter(|retries| *retries > 0);
        visit("retries", retries.map(FieldValue::Number));
        visit(
            "reason",
            self.reason
                .map(|reason| FieldValue::Untrusted(reason.as_bytes())),
        );
        visit("request_id", self.request_id.map(FieldValue::Untrusted));
    }
}

/// Writes to a vector, which can't fail.
macro_rules! put {
    ($out:expr, $($what:tt)*) => {
        let _ = write!($out, $($what)*);
    };
}

fn write_value(out: &mut Vec<u8>, value: &FieldValue<'_>, escape: fn(&[u8], &mut Vec<u8>)) {
    match value {
        FieldValue::Trusted(what) => {
            put!(out, "{what}");
        }
        FieldValue::Untrusted(bytes) => escape(bytes, out),
        FieldValue::Number(number) => {
            put!(out, "{number}");
        }
        FieldValue::Milliseconds(took) => {
            let micros = took.as_micros();
            put!(out, "{}.{:03}", micros / 1000, micros % 1000);
        }
    }
}

fn listener_name(id: &FrontendId, out: &mut Vec<u8>) {
    match id {
        FrontendId::Listener {
            owner, listener, ..
        } => {
            let ObjectKey { kind, name } = owner;
            if *kind != Kind::Gateway {
                put!(out, "{kind}/");
            }
            put!(out, "{name}/{listener}");
        }
        FrontendId::Mesh {
            parent,
            port,
            scope,
            ..
        } => {
            let ObjectKey { kind, name } = parent;
            put!(out, "{kind}/{name}:{port}");
            if let Scope::Namespace(namespace) = scope {
                put!(out, "@{namespace}");
            }
        }
        FrontendId::Outbound(outbound) => {
            let destination = &outbound.destination;
            let ObjectKey { kind, name } = &destination.object;
            put!(out, "{kind}/{name}");
            if destination.port != 0 {
                put!(out, ":{}", destination.port);
            }
            put!(out, "@{}", outbound.dataplane.name);
        }
    }
}

/// A time as RFC 3339 writes it: `2026-03-01T12:00:00.250Z`.
struct Rfc3339(SystemTime);

impl Display for Rfc3339 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let since = self.0.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
        // Years that begin in March, in eras of 400 of them: the leap day is the last day of a year (H. Hinnant's `civil_from_days`).
        let days = days + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (month, next) = if month < 10 {
            (month + 3, 0)
        } else {
            (month - 9, 1)
        };
        write!(
            f,
            "{:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
            era * 400 + year + next,
            second / 3600,
            second / 60 % 60,
            second % 60,
            since.subsec_millis()
        )
    }
}
