//! What a connection is read from and written to, plain or TLS. What is heard is counted, so that silence can be told.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use crate::io::stream::PrefixedStream;

/// Counts what is heard.
#[derive(Debug, Default)]
pub(super) struct Pulse(Cell<u64>);

impl Pulse {
    /// How often something was.
    pub(super) fn heard(&self) -> u64 {
        self.0.get()
    }
}

/// A connection's bytes.
#[derive(Debug)]
pub(super) struct Io {
    stream: Stream,
    pulse: Rc<Pulse>,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<PrefixedStream>>),
}

impl Io {
    /// Plain text.
    pub(super) fn tcp(stream: TcpStream, pulse: Rc<Pulse>) -> Self {
        let stream = Stream::Tcp(stream);
        Io { stream, pulse }
    }

    /// TLS.
    pub(super) fn tls(stream: TlsStream<PrefixedStream>, pulse: Rc<Pulse>) -> Self {
        let stream = Stream::Tls(Box::new(stream));
        Io { stream, pulse }
    }
}

/// The same for both.
macro_rules! either {
    ($io:expr, $stream:ident => $done:expr) => {
        match &mut $io.get_mut().stream {
            Stream::Tcp(stream) => {
                let $stream = Pin::new(stream);
                $done
            }
            Stream::Tls(stream) => {
                let $stream = Pin::new(stream);
                $done
            }
        }
    };
}

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let pulse = self.pulse.clone();
        let read = either!(self, stream => stream.poll_read(cx, room));
        if read.is_ready() {
            pulse.0.set(pulse.0.get().wrapping_add(1));
        }
        read
    }
}

impl AsyncWrite for Io {
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
            Stream::Tcp(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_shutdown(cx))
    }
}
