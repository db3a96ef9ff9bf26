//! What is too much: every limit of the data plane, by name.
//!
//! The table below is all there is: the type, the defaults, the names that [`Limits::set`] takes and `docs/limits.md` come from it.

mod amount;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;
use std::time::Duration;

use pointsman_resources::closest;

use crate::http1;
use amount::{LimitUnit, LimitValue};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000;
const HOUR: u64 = 3600 * SECOND;

/// A limit, for people.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// Its name.
    pub name: &'static str,
    /// What is counted or timed.
    pub what: &'static str,
    /// What happens at more.
    pub beyond: &'static str,
    unit: LimitUnit,
    range: (u64, u64),
    get: fn(&Limits) -> Option<u64>,
    set: fn(&mut Limits, Option<u64>) -> bool,
}

/// Makes the type, its default and the table of one list.
macro_rules! limits {
    ($($name:literal $field:ident: $type:ty = $default:expr, $unit:ident $range:expr; $what:literal; $beyond:literal)*) => {
        /// Every limit. Each has a name, a default and a place in `docs/limits.md`.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Limits {
            $(
                #[doc = concat!("`", $name, "`: ", $what)]
                pub $field: $type,
            )*
        }

        impl Default for Limits {
            fn default() -> Self {
                Limits { $($field: $default,)* }
            }
        }

        const TABLE: &[Limit] = &[$(
            Limit {
                name: $name,
                what: $what,
                beyond: $beyond,
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
        "bytes of a head's fields, either side";
        "431; from a backend 502"
    "headers" headers: usize = 100, Number 1..=256;
        "fields of a head, either side";
        "431; from a backend 502"
    "uri-bytes" uri_bytes: usize = 16 * 1024, Bytes 64..=MIB;
        "bytes of a request target";
        "414"
    "body-bytes" body_bytes: Option<u64> = None, Bytes 0..=u64::MAX;
        "bytes of a request's body; none is without end";
        "413"
    "connections" connections: Option<usize> = None, Number 1..=10_000_000;
        "clients' connections at once; none is what the file limit allows, less a reserve";
        "the longest-idle connections are closed; if none is idle, 503 where plain HTTP is spoken, and the new connection is closed and counted"
    "streams" streams: u32 = 128, Number 1..=65_536;
        "requests at once on one HTTP/2 connection";
        "a further one is refused (REFUSED_STREAM)"
    "head-time" head_time: Duration = Duration::from_secs(10), Time 10..=HOUR;
        "for a request's head, a TLS handshake, or a connection's first byte";
        "408 if a head has begun; the connection is closed"
    "idle-time" idle_time: Duration = Duration::from_secs(60), Time 10..=24 * HOUR;
        "how long a client's connection may stay without a request";
        "it is closed"
    "stall-time" stall_time: Duration = Duration::from_secs(60), Time 10..=24 * HOUR;
        "how long a body may stand still, either way";
        "408, or 504 if the backend is to blame; if the answer has begun, it is cut"
    "buffer-bytes" buffer_bytes: usize = 64 * 1024, Bytes 4 * KIB..=16 * MIB;
        "what is kept of a body in each direction while its reader is slow";
        "its sender has to wait"
    "connect-time" connect_time: Duration = Duration::from_secs(5), Time 10..=HOUR;
        "for a connection to an endpoint, TLS included";
        "another endpoint is tried, else 503"
    "backend-head-time" backend_head_time: Option<Duration> = None, Time 10..=24 * HOUR;
        "for the head of a response, once the whole request has been sent; none is without end";
        "another endpoint is tried if the route allows retries, else 504"
    "backend-idle-time" backend_idle_time: Duration = Duration::from_secs(30), Time 10..=24 * HOUR;
        "how long a connection to an endpoint is kept without a request";
        "it is closed"
    "backend-idle-connections" backend_idle_connections: usize = 256, Number 0..=1_000_000;
        "connections kept so per endpoint and worker";
        "a further one is closed after its request"
    "backend-streams" backend_streams: u32 = 100, Number 1..=65_536;
        "requests at once on one HTTP/2 connection to an endpoint";
        "a further connection is made"
    "replay-bytes" replay_bytes: usize = 64 * 1024, Bytes 0..=16 * MIB;
        "bytes of a request's body that are kept so that it can be sent again";
        "the request is not tried again"
    "mirror-bytes" mirror_bytes: usize = 256 * 1024, Bytes 4 * KIB..=64 * MIB;
        "bytes of a request's body that a mirror may lag behind before its copy is given up";
        "the copy is given up, and counted"
    "stream-idle-time" stream_idle_time: Option<Duration> = None, Time SECOND..=7 * 24 * HOUR;
        "how long a TCP, TLS or WebSocket stream may be silent both ways; none is without end";
        "it is closed"
    "udp-idle-time" udp_idle_time: Duration = Duration::from_secs(60), Time 10..=24 * HOUR;
        "how long a UDP session lives without a datagram";
        "the next datagram begins a new one"
    "udp-sessions" udp_sessions: usize = 4096, Number 1..=1_000_000;
        "UDP sessions at once, per worker and port";
        "datagrams of further clients are dropped, and counted"
    "http2-resets" http2_resets: u32 = 200, Number 1..=1_000_000;
        "streams that a client may reset on one connection beyond those that it lets end";
        "the connection ends (ENHANCE_YOUR_CALM)"
    "http2-control-frames" http2_control_frames: u32 = 1000, Number 10..=10_000_000;
        "PING, SETTINGS, PRIORITY, WINDOW_UPDATE and empty frames that a client may send within ten seconds beyond those that its requests account for";
        "the connection ends (ENHANCE_YOUR_CALM)"
}

impl Limits {
    /// Every limit, in the order in which they are shown.
    pub fn all() -> impl Iterator<Item = &'static Limit> {
        TABLE.iter()
    }

    /// Sets one by name: a size such as `64KiB`, a number, a time such as `10s` or `500ms`, or `none` for those that may be without end. An
    /// error says what was found and what would be right.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let limit = TABLE
            .iter()
            .find(|limit| limit.name == name)
            .ok_or_else(|| unknown(name))?;
        let invalid = || {
            format!(
                "limit `{name}` can't be `{value}`: write {}",
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
    /// Those of requests, as the codec takes them.
    pub(crate) fn for_requests(&self) -> http1::Limits {
        http1::Limits {
            target_bytes: self.uri_bytes,
            field_bytes: self.header_bytes,
            fields: self.headers,
            body_bytes: self.body_bytes,
            ..http1::Limits::default()
        }
    }

    /// Those of responses.
    pub(crate) fn for_responses(&self) -> http1::Limits {
        http1::Limits {
            body_bytes: None,
            ..self.for_requests()
        }
    }
}

impl Limit {
    /// Its default, as it is written.
    pub fn default_text(&self) -> String {
        match (self.get)(&Limits::default()) {
            None => "none".to_owned(),
            Some(amount) => self.unit.format(amount),
        }
    }

    /// Whether it may be without end.
    fn is_optional(&self) -> bool {
        (self.set)(&mut Limits::default(), None)
    }

    /// What may be written.
    pub fn allowed_values(&self) -> String {
        let (least, most) = self.range;
        let unit = self.unit;
        let mut text = match most {
            u64::MAX => format!("{} from {}", unit.expected(), unit.format(least)),
            most => format!(
                "{} from {} to {}",
                unit.expected(),
                unit.format(least),
                unit.format(most)
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
    let meant = closest(name, names.iter().copied())
        .map(|meant| format!("did you mean `{meant}`? "))
        .unwrap_or_default();
    let names = names.join(", ");
    format!("there is no limit `{name}`; {meant}they are: {names}")
}
