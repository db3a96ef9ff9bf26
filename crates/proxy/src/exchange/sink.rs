//! A body that goes out, to a backend or to a client, over either version of HTTP.
//!
//! Small pieces are gathered with what stands before them, a head or a chunk's size, and leave together when [`Sink::flush`] or [`Sink::finish`] asks for it.

use std::io;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::flow::FlowError;
use super::http2::sink as http2;
use super::source::{Source, Trailers};
use crate::http1::{EncodeError, Encoder, Framing, Version};
use crate::io::stream::WriteHalf;

/// Pieces up to this size are copied to what waits to be written; larger ones are written from where they are.
const GATHERED: usize = 4 * 1024;

/// Why a body did not go out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SinkError {
    /// The connection broke.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is not what was announced.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The stream broke.
    #[error(transparent)]
    Http2(#[from] h2::Error),
}

/// A body that goes out.
#[derive(Debug)]
pub(crate) enum Sink<'c> {
    /// Over HTTP/1.
    Http1(Outgoing<'c>),
    /// Over HTTP/2.
    Http2(http2::Outgoing<'c>),
}

/// A body that goes over HTTP/1.
#[derive(Debug)]
pub(crate) struct Outgoing<'c> {
    writer: &'c mut WriteHalf,
    /// What waits to be written: the head, first of all.
    out: &'c mut Vec<u8>,
    encoder: Encoder,
    /// Something of it is written.
    left: bool,
}

impl<'c> Outgoing<'c> {
    /// A body framed like this, after what is in `out`.
    pub(crate) fn new(writer: &'c mut WriteHalf, out: &'c mut Vec<u8>, encoder: Encoder) -> Self {
        Outgoing {
            writer,
            out,
            encoder,
            left: false,
        }
    }

    async fn bytes(&mut self, piece: &[u8]) -> Result<(), SinkError> {
        if piece.len() + self.out.len() <= GATHERED {
            self.encoder.data(piece, self.out)?;
            return Ok(());
        }
        self.encoder.before(piece.len(), self.out)?;
        let mut end = Vec::new();
        self.encoder.after(piece.len(), &mut end);
        self.left = true;
        self.writer.write_all(&mut [self.out, piece, &end]).await?;
        self.out.clear();
        Ok(())
    }

    /// Writes what waits.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        if !self.out.is_empty() {
            self.left = true;
            self.writer.write_all(&mut [self.out]).await?;
            self.out.clear();
        }
        Ok(())
    }

    /// Whether bytes may be moved without being looked at: nothing stands between them, and nothing hides them.
    pub(crate) fn is_plain(&self) -> bool {
        self.encoder.is_plain() && self.writer.as_tcp().is_some()
    }

    /// The socket of a plain connection.
    pub(crate) fn as_tcp(&self) -> Option<&TcpStream> {
        self.writer.as_tcp()
    }

    /// So many bytes were moved so.
    pub(crate) fn moved(&mut self, count: u64) -> Result<(), EncodeError> {
        self.encoder.skip(count)
    }
}

impl Sink<'_> {
    /// Whether something of it has left, so that it can't be taken back.
    pub(crate) fn has_left(&self) -> bool {
        match self {
            Sink::Http1(outgoing) => outgoing.left,
            // The library has its head already.
            Sink::Http2(_) => true,
        }
    }

    /// Sends bytes.
    pub(crate) async fn bytes(&mut self, piece: &[u8]) -> Result<(), SinkError> {
        match self {
            Sink::Http1(outgoing) => outgoing.bytes(piece).await,
            Sink::Http2(outgoing) => outgoing.pass(Bytes::copy_from_slice(piece)).await,
        }
    }

    /// Sends the piece that a source shows, and is done with it.
    pub(crate) async fn pass(&mut self, source: &mut Source<'_>) -> Result<(), SinkError> {
        match self {
            Sink::Http1(outgoing) => {
                outgoing.bytes(source.piece()).await?;
                source.advance();
                Ok(())
            }
            Sink::Http2(outgoing) => outgoing.pass(source.take()).await,
        }
    }

    /// Sends what was gathered.
    pub(crate) async fn flush(&mut self) -> Result<(), SinkError> {
        match self {
            Sink::Http1(outgoing) => Ok(outgoing.flush().await?),
            Sink::Http2(outgoing) => outgoing.flush().await,
        }
    }

    /// Bytes from here on belong to a WebSocket.
    pub(crate) fn switch(&mut self) {
        match self {
            Sink::Http1(outgoing) => {
                outgoing.encoder = Encoder::response(Framing::UntilClose, Version::Http10);
            }
            // It was a stream of bytes all along.
            Sink::Http2(_) => {}
        }
    }

    /// Says that nothing more comes, after a WebSocket.
    pub(crate) async fn close(&mut self) -> Result<(), FlowError> {
        match self {
            Sink::Http1(outgoing) => {
                let closed = outgoing.writer.shutdown().await;
                Ok(closed.map_err(SinkError::from)?)
            }
            // The end of the body has said so.
            Sink::Http2(_) => Ok(()),
        }
    }

    /// Ends the body.
    pub(crate) async fn finish(&mut self, trailers: Trailers) -> Result<(), SinkError> {
        match self {
            Sink::Http1(outgoing) => {
                let all = trailers.iter().flat_map(|map| map.iter());
                let fields = all.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
                outgoing.encoder.end(fields, outgoing.out)?;
                Ok(outgoing.flush().await?)
            }
            Sink::Http2(outgoing) => outgoing.finish(trailers),
        }
    }
}
