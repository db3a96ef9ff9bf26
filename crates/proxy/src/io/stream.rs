//! Connections over TCP or TLS, split into halves so that one direction can wait while the other makes progress.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_rustls::TlsStream;

use crate::http1::Close;

/// A TCP stream with bytes that were read already, such as those that identify the protocol.
#[derive(Debug)]
pub(crate) struct PrefixedStream {
    prefix: Vec<u8>,
    consumed: usize,
    stream: TcpStream,
}

impl PrefixedStream {
    /// Returns these bytes before those of the stream.
    pub(crate) fn new(prefix: Vec<u8>, stream: TcpStream) -> Self {
        PrefixedStream {
            prefix,
            consumed: 0,
            stream,
        }
    }

    /// Returns the stream; remaining prefix bytes are lost.
    pub(crate) fn into_tcp(self) -> TcpStream {
        self.stream
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.stream
    }
}

impl AsyncRead for PrefixedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.prefix.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let remaining = &self.prefix[self.consumed..];
        let count = remaining.len().min(buf.remaining());
        buf.put_slice(&remaining[..count]);
        self.consumed += count;
        if self.consumed == self.prefix.len() {
            self.prefix = Vec::new();
            self.consumed = 0;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PrefixedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

type Tls = Rc<RefCell<TlsStream<PrefixedStream>>>;

/// The read half of a connection.
#[derive(Debug)]
pub(crate) enum ReadHalf {
    /// Plaintext.
    Tcp(OwnedReadHalf),
    /// TLS.
    Tls(Tls),
}

/// The write half of a connection.
#[derive(Debug)]
pub(crate) enum WriteHalf {
    /// Plaintext.
    Tcp(OwnedWriteHalf),
    /// TLS.
    Tls(Tls),
}

/// Splits a TCP stream.
pub(crate) fn split(stream: TcpStream) -> (ReadHalf, WriteHalf) {
    let (reader, writer) = stream.into_split();
    (ReadHalf::Tcp(reader), WriteHalf::Tcp(writer))
}

/// Splits a TLS stream.
pub(crate) fn split_tls(stream: TlsStream<PrefixedStream>) -> (ReadHalf, WriteHalf) {
    let stream = Rc::new(RefCell::new(stream));
    (ReadHalf::Tls(stream.clone()), WriteHalf::Tls(stream))
}

/// Joins the halves of a plaintext connection; `None` if they do not belong together.
pub(crate) fn unsplit(reader: ReadHalf, writer: WriteHalf) -> Option<TcpStream> {
    match (reader, writer) {
        (ReadHalf::Tcp(reader), WriteHalf::Tcp(writer)) => reader.reunite(writer).ok(),
        _ => None,
    }
}

impl ReadHalf {
    /// Calls `f` with the socket.
    pub(crate) fn with_tcp<T>(&self, f: impl FnOnce(&TcpStream) -> T) -> T {
        match self {
            ReadHalf::Tcp(half) => f(half.as_ref()),
            ReadHalf::Tls(stream) => f(stream.borrow().get_ref().0.tcp()),
        }
    }

    /// Returns the socket of a plaintext connection.
    pub(crate) fn as_tcp(&self) -> Option<&TcpStream> {
        match self {
            ReadHalf::Tcp(half) => Some(half.as_ref()),
            ReadHalf::Tls(_) => None,
        }
    }

    /// Distinguishes an orderly close from truncation. In TLS a peer announces the close (RFC 8446 §6.1), so that an attacker can't cut a stream unnoticed.
    pub(crate) fn peer_close(&self) -> Close {
        let orderly = match self {
            ReadHalf::Tcp(_) => true,
            ReadHalf::Tls(stream) => {
                let state = match &mut *stream.borrow_mut() {
                    TlsStream::Client(stream) => stream.get_mut().1.process_new_packets(),
                    TlsStream::Server(stream) => stream.get_mut().1.process_new_packets(),
                };
                state.is_ok_and(|state| state.peer_has_closed())
            }
        };
        match orderly {
            true => Close::Orderly,
            false => Close::Truncated,
        }
    }

    /// Returns whether the kernel has nothing to read for the socket, not even the end of the stream.
    pub(crate) fn is_drained(&self) -> bool {
        self.with_tcp(has_nothing_to_read)
    }

    /// Returns whether neither data nor the end of the stream has arrived, so that the connection may be reused. Usually makes no system call.
    pub(crate) fn is_reusable(&self) -> bool {
        self.with_tcp(is_drained)
    }
}

impl WriteHalf {
    /// Returns whether the peer has reset the connection.
    pub(crate) fn is_reset(&self) -> bool {
        let peek = |tcp: &TcpStream| matches!(peek(tcp), Err(error) if error != Errno::AGAIN && error != Errno::INTR);
        match self {
            WriteHalf::Tcp(half) => peek(half.as_ref()),
            WriteHalf::Tls(stream) => peek(stream.borrow().get_ref().0.tcp()),
        }
    }

    /// Returns the socket of a plaintext connection.
    pub(crate) fn as_tcp(&self) -> Option<&TcpStream> {
        match self {
            WriteHalf::Tcp(half) => Some(half.as_ref()),
            WriteHalf::Tls(_) => None,
        }
    }

    /// Writes all slices in order, with as few system calls as possible.
    pub(crate) async fn write_all(&mut self, slices: &mut [&[u8]]) -> io::Result<()> {
        std::future::poll_fn(|cx| self.poll_write_all(slices, cx)).await
    }

    fn poll_write_all(
        &mut self,
        slices: &mut [&[u8]],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut vectors = [IoSlice::new(&[]); 4];
            let mut used = 0;
            for slice in slices.iter().filter(|slice| !slice.is_empty()).take(4) {
                vectors[used] = IoSlice::new(slice);
                used += 1;
            }
            if used == 0 {
                return match self {
                    WriteHalf::Tcp(_) => Poll::Ready(Ok(())),
                    WriteHalf::Tls(_) => Pin::new(self).poll_flush(cx),
                };
            }
            let written = match used {
                1 => ready!(Pin::new(&mut *self).poll_write(cx, &vectors[0]))?,
                _ => ready!(Pin::new(&mut *self).poll_write_vectored(cx, &vectors[..used]))?,
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let mut remaining = written;
            for slice in slices.iter_mut() {
                let count = remaining.min(slice.len());
                *slice = &slice[count..];
                remaining -= count;
            }
        }
    }
}

/// Peeks at one byte of what has arrived.
fn peek(tcp: &TcpStream) -> Result<usize, Errno> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    rustix::net::recv(tcp, &mut [0u8; 1], flags).map(|(count, _)| count)
}

