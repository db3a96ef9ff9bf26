//! Writing of responses to clients over either version of HTTP.

use super::head::Head;
use super::headers::Headers;
use super::http2::ResetWatch;
use super::http2::response_writer::Http2ResponseWriter;
use super::request::HttpVersion;
use super::sink::{Http1Sink, Sink, SinkError};
use super::websocket_key;
use crate::http1::{Encoder, Framing, HeadWriter, Version, WriteError};
use crate::io::stream::WriteHalf;

/// Writes the response to one request.
#[derive(Debug)]
pub(crate) enum ResponseWriter<'c> {
    Http1(Http1ResponseWriter<'c>),
    Http2(Http2ResponseWriter<'c>),
}

/// Writes a response over HTTP/1.
#[derive(Debug)]
pub(crate) struct Http1ResponseWriter<'c> {
    writer: &'c mut WriteHalf,
    out: &'c mut Vec<u8>,
    version: HttpVersion,
    /// The request was HEAD.
    head_only: bool,
    /// The connection stays open after the response.
    keep: bool,
    started: bool,
}

impl<'c> Http1ResponseWriter<'c> {
    /// Creates the writer for the response to one request.
    pub(crate) fn new(
        writer: &'c mut WriteHalf,
        out: &'c mut Vec<u8>,
        version: HttpVersion,
        head_only: bool,
        keep: bool,
    ) -> Self {
        Http1ResponseWriter {
            writer,
            out,
            version,
            head_only,
            keep,
            started: false,
        }
    }

    fn begin(&mut self, head: &Head<'_>) -> Result<Option<Sink<'_>>, WriteError> {
        let version = match self.version {
            HttpVersion::Http10 => Version::Http10,
            _ => Version::Http11,
        };
        let bodiless = self.head_only || head.status == 304;
        let encoder = match head.framing {
            _ if bodiless && head.status != 204 => Encoder::bodiless(head.content_length),
            framing => Encoder::response(framing, version),
        };
        self.keep &= !encoder.closes();
        let mut writer = HeadWriter::response(self.out, head.status, head.reason)?;
        head.headers.write(&mut writer)?;
        encoder.announce(&mut writer);
        match (self.keep, self.version) {
            (false, _) => writer.field(b"connection", b"close")?,
            (true, HttpVersion::Http10) => writer.field(b"connection", b"keep-alive")?,
            _ => {}
        }
        writer.finish();
        self.started = true;
        if bodiless {
            return Ok(None);
        }
        Ok(Some(Sink::Http1(Http1Sink::new(
            self.writer,
            self.out,
            encoder,
        ))))
    }

    /// Sends 101 (Switching Protocols).
    fn accept_websocket(&mut self, head: &Head<'_>, key: Option<&[u8]>) -> Result<(), WriteError> {
        let mut writer = HeadWriter::response(self.out, 101, None)?;
        head.headers.write(&mut writer)?;
        writer.field(b"connection", b"upgrade")?;
        writer.field(b"upgrade", b"websocket")?;
        // HTTP/2 backends send no `sec-websocket-accept`.
        if let (None, Some(key)) = (head.headers.get("sec-websocket-accept"), key) {
            writer.field(
                b"sec-websocket-accept",
                websocket_key::accept(key).as_bytes(),
            )?;
        }
        writer.finish();
        self.started = true;
        self.keep = false;
        Ok(())
    }
}

impl<'c> ResponseWriter<'c> {
    /// Returns a watch for a reset by the client; HTTP/1 has none.
    pub(crate) fn reset_watch(&self) -> Option<ResetWatch<'c>> {
        match self {
            ResponseWriter::Http1(_) => None,
            ResponseWriter::Http2(client) => Some(client.reset_watch()),
        }
    }

    /// Returns whether a response has started, so that no other can be sent.
    pub(crate) fn has_started(&self) -> bool {
        match self {
            ResponseWriter::Http1(client) => client.started,
            ResponseWriter::Http2(client) => client.has_started(),
        }
    }

