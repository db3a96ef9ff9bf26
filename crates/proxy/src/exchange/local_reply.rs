//! Responses that the proxy generates itself: errors with a machine-readable reason, encoded as a gRPC status for gRPC calls, and the replies of filters.

use std::borrow::Cow;
use std::net::SocketAddr;

use pointsman_binding::bound::Fault;
use pointsman_routing::action::{Reply, grpc_status, no_listener, no_route};

use super::head::Head;
use super::headers::Headers;
use super::response_writer::ResponseWriter;
use super::sink::SinkError;
use crate::http1::{self, Framing};
use crate::worker::Worker;

/// An error response.
#[derive(Debug, Clone)]
pub(crate) struct LocalReply {
    pub(crate) status: u16,
    /// Value of `x-pointsman-reason`, also used in metrics and logs.
    pub(crate) reason: &'static str,
    /// Human-readable explanation, sent as the body.
    message: Cow<'static, str>,
    /// Name of the exceeded limit, if there is one.
    limit: Option<&'static str>,
}

impl LocalReply {
    pub(crate) fn new(
        status: u16,
        reason: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        LocalReply {
            status,
            reason,
            message: message.into(),
            limit: None,
        }
    }

    /// Creates the reply for a host that no listener of the port matches.
    pub(crate) fn no_listener() -> Self {
        LocalReply::from_fault(no_listener())
    }

    /// Creates the reply for a request that no rule matches.
    pub(crate) fn no_route() -> Self {
        LocalReply::from_fault(no_route())
    }

    /// Creates the reply for a message that violates HTTP or exceeds a limit.
    pub(crate) fn from_http1(error: http1::Error) -> Self {
        LocalReply {
            limit: error.fault().limit(),
            ..LocalReply::new(error.status(), error.reason(), error.to_string())
        }
    }

    /// Sets the exceeded limit.
    pub(crate) fn with_limit(self, limit: &'static str) -> Self {
        LocalReply {
            limit: Some(limit),
            ..self
        }
    }

    /// Counts the reply and logs the exceeded limit.
    pub(crate) fn count(&self, worker: &Worker, client: SocketAddr) {
        let reason = self.reason;
        worker.metrics.count_local_reply(reason);
        tracing::debug!(%client, reason, "local reply: {}", self.message);
        if let Some(limit) = self.limit
            && let Some(count) = worker.limit_log.due(limit)
        {
            tracing::info!(limit, %client, count, "{}", self.message);
        }
    }

    /// Creates the reply for a rule or backend that can't be served.
    pub(crate) fn from_fault(fault: &Fault) -> Self {
        tracing::debug!("{}: {}", fault.reason, fault.message);
        let message = fault.client_message().to_owned();
        LocalReply::new(fault.status, fault.reason.as_str(), message)
    }

    /// Returns the gRPC status code that corresponds to the HTTP status.
    pub(crate) fn grpc_status(&self) -> u16 {
        grpc_status(self.status)
    }

    /// Sends the reply, as a gRPC status if the request was a gRPC call. Returns the length of the body.
    pub(crate) async fn send(
        &self,
        client: &mut ResponseWriter<'_>,
        grpc: bool,
        date: &[u8],
    ) -> Result<u64, SinkError> {
        let mut headers = Headers::default();
        headers.push_unvalidated(b"x-pointsman-reason", self.reason.as_bytes());
        headers.push_unvalidated(b"date", date);
        if grpc {
            self.send_trailers_only(client, headers).await?;
            return Ok(0);
        }
        let body = match self.message.is_empty() {
            true => String::new(),
            false => format!("{}\n", self.message),
        };
        if !body.is_empty() {
            headers.push_unvalidated(b"content-type", b"text/plain; charset=utf-8");
        }
        send(client, self.status, headers, body.as_bytes()).await
    }

    /// Sends a "Trailers-Only" response (gRPC over HTTP/2): the status is in the head, and there is no body.
    async fn send_trailers_only(
        &self,
        client: &mut ResponseWriter<'_>,
        mut headers: Headers<'_>,
    ) -> Result<(), SinkError> {
        let status = self.grpc_status().to_string();
        let message = percent_encoded(&self.message);
        headers.push_unvalidated(b"content-type", b"application/grpc");
        headers.push_unvalidated(b"grpc-status", status.as_bytes());
        headers.push_unvalidated(b"grpc-message", message.as_bytes());
        let head = Head {
            status: 200,
            reason: None,
            headers,
            framing: Framing::Length(0),
            content_length: None,
        };
        let mut sink = client.begin(&head)?;
        if let Some(sink) = &mut sink {
            sink.finish(None).await?;
        }
        drop(sink);
        client.flush().await
    }
}

/// Sends the reply of a filter. Returns the length of the body.
pub(crate) async fn send_reply(
    reply: Reply<'_>,
    client: &mut ResponseWriter<'_>,
    date: &[u8],
) -> Result<u64, SinkError> {
    let mut headers = Headers::default();
    for field in &reply.headers {
        headers.push_unvalidated(field.name.as_bytes(), field.value.as_bytes());
    }
    headers.push_unvalidated(b"date", date);
    send(client, reply.status, headers, reply.body).await
}

/// Sends a complete response. Returns the number of body bytes sent.
async fn send(
    client: &mut ResponseWriter<'_>,
    status: u16,
    headers: Headers<'_>,
    body: &[u8],
) -> Result<u64, SinkError> {
    let framing = match status {
        204 | 304 => Framing::None,
        _ => Framing::Length(body.len() as u64),
    };
    let head = Head {
        status,
        reason: None,
        headers,
        framing,
        content_length: Some(body.len() as u64).filter(|_| framing != Framing::None),
    };
    let mut sent = 0;
    if let Some(mut sink) = client.begin(&head)? {
        sent = body.len() as u64;
        sink.write(body).await?;
        sink.finish(None).await?;
    }
    client.flush().await?;
    Ok(sent)
}

/// Encodes a `grpc-message`: printable ASCII except `%` is unchanged, other bytes become `%XX`.
fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
