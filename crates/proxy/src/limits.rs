//! What is too much: every limit of the data plane, by name.

use std::time::Duration;

use crate::http1;

/// Every limit. Each has a name, a default and a place in `docs/limits.md`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// `header-bytes`: bytes of a head's fields, either side.
    pub header_bytes: usize,
    /// `headers`: fields of a head, either side.
    pub headers: usize,
    /// `uri-bytes`: bytes of a request target.
    pub uri_bytes: usize,
    /// `body-bytes`: bytes of a request's body; none is without end.
    pub body_bytes: Option<u64>,
    /// `connections`: clients' connections at once; none is what the file limit allows, less a reserve.
    pub connections: Option<usize>,
    /// `streams`: requests at once on one HTTP/2 connection.
    pub streams: u32,
    /// `head-time`: for a request's head, a TLS handshake, or a connection's first byte.
    pub head_time: Duration,
    /// `idle-time`: how long a client's connection may stay without a request.
    pub idle_time: Duration,
    /// `stall-time`: how long a body may stand still, either way.
    pub stall_time: Duration,
    /// `buffer-bytes`: what is kept of a body in each direction while its reader is slow.
    pub buffer_bytes: usize,
    /// `connect-time`: for a connection to an endpoint, TLS included.
    pub connect_time: Duration,
    /// `backend-idle-time`: how long a connection to an endpoint is kept without a request.
    pub backend_idle_time: Duration,
    /// `backend-idle-connections`: connections kept so per endpoint and worker.
    pub backend_idle_connections: usize,
    /// `backend-streams`: requests at once on one HTTP/2 connection to an endpoint.
    pub backend_streams: u32,
    /// `replay-bytes`: bytes of a request's body that are kept so that it can be sent again.
    pub replay_bytes: usize,
    /// `mirror-bytes`: bytes of a request's body that a mirror may lag behind before its copy is given up.
    pub mirror_bytes: usize,
    /// `stream-idle-time`: how long a TCP, TLS or WebSocket stream may be silent both ways; none is without end.
    pub stream_idle_time: Option<Duration>,
    /// `udp-idle-time`: how long a UDP session lives without a datagram.
    pub udp_idle_time: Duration,
    /// `udp-sessions`: UDP sessions at once, per worker and port.
    pub udp_sessions: usize,
    /// `http2-resets`: streams that a client may reset on one connection beyond those that it lets end, before the connection ends.
    pub http2_resets: u32,
    /// `http2-control-frames`: PING, SETTINGS, PRIORITY, WINDOW_UPDATE and empty frames that a client may send within ten seconds beyond those that its requests account for.
    pub http2_control_frames: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            header_bytes: 64 * 1024,
            headers: 100,
            uri_bytes: 16 * 1024,
            body_bytes: None,
            connections: None,
            streams: 128,
            head_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(60),
            stall_time: Duration::from_secs(60),
            buffer_bytes: 64 * 1024,
            connect_time: Duration::from_secs(5),
            backend_idle_time: Duration::from_secs(30),
            backend_idle_connections: 256,
            backend_streams: 100,
            replay_bytes: 64 * 1024,
            mirror_bytes: 256 * 1024,
            stream_idle_time: None,
            udp_idle_time: Duration::from_secs(60),
            udp_sessions: 4096,
            http2_resets: 200,
            http2_control_frames: 1000,
        }
    }
}

impl Limits {
    /// Those of requests, as the codec takes them.
    pub(crate) fn of_requests(&self) -> http1::Limits {
        http1::Limits {
            target_bytes: self.uri_bytes,
            field_bytes: self.header_bytes,
            fields: self.headers,
            body_bytes: self.body_bytes,
            ..http1::Limits::default()
        }
    }

    /// Those of responses.
    pub(crate) fn of_responses(&self) -> http1::Limits {
        http1::Limits {
            body_bytes: None,
            ..self.of_requests()
        }
    }
}
