//! The upstream side of an exchange: the connection, the request that is sent on it, and the response that is received.

use std::io;
use std::rc::Rc;
use std::time::Instant;

use super::head::Head;
use super::headers::{Header, Headers};
use super::http2::backend::{Http2Response, Http2Stream};
use super::sink::{Http1Sink, Sink};
use super::source::{Http1Source, Source};
use super::websocket_key;
use crate::http1::{
    self, Encoder, Event, Framing, HeadWriter, MessageFault, ResponseContext, ResponseReader,
    WriteError,
};
use crate::io::buffer::Buffer;
use crate::io::stream::ReadHalf;
use crate::upstream::connect::{self, ConnectError};
use crate::upstream::{SelectedEndpoint, UpstreamProtocol, http1 as up1, http2 as up2};
use crate::worker::Worker;

/// Head of a request as it is sent to the backend.
#[derive(Debug)]
pub(crate) struct UpstreamRequest<'o> {
    pub(crate) method: &'o str,
    /// `http` or `https`: the scheme of the client's connection.
    pub(crate) scheme: &'static str,
    pub(crate) path: &'o str,
    pub(crate) query: Option<&'o str>,
    /// Header fields, including Host.
    pub(crate) headers: Headers<'o>,
    /// Framing of the body as received from the client.
    pub(crate) framing: Framing,
    /// The request opens a WebSocket.
    pub(crate) websocket: bool,
    /// The client accepts trailers.
    pub(crate) accepts_trailers: bool,
    /// Original authority and path of a request received over HTTP/2.
    pub(crate) uri: Option<&'o http::Uri>,
}

/// A connection to an endpoint, or a stream of one.
#[derive(Debug)]
pub(crate) enum UpstreamConnection {
    Http1(Box<up1::Http1Connection>),
    Http2(Http2Stream),
}

/// Failure to send a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// The head is invalid.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The connection accepts no more streams.
    #[error(transparent)]
    Http2(#[from] h2::Error),
    /// The request opens a WebSocket, which the endpoint does not support over HTTP/2.
    #[error("the endpoint does not support WebSockets over HTTP/2")]
    NoWebSocket,
}

/// Failure to receive a response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    /// The connection was closed before the first byte of a response.
    #[error("the connection was closed without a response")]
    Unanswered,
    /// The response is malformed.
    #[error(transparent)]
    Fault(#[from] http1::Error),
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The stream failed.
    #[error(transparent)]
    Http2(h2::Error),
    /// The endpoint reports that it has not processed the request.
    #[error(transparent)]
    Refused(h2::Error),
}

/// A response in progress: interim responses, then the final one.
#[derive(Debug)]
pub(crate) enum UpstreamResponse<'b> {
    Http1(Http1Response<'b>),
    Http2(Box<Http2Response>),
}

/// A response received over HTTP/1.
#[derive(Debug)]
pub(crate) struct Http1Response<'b> {
    reader: &'b mut ReadHalf,
    buffer: &'b mut Buffer,
    responses: &'b mut ResponseReader,
    /// Length of the head at the front of the buffer.
    length: usize,
    /// Expected `sec-websocket-accept`, if the key was generated here.
    accept: Option<String>,
}

impl UpstreamConnection {
    /// Connects to an endpoint or takes a pooled connection.
    pub(crate) async fn open(
        worker: &Rc<Worker>,
        endpoint: &SelectedEndpoint,
        protocol: UpstreamProtocol,
        new_connection: bool,
    ) -> Result<UpstreamConnection, ConnectError> {
        match protocol {
            UpstreamProtocol::Http2 => Ok(UpstreamConnection::Http2(Http2Stream::new(
                up2::acquire_stream(worker, endpoint).await?,
            ))),
            UpstreamProtocol::Http1 if new_connection => Ok(UpstreamConnection::Http1(Box::new(
                Box::pin(up1::Http1Connection::connect(worker, endpoint)).await?,
            ))),
            UpstreamProtocol::Http1 => Ok(UpstreamConnection::Http1(Box::new(
                up1::Http1Connection::acquire(worker, endpoint).await?,
            ))),
        }
    }

    /// Returns whether the connection has served a request before.
    pub(crate) fn is_reused(&self) -> bool {
        match self {
            UpstreamConnection::Http1(connection) => connection.reused,
            UpstreamConnection::Http2(stream) => stream.is_reused(),
        }
    }

    /// Starts the request. Over HTTP/1 the head is buffered and sent together with the body's first bytes.
    pub(crate) fn begin<'b>(
        &'b mut self,
        worker: &Worker,
        request: &UpstreamRequest<'_>,
    ) -> Result<(Sink<'b>, UpstreamResponse<'b>), SendError> {
        match self {
            UpstreamConnection::Http2(stream) => stream.begin(request, worker.limits().headers),
            UpstreamConnection::Http1(connection) => {
                let connection = &mut **connection;
                let encoder = Encoder::request(request.framing);
                // RFC 8441 §5: HTTP/2 clients send no key.
                let key = (request.websocket && request.headers.get("sec-websocket-key").is_none())
                    .then(|| websocket_key::generate(worker));
                let persistent = &mut *connection.persistent;
                write_head(&mut connection.out, request, &encoder, key.as_deref())?;
                persistent.responses.expect(ResponseContext {
                    head: request.method == "HEAD",
                    websocket: request.websocket,
                });
                Ok((
                    Sink::Http1(Http1Sink::new(
                        &mut persistent.writer,
                        &mut connection.out,
                        encoder,
                    )),
                    UpstreamResponse::Http1(Http1Response {
                        reader: &mut persistent.reader,
                        buffer: &mut connection.buffer,
                        responses: &mut persistent.responses,
                        length: 0,
                        accept: key.map(|key| websocket_key::accept(key.as_bytes())),
                    }),
                ))
            }
        }
    }

    /// Returns the connection to the pool after an exchange that was completed at `now`, unless either side has to close it.
    pub(crate) fn keep(self, worker: &Worker, endpoint: &SelectedEndpoint, now: Instant) {
        match self {
            UpstreamConnection::Http1(connection) => connection.release(worker, endpoint, now),
            // The connection is shared by concurrent streams and stays open.
            UpstreamConnection::Http2(_) => {}
        }
    }
}

