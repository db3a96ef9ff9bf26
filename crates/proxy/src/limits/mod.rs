//! Resource limits of the data plane.
//!
//! One table in this file defines them: the type, the defaults, the names for [`Limits::set`], messages and `docs/limits.md` are derived from it.

#[cfg(test)]
mod tests;
mod value;

use std::ops::RangeInclusive;
use std::time::Duration;

use pointsman_resources::closest;

use crate::http1;
use value::{LimitUnit, LimitValue};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000;
const HOUR: u64 = 3600 * SECOND;

/// Largest flow-control window of HTTP/2 (RFC 9113 §6.9.1).
const MAX_WINDOW: u32 = (1 << 31) - 1;

/// The description of a limit.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// Name in `--limit NAME=VALUE`.
    pub name: &'static str,
    /// The limited quantity.
    pub description: &'static str,
    /// The consequence of exceeding it.
    pub effect: &'static str,
    unit: LimitUnit,
    range: (u64, u64),
    get: fn(&Limits) -> Option<u64>,
    set: fn(&mut Limits, Option<u64>) -> bool,
}

/// Generates the type, its default and the table from one list.
macro_rules! limits {
    ($($name:literal $field:ident: $type:ty = $default:expr, $unit:ident $range:expr; $description:literal; $effect:literal)*) => {
        /// All limits. See `docs/limits.md`.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Limits {
            $(
                #[doc = concat!("`", $name, "`: ", $description)]
                pub $field: $type,
            )*
        }

        impl Default for Limits {
            fn default() -> Self {
                Limits { $($field: $default,)* }
            }
        }

        /// Names of the limits, for replies and logs. Each is a constant with the name of the field of [`Limits`].
        #[allow(non_upper_case_globals, dead_code, reason = "named as the fields; not every limit is logged")]
        pub(crate) mod limit_name {
            $(pub(crate) const $field: &str = $name;)*
        }

        const TABLE: &[Limit] = &[$(
            Limit {
                name: $name,
                description: $description,
                effect: $effect,
                unit: LimitUnit::$unit,
                range: bounds($range),
                get: |limits| limits.$field.get(),
                set: |limits, amount| limits.$field.set(amount),
            },
        )*];
    };
}

const fn bounds(range: RangeInclusive<u64>) -> (u64, u64) {
    (*range.start(), *range.end())
}

limits! {
    "header-bytes" header_bytes: usize = 64 * 1024, Bytes KIB..=MIB;
        "bytes of the headers of a request or response";
        "431; 502 for a response"
    "headers" headers: usize = 100, Number 1..=256;
        "headers of a request or response";
        "431; 502 for a response"
    "uri-bytes" uri_bytes: usize = 16 * 1024, Bytes 64..=MIB;
        "bytes of a request target";
        "414"
    "body-bytes" body_bytes: Option<u64> = None, Bytes 0..=u64::MAX;
        "bytes of a request body; none means unlimited";
        "413"
    "connections" connections: Option<usize> = None, Number 1..=10_000_000;
        "concurrent client connections; none means the limit of open files, less a reserve";
        "the longest-idle connections are closed; if none is idle, the new connection gets 503 (plain HTTP) or is closed, and is counted"
    "streams" streams: u32 = 128, Number 1..=65_536;
        "concurrent requests on an HTTP/2 connection";
        "the request is refused (REFUSED_STREAM)"
    "head-time" head_time: Duration = Duration::from_secs(10), Time 10..=HOUR;
        "time for the headers of a request, a TLS handshake, a PROXY protocol header, or the first byte of a connection";
        "408 if headers have begun; the connection is closed"
    "idle-time" idle_time: Duration = Duration::from_secs(60), Time 10..=24 * HOUR;
        "time that a client connection stays open without a request";
        "the connection is closed"
    "stall-time" stall_time: Duration = Duration::from_secs(60), Time 10..=24 * HOUR;
        "time without progress of a body, in either direction";
        "408, or 504 if the backend is the cause; if the response has begun, it is aborted"
    "buffer-bytes" buffer_bytes: usize = 64 * 1024, Bytes 4 * KIB..=16 * MIB;
        "bytes buffered of a body in each direction while the receiver is slow";
        "backpressure on the sender"
    "connect-time" connect_time: Duration = Duration::from_secs(5), Time 10..=HOUR;
        "time to connect to an endpoint, including TLS";
        "another endpoint is tried; finally 503"
    "backend-head-time" backend_head_time: Option<Duration> = None, Time 10..=24 * HOUR;
        "time from the end of a request to the headers of the response; none means unlimited";
        "another endpoint is tried if the route allows retries; otherwise 504"
    "backend-idle-time" backend_idle_time: Duration = Duration::from_secs(30), Time 10..=24 * HOUR;
        "time that a connection to an endpoint stays open without a request";
        "the connection is closed"
    "backend-idle-connections" backend_idle_connections: usize = 256, Number 0..=1_000_000;
        "idle connections kept per endpoint and worker";
        "the connection is closed after its request"
    "backend-streams" backend_streams: u32 = 100, Number 1..=65_536;
        "concurrent requests on an HTTP/2 connection to an endpoint";
        "another connection is opened"
    "replay-bytes" replay_bytes: usize = 64 * 1024, Bytes 0..=16 * MIB;
        "bytes of a request body kept for retries";
        "the request is not retried"
    "mirror-bytes" mirror_bytes: usize = 256 * 1024, Bytes 4 * KIB..=64 * MIB;
        "bytes of a request body by which a mirror may lag behind";
        "the mirrored request is aborted and counted"
    "stream-idle-time" stream_idle_time: Option<Duration> = None, Time SECOND..=7 * 24 * HOUR;
        "time without traffic in both directions of a TCP, TLS or WebSocket stream; none means unlimited";
        "the stream is closed"
    "udp-idle-time" udp_idle_time: Duration = Duration::from_secs(60), Time 10..=24 * HOUR;
        "time without datagrams of a UDP session";
        "the session ends; the next datagram begins a new one"
    "udp-sessions" udp_sessions: usize = 4096, Number 1..=1_000_000;
        "concurrent UDP sessions per worker and port";
        "datagrams of further clients are dropped and counted"
    "http2-resets" http2_resets: u32 = 200, Number 1..=1_000_000;
        "streams that a client resets on an HTTP/2 connection, in excess of those that complete";
        "the connection is closed (ENHANCE_YOUR_CALM)"
    "http2-control-frames" http2_control_frames: u32 = 1000, Number 10..=10_000_000;
        "PING, SETTINGS, PRIORITY, WINDOW_UPDATE and empty frames of a client within ten seconds, in excess of an allowance per request and response";
        "the connection is closed (ENHANCE_YOUR_CALM)"
}