    /// Discards a response of which nothing has been written, so that another can be sent.
    pub(crate) fn retract(&mut self) {
        if let ResponseWriter::Http1(client) = self {
            client.out.clear();
            client.started = false;
        }
    }

    /// Returns whether the client has reset the connection. A half-closed client still waits for the response.
    pub(crate) fn is_disconnected(&self) -> bool {
        match self {
            ResponseWriter::Http1(client) => client.writer.is_reset(),
            // The reset watch detects it.
            ResponseWriter::Http2(_) => false,
        }
    }

    /// Makes this the last response of the connection.
    pub(crate) fn close_after_response(&mut self) {
        match self {
            ResponseWriter::Http1(client) => client.keep = false,
            // Other streams continue.
            ResponseWriter::Http2(_) => {}
        }
    }

    /// Returns whether the connection stays open after the response.
    pub(crate) fn keeps_alive(&self) -> bool {
        match self {
            ResponseWriter::Http1(client) => client.keep,
            ResponseWriter::Http2(_) => false,
        }
    }

    /// Sends 100 (Continue).
    pub(crate) async fn send_continue(&mut self) -> Result<(), SinkError> {
        self.interim(100, &Headers::default()).await
    }

    /// Forwards an interim response. RFC 9110 §15.2: "A server MUST NOT send a 1xx response to an HTTP/1.0 client."
    pub(crate) async fn interim(
        &mut self,
        status: u16,
        headers: &Headers<'_>,
    ) -> Result<(), SinkError> {
        match self {
            ResponseWriter::Http1(client) if client.version == HttpVersion::Http10 => Ok(()),
            ResponseWriter::Http1(client) => {
                let mut writer = HeadWriter::response(client.out, status, None)
                    .map_err(crate::http1::EncodeError::from)?;
                headers
                    .write(&mut writer)
                    .map_err(crate::http1::EncodeError::from)?;
                writer.finish();
                self.flush().await
            }
            ResponseWriter::Http2(client) => client.interim(status, headers),
        }
    }

    /// Starts the response. Returns no sink if the response can't have a body.
    pub(crate) fn begin(&mut self, head: &Head<'_>) -> Result<Option<Sink<'_>>, SinkError> {
        match self {
            ResponseWriter::Http1(client) => client
                .begin(head)
                .map_err(|error| SinkError::Encode(error.into())),
            ResponseWriter::Http2(client) => client.begin(head),
        }
    }

    /// Accepts a WebSocket that was opened with this key.
    pub(crate) fn accept_websocket(
        &mut self,
        head: &Head<'_>,
        key: Option<&[u8]>,
    ) -> Result<(), SinkError> {
        match self {
            ResponseWriter::Http1(client) => client
                .accept_websocket(head, key)
                .map_err(|error| SinkError::Encode(error.into())),
            ResponseWriter::Http2(client) => client.accept_websocket(head),
        }
    }

    /// Returns the sink for the bytes of a WebSocket.
    pub(crate) fn websocket_sink(&mut self) -> Option<Sink<'_>> {
        match self {
            ResponseWriter::Http1(client) => {
                let encoder = Encoder::response(Framing::UntilClose, Version::Http10);
                let sink = Http1Sink::new(client.writer, client.out, encoder);
                Some(Sink::Http1(sink))
            }
            ResponseWriter::Http2(client) => Some(client.sink()),
        }
    }

    /// Sends buffered data.
    pub(crate) async fn flush(&mut self) -> Result<(), SinkError> {
        match self {
            ResponseWriter::Http1(client) => {
                client.writer.write_all(&mut [client.out]).await?;
                client.out.clear();
                Ok(())
            }
            // `h2` sends it when the connection is next polled, together with other streams' data.
            ResponseWriter::Http2(_) => Ok(()),
        }
    }
}
