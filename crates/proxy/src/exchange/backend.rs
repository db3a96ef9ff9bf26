//! The backend's side of an exchange: where the request goes, and where the response comes from.

use std::io;
use std::rc::Rc;

use super::handshake;
use super::http2::backend::{Http2Backend, Http2Returning};
use super::lines::Lines;
use super::sink::{Outgoing, Sink};
use super::source::{Incoming, Source};
use crate::http1::{
    self, Asked, Encoder, Event, Fault, Framing, HeadWriter, ResponseReader, WriteError,
};
use crate::io::buffer::Buffer;
use crate::io::stream::ReadHalf;
use crate::upstream::connect::{self, ConnectError};
use crate::upstream::{SelectedEndpoint, UpstreamProtocol, http1 as up1, http2 as up2};
use crate::worker::Worker;

/// A request's head, as it goes out.
#[derive(Debug)]
pub(crate) struct Outbound<'o> {
    /// The method.
    pub(crate) method: &'o str,
    /// `http` or `https`, as the client has it.
    pub(crate) scheme: &'static str,
    /// The path.
    pub(crate) path: &'o str,
    /// The query.
    pub(crate) query: Option<&'o str>,
    /// The fields, Host among them.
    pub(crate) lines: Lines<'o>,
    /// How the body is framed where it comes from.
    pub(crate) framing: Framing,
    /// It opens a WebSocket.
    pub(crate) websocket: bool,
    /// The client takes trailers.
    pub(crate) takes_trailers: bool,
    /// Authority and path as they came, if they came by HTTP/2.
    pub(crate) uri: Option<&'o http::Uri>,
}

/// A connection that carries a request.
#[derive(Debug)]
pub(crate) enum Backend {
    /// Over HTTP/1.
    Http1(Box<up1::Http1Connection>),
    /// Over HTTP/2.
    Http2(Http2Backend),
}

/// Why a request has not left.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BeginError {
    /// It can't be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The connection takes no more streams.
    #[error(transparent)]
    Http2(#[from] h2::Error),
    /// It opens a WebSocket, and the endpoint takes none over HTTP/2.
    #[error("the endpoint takes no WebSockets over HTTP/2")]
    NoWebSocket,
}

/// Why no response came.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackendError {
    /// The connection ended before anything came.
    #[error("the connection ended without an answer")]
    Unanswered,
    /// What came is not a response.
    #[error(transparent)]
    Fault(#[from] http1::Error),
    /// The connection broke.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The stream broke.
    #[error(transparent)]
    Http2(h2::Error),
    /// The endpoint says that it has not looked at the request.
    #[error(transparent)]
    Refused(h2::Error),
}

/// What comes back: interim responses, then the response.
#[derive(Debug)]
pub(crate) enum Returning<'b> {
    /// Over HTTP/1.
    Http1(Http1Returning<'b>),
    /// Over HTTP/2.
    Http2(Box<Http2Returning>),
}

/// What comes back over HTTP/1.
#[derive(Debug)]
pub(crate) struct Http1Returning<'b> {
    reader: &'b mut ReadHalf,
    buffer: &'b mut Buffer,
    responses: &'b mut ResponseReader,
    /// Bytes of the head at the front of the buffer.
    length: usize,
    /// What is to be answered to the key that was made here.
    accept: Option<String>,
}

/// A response's head, as it came.
#[derive(Debug)]
pub(crate) struct Came<'b> {
    /// The status.
    pub(crate) status: u16,
    /// The reason phrase.
    pub(crate) reason: Option<&'b [u8]>,
    /// What may be passed on.
    pub(crate) lines: Lines<'b>,
    /// How the body is framed.
    pub(crate) framing: Framing,
    /// The length of the body, also where it does not come.
    pub(crate) content_length: Option<u64>,
}

impl Backend {
    /// A connection to an endpoint.
    pub(crate) async fn open(
        worker: &Rc<Worker>,
        pick: &SelectedEndpoint,
        speech: UpstreamProtocol,
        fresh: bool,
    ) -> Result<Backend, ConnectError> {
        match speech {
            UpstreamProtocol::Http2 => Ok(Backend::Http2(Http2Backend::new(
                up2::acquire_stream(worker, pick).await?,
            ))),
            UpstreamProtocol::Http1 if fresh => Ok(Backend::Http1(Box::new(
                Box::pin(up1::Http1Connection::connect(worker, pick)).await?,
            ))),
            UpstreamProtocol::Http1 => Ok(Backend::Http1(Box::new(
                up1::Http1Connection::acquire(worker, pick).await?,
            ))),
        }
    }

    /// Whether it has carried a request before.
    pub(crate) fn is_reused(&self) -> bool {
        match self {
            Backend::Http1(connection) => connection.reused,
            Backend::Http2(stream) => stream.is_reused(),
        }
    }

