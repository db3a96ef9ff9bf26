//! Responses that are made here: errors, short and with a reason that a program can read, which a gRPC call gets in gRPC's own way; and
//! the replies of filters.

use std::borrow::Cow;
use std::net::SocketAddr;

use pointsman_binding::bound::Fault;
use pointsman_routing::action::{Reply, closed, grpc_status, no_listener, no_route};

use super::client::{Client, Head};
use super::lines::Lines;
use super::sink::SinkError;
use crate::http1::{self, Framing};
use crate::worker::Worker;

/// An error, as a client is told of it.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: u16,
    /// One word, in `x-pointsman-reason`, metrics and logs.
    pub(crate) reason: &'static str,
    /// For people.
    message: Cow<'static, str>,
    /// The limit that was gone beyond, if it was one.
    limit: Option<&'static str>,
}

impl Answer {
    /// An answer with a reason.
    pub(crate) fn new(
        status: u16,
        reason: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Answer {
            status,
            reason,
            message: message.into(),
            limit: None,
        }
    }

    /// Nobody listens for this host here.
    pub(crate) fn no_listener() -> Self {
        Answer::fault(no_listener())
    }

    /// Creates the answer of a listener that can't serve.
    pub(crate) fn closed() -> Self {
        Answer::fault(closed())
    }

    /// No rule takes it.
    pub(crate) fn no_route() -> Self {
        Answer::fault(no_route())
    }

    /// A message that can't be understood.
    pub(crate) fn refused(error: http1::Error) -> Self {
        Answer {
            limit: error.fault().limit(),
            ..Answer::new(error.status(), error.reason(), error.to_string())
        }
    }

    /// It is given because of a limit.
    pub(crate) fn beyond(self, limit: &'static str) -> Self {
        Answer {
            limit: Some(limit),
            ..self
        }
    }

    /// Counts it, and names the limit in the log.
    pub(crate) fn count(&self, worker: &Worker, client: SocketAddr) {
        let reason = self.reason;
        worker.metrics.count_local_reply(reason);
        tracing::debug!(%client, reason, "answered: {}", self.message);
        if let Some(limit) = self.limit
            && let Some(count) = worker.overload.due(limit)
        {
            tracing::info!(limit, %client, count, "{}", self.message);
        }
    }

    /// A rule or a backend that can't be served.
    pub(crate) fn fault(fault: &Fault) -> Self {
        Answer::new(fault.status, fault.reason.as_str(), fault.message.clone())
    }

    /// gRPC's own status for it.
    pub(crate) fn grpc_status(&self) -> u16 {
        grpc_status(self.status)
    }

    /// Gives the answer. `grpc` is whether the request was a gRPC call. Returns how many bytes its body has.
    pub(crate) async fn give(
        &self,
        client: &mut Client<'_>,
        grpc: bool,
        date: &[u8],
    ) -> Result<u64, SinkError> {
        let mut lines = Lines::default();
        lines.add(b"x-pointsman-reason", self.reason.as_bytes());
        lines.add(b"date", date);
        if grpc {
            self.give_grpc(client, lines).await?;
            return Ok(0);
        }
        let body = match self.message.is_empty() {
            true => String::new(),
            false => format!("{}\n", self.message),
        };
        if !body.is_empty() {
            lines.add(b"content-type", b"text/plain; charset=utf-8");
        }
        send(client, self.status, &lines, body.as_bytes()).await
    }

    /// gRPC over HTTP/2, "Trailers-Only": the status stands in the head, and there is no body.
    async fn give_grpc(
        &self,
        client: &mut Client<'_>,
        mut lines: Lines<'_>,
    ) -> Result<(), SinkError> {
        let status = self.grpc_status().to_string();
        let message = percent_encoded(&self.message);
        lines.add(b"content-type", b"application/grpc");
        lines.add(b"grpc-status", status.as_bytes());
        lines.add(b"grpc-message", message.as_bytes());
        let head = Head {
            status: 200,
            reason: None,
            lines: &lines,
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

/// Sends a reply that a filter made. Returns how many bytes its body has.
pub(crate) async fn give_reply(
    reply: Reply<'_>,
    client: &mut Client<'_>,
    date: &[u8],
) -> Result<u64, SinkError> {
    let mut lines = Lines::default();
    for field in &reply.headers {
        lines.add(field.name.as_bytes(), field.value.as_bytes());
    }
    lines.add(b"date", date);
    send(client, reply.status, &lines, reply.body).await
}

/// Sends a whole response. Returns how many bytes of the body went.
async fn send(
    client: &mut Client<'_>,
    status: u16,
    lines: &Lines<'_>,
    body: &[u8],
) -> Result<u64, SinkError> {
    let framing = match status {
        204 | 304 => Framing::None,
        _ => Framing::Length(body.len() as u64),
    };
    let head = Head {
        status,
        reason: None,
        lines,
        framing,
        content_length: Some(body.len() as u64).filter(|_| framing != Framing::None),
    };
    let mut sent = 0;
    if let Some(mut sink) = client.begin(&head)? {
        sent = body.len() as u64;
        sink.bytes(body).await?;
        sink.finish(None).await?;
    }
    client.flush().await?;
    Ok(sent)
}

/// As `grpc-message` has it: printable ASCII but `%` stays, the rest is written as `%XX`.
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
