//! The transport of an HTTP/2 connection, TCP or TLS, with a count of reads, which shows whether the peer is silent.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use crate::io::stream::PrefixedStream;

/// Counts reads.
#[derive(Debug, Default)]
pub(super) struct ReadCounter(Cell<u64>);

impl ReadCounter {
    pub(super) fn get(&self) -> u64 {
        self.0.get()
    }
}

/// A TCP or TLS stream that counts its reads.
#[derive(Debug)]
pub(super) struct CountedStream {
    stream: TransportStream,
    reads: Rc<ReadCounter>,
}

#[derive(Debug)]
enum TransportStream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<PrefixedStream>>),
}

impl CountedStream {
    pub(super) fn tcp(stream: TcpStream, reads: Rc<ReadCounter>) -> Self {
        let stream = TransportStream::Tcp(stream);
        CountedStream { stream, reads }
    }

    pub(super) fn tls(stream: TlsStream<PrefixedStream>, reads: Rc<ReadCounter>) -> Self {
        let stream = TransportStream::Tls(Box::new(stream));
        CountedStream { stream, reads }
    }
}

/// Applies an expression to either stream.
macro_rules! either {
    ($io:expr, $stream:ident => $result:expr) => {
        match &mut $io.get_mut().stream {
            TransportStream::Tcp(stream) => {
                let $stream = Pin::new(stream);
                $result
            }
            TransportStream::Tls(stream) => {
                let $stream = Pin::new(stream);
                $result
            }
        }
    };
}

impl AsyncRead for CountedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let reads = self.reads.clone();
        let read = either!(self, stream => stream.poll_read(cx, buf));
        if read.is_ready() {
            reads.0.set(reads.0.get().wrapping_add(1));
        }
        read
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            TransportStream::Tcp(stream) => stream.is_write_vectored(),
            TransportStream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_shutdown(cx))
    }
}
