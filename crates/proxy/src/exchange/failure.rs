//! Why a try came to nothing, and what the client is told if it was the last one.

use std::io;

use super::answer::Answer;
use super::backend::{BackendError, BeginError};
use super::source::SourceError;
use crate::upstream::SelectedEndpoint;
use crate::upstream::connect::ConnectError;

/// Why a try came to nothing.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing of the request has left: nobody has seen it.
    Unsent(Answer),
    /// The connection ended without an answer. It had carried a request before, or not.
    Unanswered { reused: bool },
    /// What came is no response.
    Broken(Answer),
    /// A time limit was exceeded.
    TimedOut(Timeout),
    /// The response has a status that is tried again.
    Status,
    /// It is answered so, and not tried again: the client's request is at fault, or too much of it is gone.
    Client(Answer),
    /// The client is gone, or the response broke off after it had begun.
    Cut,
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
    fn answer(self) -> Answer {
        let (reason, message) = match self {
            Timeout::Request => ("RequestTimeout", "the request took too long"),
            Timeout::Backend => ("BackendTimeout", "the backend took too long"),
            Timeout::Head => {
                let message = "the backend took too long to begin its response";
                let answer = Answer::new(504, "BackendHeadTimeout", message);
                return answer.beyond("backend-head-time");
            }
            Timeout::Host => ("HostUnreachable", "the backend's host no longer responds"),
        };
        Answer::new(504, reason, message)
    }
}

impl Failure {
    /// A response that is none.
    pub(crate) fn broken(reason: &'static str, message: String) -> Self {
        Failure::Broken(Answer::new(502, reason, message))
    }

    /// An exceeded time limit; counts the endpoint as failed.
    pub(crate) fn timed_out(pick: &mut SelectedEndpoint, timeout: Timeout) -> Self {
        pick.record_failure();
        pick.upstream().series.timeouts.increment();
        Failure::TimedOut(timeout)
    }

    /// What the client is told.
    pub(crate) fn answer(self) -> Answer {
        match self {
            Failure::Unsent(answer) | Failure::Broken(answer) | Failure::Client(answer) => answer,
            Failure::Unanswered { .. } => {
                let message = "the backend ended the connection without an answer";
                Answer::new(502, "Unanswered", message)
            }
            Failure::TimedOut(timeout) => timeout.answer(),
            Failure::Status => Answer::new(502, "Broken", "the response can't be had again"),
            // Nobody hears it; it is what the log says, as others' logs do.
            Failure::Cut => Answer::new(499, "ClientGone", "the client is gone"),
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
            ConnectError::Fault(fault) => (fault.status, fault.reason.as_str()),
        };
        Failure::Unsent(Answer::new(status, reason, error.to_string()))
    }
}

impl From<BeginError> for Failure {
    fn from(error: BeginError) -> Self {
        let message = error.to_string();
        match error {
            BeginError::Write(_) => Failure::Client(Answer::new(400, "BadHead", message)),
            BeginError::Http2(_) => Failure::Unsent(Answer::new(503, "ConnectionLost", message)),
            BeginError::NoWebSocket => Failure::broken("NoWebSocket", message),
        }
    }
}

/// What is wrong with a request whose body did not come to its end.
pub(crate) fn client_fault(error: SourceError) -> Failure {
    match error {
        SourceError::Io(_) | SourceError::Http2(_) => Failure::Cut,
        SourceError::Fault(error) => Failure::Client(Answer::refused(error)),
    }
}

/// What is wrong with a backend that gave no response.
pub(crate) fn broken(error: BackendError, pick: &mut SelectedEndpoint, reused: bool) -> Failure {
    tracing::debug!(endpoint = %pick.address, %error, reused, "no response");
    let io = match &error {
        BackendError::Io(error) => Some(error),
        BackendError::Http2(error) => error.get_io(),
        _ => None,
    };
    if io.is_some_and(is_host_gone) {
        return Failure::timed_out(pick, Timeout::Host);
    }
    // An endpoint that closes a connection which has waited has not failed.
    let waited = match &error {
        BackendError::Fault(_) => false,
        BackendError::Refused(_) => true,
        BackendError::Http2(error) => reused && error.is_io(),
        _ => reused,
    };
    if !waited {
        pick.record_failure();
    }
    match error {
        BackendError::Unanswered | BackendError::Io(_) => Failure::Unanswered { reused },
        BackendError::Http2(error) if error.is_io() => Failure::Unanswered { reused },
        BackendError::Http2(error) => Failure::broken("StreamReset", error.to_string()),
        BackendError::Refused(error) => {
            Failure::Unsent(Answer::new(503, "StreamRefused", error.to_string()))
        }
        BackendError::Fault(error) => Failure::Broken(Answer::refused(error)),
    }
}

/// Whether the kernel gave up on the connection because its probes and retransmissions went unanswered. After an ICMP error or a failed neighbour
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
