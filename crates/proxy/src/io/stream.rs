//! The two halves of a connection, plain or TLS. They are apart so that one direction can wait while the other moves.

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

/// A TCP stream of which some bytes were read already, to find out what is spoken.
#[derive(Debug)]
pub(crate) struct PrefixedStream {
    prefix: Vec<u8>,
    taken: usize,
    stream: TcpStream,
}

impl PrefixedStream {
    /// The stream, with these bytes before what it still gives.
    pub(crate) fn new(prefix: Vec<u8>, stream: TcpStream) -> Self {
        PrefixedStream {
            prefix,
            taken: 0,
            stream,
        }
    }

    /// The stream itself; bytes that were not taken yet are lost.
    pub(crate) fn into_tcp(self) -> TcpStream {
        self.stream
    }

    /// The stream itself.
    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.stream
    }
}

impl AsyncRead for PrefixedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.prefix.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, room);
        }
        let left = &self.prefix[self.taken..];
        let count = left.len().min(room.remaining());
        room.put_slice(&left[..count]);
        self.taken += count;
        if self.taken == self.prefix.len() {
            self.prefix = Vec::new();
            self.taken = 0;
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

/// The half that is read.
#[derive(Debug)]
pub(crate) enum ReadHalf {
    /// Plain text.
    Tcp(OwnedReadHalf),
    /// TLS.
    Tls(Tls),
}

/// The half that is written.
#[derive(Debug)]
pub(crate) enum WriteHalf {
    /// Plain text.
    Tcp(OwnedWriteHalf),
    /// TLS.
    Tls(Tls),
}

/// Takes a TCP stream apart.
pub(crate) fn split(stream: TcpStream) -> (ReadHalf, WriteHalf) {
    let (reader, writer) = stream.into_split();
    (ReadHalf::Tcp(reader), WriteHalf::Tcp(writer))
}

/// Takes a TLS stream apart.
pub(crate) fn split_tls(stream: TlsStream<PrefixedStream>) -> (ReadHalf, WriteHalf) {
    let stream = Rc::new(RefCell::new(stream));
    (ReadHalf::Tls(stream.clone()), WriteHalf::Tls(stream))
}

/// Puts the halves of a plain connection together again, if they are one.
pub(crate) fn unsplit(reader: ReadHalf, writer: WriteHalf) -> Option<TcpStream> {
    match (reader, writer) {
        (ReadHalf::Tcp(reader), WriteHalf::Tcp(writer)) => reader.reunite(writer).ok(),
        _ => None,
    }
}

impl ReadHalf {
    /// The socket.
    pub(crate) fn with_tcp<T>(&self, use_it: impl FnOnce(&TcpStream) -> T) -> T {
        match self {
            ReadHalf::Tcp(half) => use_it(half.as_ref()),
            ReadHalf::Tls(stream) => use_it(stream.borrow().get_ref().0.tcp()),
        }
    }

    /// The socket of a plain connection.
    pub(crate) fn as_tcp(&self) -> Option<&TcpStream> {
        match self {
            ReadHalf::Tcp(half) => Some(half.as_ref()),
            ReadHalf::Tls(_) => None,
        }
    }

    /// The manner in which the peer closed the connection. TLS has a way to say so (RFC 8446 §6.1), so that nobody else can cut a stream unnoticed.
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

    /// Reports whether the socket has nothing to read.
    pub(crate) fn is_drained(&self) -> bool {
        self.with_tcp(has_nothing_to_read)
    }

    /// Whether nothing has come, not even the end: so it has to be with a connection that is to be used again. Mostly no system call is made.
    pub(crate) fn is_reusable(&self) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        self.with_tcp(|tcp| {
            // What was last read, or moved, may have been all that there was.
            tcp.poll_read_ready(&mut cx).is_pending() || is_drained(tcp)
        })
    }
}

impl WriteHalf {
    /// Whether the other side has reset the connection.
    pub(crate) fn is_reset(&self) -> bool {
        let peek = |tcp: &TcpStream| matches!(peek(tcp), Err(error) if error != Errno::AGAIN && error != Errno::INTR);
        match self {
            WriteHalf::Tcp(half) => peek(half.as_ref()),
            WriteHalf::Tls(stream) => peek(stream.borrow().get_ref().0.tcp()),
        }
    }

    /// The socket of a plain connection.
    pub(crate) fn as_tcp(&self) -> Option<&TcpStream> {
        match self {
            WriteHalf::Tcp(half) => Some(half.as_ref()),
            WriteHalf::Tls(_) => None,
        }
    }

    /// Writes all of these, one after the other, with as few system calls as can be.
    pub(crate) async fn write_all(&mut self, slices: &mut [&[u8]]) -> io::Result<()> {
        std::future::poll_fn(|cx| self.poll_write_all(slices, cx)).await
    }

    fn poll_write_all(
        &mut self,
        slices: &mut [&[u8]],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut room = [IoSlice::new(&[]); 4];
            let mut used = 0;
            for slice in slices.iter().filter(|slice| !slice.is_empty()).take(4) {
                room[used] = IoSlice::new(slice);
                used += 1;
            }
            if used == 0 {
                return match self {
                    WriteHalf::Tcp(_) => Poll::Ready(Ok(())),
                    WriteHalf::Tls(_) => Pin::new(self).poll_flush(cx),
                };
            }
            let written = match used {
                1 => ready!(Pin::new(&mut *self).poll_write(cx, &room[0]))?,
                _ => ready!(Pin::new(&mut *self).poll_write_vectored(cx, &room[..used]))?,
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let mut left = written;
            for slice in slices.iter_mut() {
                let count = left.min(slice.len());
                *slice = &slice[count..];
                left -= count;
            }
        }
    }
}

/// Looks at what has come, without taking it.
fn peek(tcp: &TcpStream) -> Result<usize, Errno> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    rustix::net::recv(tcp, &mut [0u8; 1], flags).map(|(came, _)| came)
}

/// Reports whether a socket has nothing to read, not even the end. It always asks the system, which knows of bytes that the runtime has not been told of yet.
pub(crate) fn has_nothing_to_read(tcp: &TcpStream) -> bool {
    matches!(peek(tcp), Err(Errno::AGAIN))
}

/// Whether a socket that was said to be readable has nothing to read, not even the end.
fn is_drained(tcp: &TcpStream) -> bool {
    let looked = tcp.try_io(Interest::READABLE, || Ok(peek(tcp)?));
    matches!(looked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

impl AsyncRead for ReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ReadHalf::Tcp(half) => Pin::new(half).poll_read(cx, room),
            ReadHalf::Tls(stream) => {
                let read = Pin::new(&mut *stream.borrow_mut()).poll_read(cx, room);
                match read {
                    // A peer that closes without saying so in TLS has closed; framing tells whether something is missing.
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
