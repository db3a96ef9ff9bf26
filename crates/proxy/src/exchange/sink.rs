//! Sending of bodies to backends and clients over either version of HTTP.
//!
//! Small pieces are buffered together with the head or chunk header in front of them, and written on [`Sink::flush`] or [`Sink::finish`].

use std::io;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::copy::CopyError;
use super::http2::sink as http2;
use super::source::{Source, Trailers};
use crate::http1::{EncodeError, Encoder, Framing, Version};
use crate::io::stream::WriteHalf;

/// Maximum size of a piece that is copied to the write buffer; larger ones are written directly.
const MAX_COPIED_BYTES: usize = 4 * 1024;

/// Failure to send a body.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SinkError {
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The body does not match the announced length.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The stream failed.
    #[error(transparent)]
    Http2(#[from] h2::Error),
}

/// A body that is sent.
#[derive(Debug)]
pub(crate) enum Sink<'c> {
    Http1(Http1Sink<'c>),
    Http2(http2::Http2Sink<'c>),
}

/// A body sent over HTTP/1.
#[derive(Debug)]
pub(crate) struct Http1Sink<'c> {
    writer: &'c mut WriteHalf,
    /// Write buffer, which initially contains the head.
    out: &'c mut Vec<u8>,
    encoder: Encoder,
    /// Part of the message was written to the connection.
    written: bool,
}

impl<'c> Http1Sink<'c> {
    /// Creates the sink for a body that follows the contents of `out`.
    pub(crate) fn new(writer: &'c mut WriteHalf, out: &'c mut Vec<u8>, encoder: Encoder) -> Self {
        Http1Sink {
            writer,
            out,
            encoder,
            written: false,
        }
    }

    async fn write(&mut self, piece: &[u8]) -> Result<(), SinkError> {
        if piece.len() + self.out.len() <= MAX_COPIED_BYTES {
            self.encoder.data(piece, self.out)?;
            return Ok(());
        }
        self.encoder.write_prefix(piece.len(), self.out)?;
        let mut end = Vec::new();
        self.encoder.write_suffix(piece.len(), &mut end);
        self.written = true;
        self.writer.write_all(&mut [self.out, piece, &end]).await?;
        self.out.clear();
        Ok(())
    }

    /// Writes the buffer.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        if !self.out.is_empty() {
            self.written = true;
            self.writer.write_all(&mut [self.out]).await?;
            self.out.clear();
        }
        Ok(())
    }

    /// Returns whether bytes can be spliced: without chunked framing and without TLS.
    pub(crate) fn is_plain(&self) -> bool {
        self.encoder.is_plain() && self.writer.as_tcp().is_some()
    }

    /// Returns the socket of a connection without TLS.
    pub(crate) fn as_tcp(&self) -> Option<&TcpStream> {
        self.writer.as_tcp()
    }

    /// Accounts for spliced bytes.
    pub(crate) fn record_spliced(&mut self, count: u64) -> Result<(), EncodeError> {
        self.encoder.record_spliced(count)
    }
}

impl Sink<'_> {
    /// Returns whether part of the message was sent, so that it can't be retracted.
    pub(crate) fn has_written(&self) -> bool {
        match self {
            Sink::Http1(sink) => sink.written,
            // The head was already passed to `h2`.
            Sink::Http2(_) => true,
        }
    }

    /// Sends a copy of the bytes.
    pub(crate) async fn write(&mut self, piece: &[u8]) -> Result<(), SinkError> {
        match self {
            Sink::Http1(sink) => sink.write(piece).await,
            Sink::Http2(sink) => sink.write(Bytes::copy_from_slice(piece)).await,
        }
    }

    /// Sends the source's current piece and advances the source.
    pub(crate) async fn write_from(&mut self, source: &mut Source<'_>) -> Result<(), SinkError> {
        match self {
            Sink::Http1(sink) => {
                sink.write(source.piece()).await?;
                source.advance();
                Ok(())
            }
            Sink::Http2(sink) => sink.write(source.take()).await,
        }
    }

    /// Sends buffered data.
    pub(crate) async fn flush(&mut self) -> Result<(), SinkError> {
        match self {
            Sink::Http1(sink) => Ok(sink.flush().await?),
            Sink::Http2(sink) => sink.flush().await,
        }
    }

    /// Switches from HTTP framing to the bytes of a WebSocket.
    pub(crate) fn switch_to_websocket(&mut self) {
        match self {
            Sink::Http1(sink) => {
                sink.encoder = Encoder::response(Framing::UntilClose, Version::Http10);
            }
            // DATA frames carry the bytes unchanged.
            Sink::Http2(_) => {}
        }
    }

    /// Closes the sending direction of a WebSocket.
    pub(crate) async fn close(&mut self) -> Result<(), CopyError> {
        match self {
            Sink::Http1(sink) => {
                let closed = sink.writer.shutdown().await;
                Ok(closed.map_err(SinkError::from)?)
            }
            // `finish` has sent END_STREAM.
            Sink::Http2(_) => Ok(()),
        }
    }

    /// Sends the end of the body.
    pub(crate) async fn finish(&mut self, trailers: Trailers) -> Result<(), SinkError> {
        match self {
            Sink::Http1(sink) => {
                let all = trailers.iter().flat_map(|map| map.iter());
                let fields = all.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
                sink.encoder.end(fields, sink.out)?;
                Ok(sink.flush().await?)
            }
            Sink::Http2(sink) => sink.finish(trailers),
        }
    }
}
