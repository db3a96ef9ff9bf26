//! Answers that are made here: short, with a reason that a program can read. A gRPC call gets them in gRPC's own way.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderMap;
use pointsman_binding::bound::{DirectResponse, Fault};
use pointsman_routing::filters::headers::Edit;

use super::client::{Client, Head};
use super::lines::Lines;
use super::sink::SinkError;
use crate::http1::{self, Framing};
use crate::worker::Worker;

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: u16,
    /// One word, in `x-pointsman-reason`, metrics and logs; none for what a rule asks for.
    pub(crate) reason: Option<&'static str>,
    /// For people.
    message: Cow<'static, str>,
    /// The body, where it is not the message.
    body: Option<Arc<[u8]>>,
    /// The limit that was gone beyond, if it was one.
    limit: Option<&'static str>,
    /// Header lines beyond that.
    lines: Vec<(Cow<'static, str>, String)>,
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
            reason: Some(reason),
            message: message.into(),
            body: None,
            limit: None,
            lines: Vec::new(),
        }
    }

    /// What a rule asks for: a redirect, an answer to a preflight.
    pub(crate) fn asked_for(status: u16, lines: Vec<(Cow<'static, str>, String)>) -> Self {
        Answer {
            status,
            reason: None,
            message: Cow::Borrowed(""),
            body: None,
            limit: None,
            lines,
        }
    }

    /// What a rule answers itself.
    pub(crate) fn direct(
        direct: &DirectResponse,
        mut lines: Vec<(Cow<'static, str>, String)>,
    ) -> Self {
        if !direct.body.is_empty() {
            let line = (
                Cow::Borrowed("content-type"),
                direct.content_type.to_string(),
            );
            lines.push(line);
        }
        Answer {
            body: Some(direct.body.clone()),
            ..Answer::asked_for(direct.status, lines)
        }
    }

    /// Nobody listens for this host here.
    pub(crate) fn no_listener() -> Self {
        Answer::new(404, "NoListener", "no listener serves this host")
    }

    /// No rule takes it.
    pub(crate) fn no_route() -> Self {
        Answer::new(404, "NoRoute", "no rule takes this request")
    }

    /// The connection was made for another host.
    pub(crate) fn misdirected() -> Self {
        let message = "this connection was made for another host";
        Answer::new(421, "Misdirected", message)
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
        let Some(reason) = self.reason else { return };
        worker.metrics.answered(reason);
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

    /// Changes its header lines, as a rule's filters say.
    pub(crate) fn edit(&mut self, edits: &[Edit]) {
        for edit in edits {
            match edit {
                Edit::Set(name, value) => {
                    self.lines.retain(|(other, _)| **other != **name);
                    self.lines
                        .push((Cow::Owned(name.to_string()), value.to_string()));
                }
                Edit::Add(name, value) => self
                    .lines
                    .push((Cow::Owned(name.to_string()), value.to_string())),
                Edit::Remove(name) => self.lines.retain(|(other, _)| **other != **name),
            }
        }
    }

    /// gRPC's own status for it.
    pub(crate) fn grpc_status(&self) -> u16 {
        match self.status {
            // UNIMPLEMENTED
            404 => 12,
            // DEADLINE_EXCEEDED
            504 => 4,
            // INTERNAL: what is wrong with the request itself
            400 => 13,
            // RESOURCE_EXHAUSTED
            413 | 414 | 431 => 8,
            // UNAVAILABLE
            _ => 14,
        }
    }

    /// Gives the answer. `grpc` is whether the request was a gRPC call. Returns how many bytes its body has.
    pub(crate) async fn give(
        &self,
        client: &mut Client<'_>,
        grpc: bool,
        date: &[u8],
    ) -> Result<u64, SinkError> {
        let mut lines = Lines::default();
        for (name, value) in &self.lines {
            lines.add(name.as_bytes(), value.as_bytes());
        }
        if let Some(reason) = self.reason {
            lines.add(b"x-pointsman-reason", reason.as_bytes());
        }
        lines.add(b"date", date);
        if grpc && self.reason.is_some() {
            self.give_grpc(client, lines).await?;
            return Ok(0);
        }
        let body = match &self.body {
            Some(body) => Cow::Borrowed(&**body),
            None if self.message.is_empty() => Cow::Borrowed(&[][..]),
            None => Cow::Owned(format!("{}\n", self.message).into_bytes()),
        };
        if self.body.is_none() && !body.is_empty() {
            lines.add(b"content-type", b"text/plain; charset=utf-8");
        }
        let framing = match self.status {
            204 | 304 => Framing::None,
            _ => Framing::Length(body.len() as u64),
        };
        let head = Head {
            status: self.status,
            reason: None,
            lines: &lines,
            framing,
            content_length: Some(body.len() as u64).filter(|_| framing != Framing::None),
        };
        let mut sent = 0;
        if let Some(mut sink) = client.begin(&head)? {
            sent = body.len() as u64;
            sink.bytes(&body).await?;
            sink.finish(None).await?;
        }
        client.flush().await?;
        Ok(sent)
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
            sink.finish(None::<HeaderMap>).await?;
        }
        drop(sink);
        client.flush().await
    }
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
