//! Failures of attempts, and the replies sent to the client if no attempt is left.

use std::borrow::Cow;
use std::io;

use super::backend::{ReceiveError, SendError};
use super::local_reply::LocalReply;
use super::source::SourceError;
use crate::limits::limit_name;
use crate::upstream::SelectedEndpoint;
use crate::upstream::connect::ConnectError;

/// A failed attempt.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing of the request was sent, so a retry is always safe.
    Unsent(LocalReply),
    /// The connection was closed without a response.
    NoResponse { reused: bool },
    /// The response is malformed.
    BadResponse(LocalReply),
    /// A time limit was exceeded.
    TimedOut(Timeout),
    /// The response has a status that the rule retries.
    RetryableStatus,
    /// The request is at fault or can't be sent again. The reply is final.
    Client(LocalReply),
    /// The client has disconnected, or the response failed after it had started.
    Aborted,
}

/// The time limit that an attempt exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timeout {
    /// The route's timeout for the whole request.
    Request,
    /// The route's timeout for one attempt.
    Backend,
    /// `backend-head-time`.
    Head,
    /// The kernel's: the endpoint's host no longer answers TCP keepalive probes or acknowledges data.
    Host,
}

impl Timeout {
    fn local_reply(self) -> LocalReply {
        let (reason, message) = match self {
            Timeout::Request => ("RequestTimeout", "the request took too long"),
            Timeout::Backend => ("BackendTimeout", "the backend took too long"),
            Timeout::Head => {
                let message = "the backend took too long to begin its response";
                let reply = LocalReply::new(504, "BackendHeadTimeout", message);
                return reply.with_limit(limit_name::backend_head_time);
            }
            Timeout::Host => ("HostUnreachable", "the backend's host no longer responds"),
        };
        LocalReply::new(504, reason, message)
    }
}

impl Failure {
    /// Creates the failure of a malformed response.
    pub(crate) fn bad_response(reason: &'static str, message: String) -> Self {
        Failure::BadResponse(LocalReply::new(502, reason, message))
    }

    /// Creates the failure of an exceeded time limit and records it for the endpoint.
    pub(crate) fn timed_out(endpoint: &mut SelectedEndpoint, timeout: Timeout) -> Self {
        endpoint.record_failure();
        endpoint.upstream().series.timeouts.increment();
        Failure::TimedOut(timeout)
    }

    /// Returns the reply for the client.
    pub(crate) fn local_reply(self) -> LocalReply {
        match self {
            Failure::Unsent(reply) | Failure::BadResponse(reply) | Failure::Client(reply) => reply,
            Failure::NoResponse { .. } => {
                let message = "the backend closed the connection without a response";
                LocalReply::new(502, "Unanswered", message)
            }
            Failure::TimedOut(timeout) => timeout.local_reply(),
            Failure::RetryableStatus => {
                LocalReply::new(502, "Broken", "the request can't be retried")
            }
            // Only for the access log, never sent. 499 is nginx's code.
            Failure::Aborted => LocalReply::new(499, "ClientGone", "the client has disconnected"),
        }
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let (status, reason) = match &error {
            ConnectError::Io(_) => (503, "ConnectFailed"),
            ConnectError::Timeout => (503, "ConnectTimeout"),
            ConnectError::Tls(_) => (502, "TlsFailed"),
            ConnectError::Protocol => (502, "ProtocolMismatch"),
            ConnectError::Fault(fault) => return Failure::Unsent(LocalReply::from_fault(fault)),
        };
        // The error may name the endpoint, or what is wrong with its certificate.
        let message = match &error {
            ConnectError::Io(_) => "can't connect to the backend".into(),
            ConnectError::Tls(_) => "the TLS handshake with the backend failed".into(),
            _ => Cow::Owned(error.to_string()),
        };
        Failure::Unsent(LocalReply::new(status, reason, message))
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        let message = error.to_string();
        match error {
            SendError::Write(_) => Failure::Client(LocalReply::new(400, "BadHead", message)),
            SendError::Http2(_) => Failure::Unsent(LocalReply::new(503, "ConnectionLost", message)),
            SendError::NoWebSocket => Failure::bad_response("NoWebSocket", message),
        }
    }
}

/// Returns the failure of a request whose body was not received completely.
pub(crate) fn upload_failure(error: SourceError) -> Failure {
    match error {
        SourceError::Io(_) | SourceError::Http2(_) => Failure::Aborted,
        SourceError::Fault(error) => Failure::Client(LocalReply::from_http1(error)),
    }
}

/// Returns the failure of an attempt without a response, and records it for the endpoint.
pub(crate) fn response_failure(
    error: ReceiveError,
    endpoint: &mut SelectedEndpoint,
    reused: bool,
) -> Failure {
    tracing::debug!(endpoint = %endpoint.address, %error, reused, "attempt failed");
    let io = match &error {
        ReceiveError::Io(error) => Some(error),
        ReceiveError::Http2(error) => error.get_io(),
        _ => None,
    };
    if io.is_some_and(is_host_gone) {
        return Failure::timed_out(endpoint, Timeout::Host);
    }
    // An endpoint may close an idle connection at any time: that is not a failure.
    let is_failure = match &error {
        ReceiveError::Fault(_) => true,
        ReceiveError::Refused(_) => false,
        ReceiveError::Http2(error) => !(reused && error.is_io()),
        _ => !reused,
    };
    if is_failure {
        endpoint.record_failure();
    }
    match error {
        ReceiveError::Unanswered | ReceiveError::Io(_) => Failure::NoResponse { reused },
        ReceiveError::Http2(error) if error.is_io() => Failure::NoResponse { reused },
        ReceiveError::Http2(error) => Failure::bad_response("StreamReset", error.to_string()),
        ReceiveError::Refused(error) => {
            Failure::Unsent(LocalReply::new(503, "StreamRefused", error.to_string()))
        }
        ReceiveError::Fault(error) => Failure::BadResponse(LocalReply::from_http1(error)),
    }
}

/// Returns whether the kernel gave up on the connection because probes and retransmissions went unanswered. After an ICMP error or a failed neighbour
/// lookup it reports that error in place of a timeout.
fn is_host_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::TimedOut
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
    )
}