fn write_head(
    out: &mut Vec<u8>,
    request: &UpstreamRequest<'_>,
    encoder: &Encoder,
    key: Option<&str>,
) -> Result<(), WriteError> {
    out.clear();
    let mut writer = HeadWriter::request_with_query(
        out,
        request.method.as_bytes(),
        request.path.as_bytes(),
        request.query.map(str::as_bytes),
    )?;
    request.headers.write(&mut writer)?;
    encoder.announce(&mut writer);
    if request.websocket {
        writer.field(b"connection", b"upgrade")?;
        writer.field(b"upgrade", b"websocket")?;
        if request.headers.get("sec-websocket-version").is_none() {
            writer.field(b"sec-websocket-version", b"13")?;
        }
        if let Some(key) = key {
            writer.field(b"sec-websocket-key", key.as_bytes())?;
        }
    }
    writer.finish();
    Ok(())
}

impl<'b> UpstreamResponse<'b> {
    /// Waits for the next head. Returns true if it is the final response's, false if it is an interim one.
    pub(crate) async fn next_head(&mut self) -> Result<bool, ReceiveError> {
        match self {
            UpstreamResponse::Http1(response) => response.next_head().await,
            UpstreamResponse::Http2(response) => response.next_head().await,
        }
    }

    /// Returns the status of the head received last.
    pub(crate) fn status(&self) -> u16 {
        match self {
            UpstreamResponse::Http1(response) => response.responses.head().status(),
            UpstreamResponse::Http2(response) => response.status(),
        }
    }

    /// Returns the head received last.
    pub(crate) fn head(&self) -> Head<'_> {
        match self {
            UpstreamResponse::Http1(response) => {
                let view = response.responses.head().view(response.buffer.filled());
                Head {
                    status: view.status(),
                    reason: Some(view.reason()).filter(|reason| !reason.is_empty()),
                    headers: Headers::new(view.fields().forwarded().map(Header::parsed)),
                    framing: response.responses.head().framing(),
                    content_length: response.responses.head().content_length(),
                }
            }
            UpstreamResponse::Http2(response) => response.head(),
        }
    }

    /// Returns whether the endpoint closes the connection after this response and ignores the rest of the request.
    pub(crate) fn is_last(&self) -> bool {
        match self {
            UpstreamResponse::Http1(response) => !response.responses.head().keep_alive(),
            UpstreamResponse::Http2(_) => false,
        }
    }

    /// Returns whether the response upgrades the connection to a WebSocket.
    pub(crate) fn is_websocket_upgrade(&self) -> bool {
        match self {
            UpstreamResponse::Http1(response) => response.responses.head().is_websocket_upgrade(),
            UpstreamResponse::Http2(response) => response.is_websocket_upgrade(),
        }
    }

    /// Returns the bytes received over a WebSocket.
    pub(crate) fn websocket_source(&mut self, max_bytes: usize) -> Source<'_> {
        if let UpstreamResponse::Http1(response) = self {
            // A WebSocket's reader may pause for any time.
            let disable_timeout = |tcp: &_| connect::set_user_timeout(tcp, None);
            let _ = response.reader.with_tcp(disable_timeout);
        }
        let mut source = self.body(max_bytes);
        source.switch_to_websocket();
        source
    }

    /// Returns the body of the final response.
    pub(crate) fn body(&mut self, max_bytes: usize) -> Source<'_> {
        match self {
            UpstreamResponse::Http1(response) => {
                response.buffer.consume(response.length);
                response.length = 0;
                let body = response.responses.body();
                let source = Http1Source::new(response.reader, response.buffer, body, max_bytes);
                Source::Http1(source)
            }
            UpstreamResponse::Http2(response) => response.body(),
        }
    }
}

impl Http1Response<'_> {
    /// Checks `Sec-WebSocket-Accept`. RFC 6455 §4.1: the client fails the connection if `Sec-WebSocket-Accept` does not match its key.
    fn check_accept(&self) -> Result<(), http1::Error> {
        let Some(accept) = self
            .accept
            .as_ref()
            .filter(|_| self.responses.head().is_websocket_upgrade())
        else {
            return Ok(());
        };
        let fields = self.responses.head().view(self.buffer.filled()).fields();
        match fields.get("sec-websocket-accept") == Some(accept.as_bytes()) {
            true => Ok(()),
            false => Err(http1::Error::Backend(MessageFault::UnexpectedInterim)),
        }
    }

    async fn next_head(&mut self) -> Result<bool, ReceiveError> {
        self.buffer.consume(self.length);
        self.length = 0;
        let max_bytes = self.responses.max_head_bytes();
        loop {
            let event = self.responses.next(self.buffer.filled())?;
            match event {
                Event::Interim(length) => {
                    self.length = length;
                    return Ok(false);
                }
                Event::Head(length) => {
                    self.length = length;
                    self.check_accept()?;
                    return Ok(true);
                }
                other => self.buffer.consume(other.consumed()),
            }
            if self.buffer.fill(self.reader, max_bytes).await? == 0 {
                let close = self.reader.peer_close();
                self.responses.eof(self.buffer.filled(), close)?;
                return Err(ReceiveError::Unanswered);
            }
        }
    }
}