/// Returns whether a socket has nothing to read, not even the end of the stream. Always asks the kernel, because the runtime may not know of the newest bytes
/// yet.
pub(crate) fn has_nothing_to_read(tcp: &TcpStream) -> bool {
    matches!(peek(tcp), Err(Errno::AGAIN))
}

/// Returns whether a socket has nothing to read, not even the end of the stream. Asks the kernel only if the runtime considers the socket readable, and clears the
/// readiness if it is not: the last read may have consumed all bytes without clearing it.
fn is_drained(tcp: &TcpStream) -> bool {
    let peeked = tcp.try_io(Interest::READABLE, || Ok(peek(tcp)?));
    matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

impl AsyncRead for ReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ReadHalf::Tcp(half) => Pin::new(half).poll_read(cx, buf),
            ReadHalf::Tls(stream) => {
                let read = Pin::new(&mut *stream.borrow_mut()).poll_read(cx, buf);
                match read {
                    // A close without TLS close_notify counts as the end; message framing reveals truncation.
                    Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        Poll::Ready(Ok(()))
                    }
                    read => read,
                }
            }
        }
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            WriteHalf::Tcp(half) => Pin::new(half).poll_write(cx, bytes),
            WriteHalf::Tls(stream) => Pin::new(&mut *stream.borrow_mut()).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            WriteHalf::Tcp(half) => Pin::new(half).poll_write_vectored(cx, slices),
            WriteHalf::Tls(stream) => {
                Pin::new(&mut *stream.borrow_mut()).poll_write_vectored(cx, slices)
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            WriteHalf::Tcp(_) => Poll::Ready(Ok(())),
            WriteHalf::Tls(stream) => Pin::new(&mut *stream.borrow_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            WriteHalf::Tcp(half) => Pin::new(half).poll_shutdown(cx),
            WriteHalf::Tls(stream) => Pin::new(&mut *stream.borrow_mut()).poll_shutdown(cx),
        }
    }
}