impl Limits {
    /// Returns all limits in the order of the documentation.
    pub fn all() -> impl Iterator<Item = &'static Limit> {
        TABLE.iter()
    }

    /// Sets a limit by name: a size such as `64KiB`, a number, a duration such as `10s` or `500ms`, or `none` if the limit is optional. Errors state the value
    /// and the allowed values.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let limit = TABLE
            .iter()
            .find(|limit| limit.name == name)
            .ok_or_else(|| unknown(name))?;
        let invalid = || {
            format!(
                "invalid value `{value}` for limit `{name}`: write {}",
                limit.allowed_values()
            )
        };
        let amount = match value {
            "none" => None,
            value => Some(limit.unit.parse(value).ok_or_else(invalid)?),
        };
        let fits = amount.is_none_or(|amount| (limit.range.0..=limit.range.1).contains(&amount));
        match fits && (limit.set)(self, amount) {
            true => Ok(()),
            false => Err(invalid()),
        }
    }
}

impl Limits {
    /// Returns the limits of the HTTP/1 codec for requests.
    pub(crate) fn for_requests(&self) -> http1::Limits {
        http1::Limits {
            target_bytes: self.uri_bytes,
            field_bytes: self.header_bytes,
            fields: self.headers,
            body_bytes: self.body_bytes,
            ..http1::Limits::default()
        }
    }

    /// Returns the flow-control windows of a stream and of a connection over HTTP/2: each stream's is as large as a body's buffer, and the connection's covers
    /// all streams, so that a slow stream does not block others.
    pub(crate) fn http2_windows(&self, streams: u32) -> (u32, u32) {
        let window = u32::try_from(self.buffer_bytes).unwrap_or(MAX_WINDOW);
        let window = window.clamp(16 * 1024, MAX_WINDOW);
        let all = u64::from(window) * u64::from(streams);
        let all = u32::try_from(all).unwrap_or(MAX_WINDOW);
        (window, all.clamp(1 << 20, MAX_WINDOW))
    }

    /// Returns the limits of the HTTP/1 codec for responses.
    pub(crate) fn for_responses(&self) -> http1::Limits {
        http1::Limits {
            body_bytes: None,
            ..self.for_requests()
        }
    }
}

impl Limit {
    /// Returns the default in the syntax of `--limit`.
    pub fn default_text(&self) -> String {
        match (self.get)(&Limits::default()) {
            None => "none".to_owned(),
            Some(amount) => self.unit.format(amount),
        }
    }

    /// Returns whether `none` is allowed.
    fn is_optional(&self) -> bool {
        (self.set)(&mut Limits::default(), None)
    }

    /// Describes the allowed values.
    pub fn allowed_values(&self) -> String {
        let (min, max) = self.range;
        let unit = self.unit;
        let mut text = match max {
            u64::MAX => format!("{} from {}", unit.expected(), unit.format(min)),
            max => format!(
                "{} from {} to {}",
                unit.expected(),
                unit.format(min),
                unit.format(max)
            ),
        };
        if self.is_optional() {
            text.push_str(", or `none`");
        }
        text
    }
}

fn unknown(name: &str) -> String {
    let names: Vec<&str> = TABLE.iter().map(|limit| limit.name).collect();
    let suggestion = closest(name, names.iter().copied())
        .map(|suggestion| format!("did you mean `{suggestion}`? "))
        .unwrap_or_default();
    let names = names.join(", ");
    format!("unknown limit `{name}`; {suggestion}known limits: {names}")
}