    /// Begins the request: its head is written, or waits to be written with what follows.
    pub(crate) fn begin<'b>(
        &'b mut self,
        worker: &Worker,
        request: &Outbound<'_>,
    ) -> Result<(Sink<'b>, Returning<'b>), BeginError> {
        match self {
            Backend::Http2(stream) => stream.begin(request, worker.limits().headers),
            Backend::Http1(connection) => {
                let connection = &mut **connection;
                let encoder = Encoder::request(request.framing);
                // A client that speaks HTTP/2 has sent none.
                let key = (request.websocket && request.lines.get("sec-websocket-key").is_none())
                    .then(|| handshake::key(worker));
                let link = &mut *connection.link;
                write_head(&mut connection.out, request, &encoder, key.as_deref())?;
                link.responses.expect(Asked {
                    head: request.method == "HEAD",
                    websocket: request.websocket,
                });
                Ok((
                    Sink::Http1(Outgoing::new(
                        &mut link.writer,
                        &mut connection.out,
                        encoder,
                    )),
                    Returning::Http1(Http1Returning {
                        reader: &mut link.reader,
                        buffer: &mut connection.buffer,
                        responses: &mut link.responses,
                        length: 0,
                        accept: key.map(|key| handshake::accept(key.as_bytes())),
                    }),
                ))
            }
        }
    }

    /// The exchange is over and all of it was read: the connection may carry another one, if nothing speaks against it.
    pub(crate) fn keep(self, worker: &Worker, pick: &SelectedEndpoint) {
        match self {
            Backend::Http1(connection) => connection.release(worker, pick.upstream()),
            // The connection carries others meanwhile.
            Backend::Http2(_) => {}
        }
    }
}

fn write_head(
    out: &mut Vec<u8>,
    request: &Outbound<'_>,
    encoder: &Encoder,
    key: Option<&str>,
) -> Result<(), WriteError> {
    out.clear();
    let mut writer = HeadWriter::request_for(
        out,
        request.method.as_bytes(),
        request.path.as_bytes(),
        request.query.map(str::as_bytes),
    )?;
    writer.fields(request.lines.pairs())?;
    encoder.announce(&mut writer);
    if request.websocket {
        writer.field(b"connection", b"upgrade")?;
        writer.field(b"upgrade", b"websocket")?;
        if request.lines.get("sec-websocket-version").is_none() {
            writer.field(b"sec-websocket-version", b"13")?;
        }
        if let Some(key) = key {
            writer.field(b"sec-websocket-key", key.as_bytes())?;
        }
    }
    writer.finish();
    Ok(())
}

impl<'b> Returning<'b> {
    /// Waits for the next head. Returns whether it is the response's; otherwise it is an interim one, and another follows.
    pub(crate) async fn next(&mut self) -> Result<bool, BackendError> {
        match self {
            Returning::Http1(returning) => returning.next().await,
            Returning::Http2(returning) => returning.next().await,
        }
    }

    /// The head that came last.
    pub(crate) fn came(&self) -> Came<'_> {
        match self {
            Returning::Http1(returning) => {
                let view = returning.responses.head().view(returning.buffer.filled());
                Came {
                    status: view.status(),
                    reason: Some(view.reason()).filter(|reason| !reason.is_empty()),
                    lines: Lines::new(view.fields().forwarded()),
                    framing: returning.responses.head().framing(),
                    content_length: returning.responses.head().content_length(),
                }
            }
            Returning::Http2(returning) => returning.came(),
        }
    }

    /// Whether the endpoint ends the connection after this response: it takes nothing more of the request.
    pub(crate) fn is_last(&self) -> bool {
        match self {
            Returning::Http1(returning) => !returning.responses.head().keep_alive(),
            Returning::Http2(_) => false,
        }
    }

    /// Whether the connection is a WebSocket from here on.
    pub(crate) fn is_switch(&self) -> bool {
        match self {
            Returning::Http1(returning) => returning.responses.head().is_switch(),
            Returning::Http2(returning) => returning.is_switch(),
        }
    }

    /// What comes over a WebSocket.
    pub(crate) fn stream(&mut self, most: usize) -> Source<'_> {
        if let Returning::Http1(returning) = self {
            // A WebSocket's reader may pause as long as it likes.
            let lifted = |tcp: &_| connect::set_user_timeout(tcp, None);
            let _ = returning.reader.with_tcp(lifted);
        }
        let mut source = self.body(most);
        source.switch();
        source
    }

    /// The body, after the response's head.
    pub(crate) fn body(&mut self, most: usize) -> Source<'_> {
        match self {
            Returning::Http1(returning) => {
                returning.buffer.consume(returning.length);
                returning.length = 0;
                let body = returning.responses.body();
                let incoming = Incoming::new(returning.reader, returning.buffer, body, most);
                Source::Http1(incoming)
            }
            Returning::Http2(returning) => returning.body(),
        }
    }
}

impl Http1Returning<'_> {
    /// RFC 6455 §4.1: an answer to another key is none.
    fn check_accept(&self) -> Result<(), http1::Error> {
        let Some(accept) = self
            .accept
            .as_ref()
            .filter(|_| self.responses.head().is_switch())
        else {
            return Ok(());
        };
        let fields = self.responses.head().view(self.buffer.filled()).fields();
        match fields.get("sec-websocket-accept") == Some(accept.as_bytes()) {
            true => Ok(()),
            false => Err(http1::Error::Backend(Fault::UnexpectedInterim)),
        }
    }

    async fn next(&mut self) -> Result<bool, BackendError> {
        self.buffer.consume(self.length);
        self.length = 0;
        let most = self.responses.most_head_bytes();
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
            if self.buffer.fill(self.reader, most).await? == 0 {
                let close = self.reader.peer_close();
                self.responses.eof(self.buffer.filled(), close)?;
                return Err(BackendError::Unanswered);
            }
        }
    }
}
