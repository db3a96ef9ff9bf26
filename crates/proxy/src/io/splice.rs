//! Zero-copy transfer between sockets: `splice(2)` moves bytes through a pipe without copying them to user space.
//! It pays off for large transfers; for a few bytes, two system calls and a pipe cost more than a copy. Workers pool pipes, because creating a pipe costs more
//! than using one.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Pipe capacities to request; the first that the kernel grants is used. A larger pipe needs fewer system calls: 1 MiB is about a third faster than the
/// default of 64 KiB.
const CAPACITIES: [usize; 2] = [1024 * 1024, 256 * 1024];

/// Initial and smallest number of bytes moved at a time.
const MIN_CHUNK: usize = 64 * 1024;

/// Pipes that a pool keeps for reuse.
const MAX_IDLE: usize = 16;

/// Bytes after which a transfer yields to other tasks.
const YIELD_BYTES: u64 = 2 * 1024 * 1024;

/// A failed transfer between two connections, by the side that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransferError {
    /// The source failed.
    #[error("read failed: {0}")]
    Read(io::Error),
    /// The destination failed.
    #[error("write failed: {0}")]
    Write(io::Error),
}

impl TransferError {
    /// Converts the I/O error with one of two functions, by the side that failed.
    pub(crate) fn split_by_side<E>(
        self,
        read: impl FnOnce(io::Error) -> E,
        write: impl FnOnce(io::Error) -> E,
    ) -> E {
        match self {
            TransferError::Read(error) => read(error),
            TransferError::Write(error) => write(error),
        }
    }
}

/// A pool of empty pipes.
#[derive(Debug, Default)]
pub(crate) struct PipePool(RefCell<Vec<PipeEnds>>);

#[derive(Debug)]
struct PipeEnds {
    out: OwnedFd,
    into: OwnedFd,
    capacity: usize,
}

/// A pipe, returned to its pool on drop if it is empty.
#[derive(Debug)]
pub(crate) struct Pipe {
    ends: Option<PipeEnds>,
    /// Bytes in the pipe.
    buffered: usize,
    /// Number of bytes moved at a time. It is small while the destination is slow, so that the pipe holds no more memory than a buffer would.
    chunk: usize,
    pool: Rc<PipePool>,
}

impl PipePool {
    /// Takes a pipe from the pool or creates one; `None` if the kernel grants none of a useful size.
    pub(crate) fn acquire(self: &Rc<Self>) -> Option<Pipe> {
        let kept = self.0.borrow_mut().pop();
        let ends = match kept {
            Some(ends) => ends,
            None => PipeEnds::new()?,
        };
        Some(Pipe {
            ends: Some(ends),
            buffered: 0,
            chunk: MIN_CHUNK,
            pool: self.clone(),
        })
    }
}

impl PipeEnds {
    fn new() -> Option<Self> {
        let pipe = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK);
        let (out, into) = pipe
            .inspect_err(|error| tracing::debug!(%error, "can't create a pipe; copying instead"))
            .ok()?;
        // The kernel limits the pipe memory of a user (pipe-user-pages-soft) and then grants only small pipes.
        let granted = CAPACITIES
            .into_iter()
            .find(|capacity| fcntl_setpipe_size(&into, *capacity).is_ok());
        granted.map(|capacity| PipeEnds {
            out,
            into,
            capacity,
        })
    }
}

/// The result of [`Pipe::splice_available`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spliced {
    /// Bytes moved: the requested number, or all that was available.
    Partial(u64),
    /// Bytes moved until the end of the stream.
    Eof(u64),
}

impl Pipe {
    /// Moves `count` bytes, fewer only at the end of the stream. Returns the number of bytes, all of which are written; `on_bytes` is called as they are.
    pub(crate) async fn splice_exact(
        &mut self,
        from: &TcpStream,
        to: &TcpStream,
        count: u64,
        on_bytes: impl Fn(usize),
    ) -> Result<u64, TransferError> {
        let mut total = 0;
        while total < count {
            let ready = poll_fn(|cx| from.poll_read_ready(cx)).await;
            ready.map_err(TransferError::Read)?;
            match self
                .splice_available(from, to, count - total, &on_bytes)
                .await?
            {
                Spliced::Partial(more) => total += more,
                Spliced::Eof(more) => return Ok(total + more),
            }
        }
        Ok(total)
    }

    /// Moves up to `count` available bytes, without waiting for more, and writes all of them.
    pub(crate) async fn splice_available(
        &mut self,
        from: &TcpStream,
        to: &TcpStream,
        count: u64,
        on_bytes: impl Fn(usize),
    ) -> Result<Spliced, TransferError> {
        let mut total = 0;
        let mut yield_at = YIELD_BYTES;
        while total < count {
            // Never more than requested: the bytes that follow belong to another message.
            let left = usize::try_from(count - total).unwrap_or(usize::MAX);
            match self.fill(from, left).map_err(TransferError::Read)? {
                None => return Ok(Spliced::Partial(total)),
                Some(0) => return Ok(Spliced::Eof(total)),
                Some(read) => total += read as u64,
            }
            self.drain(to, &on_bytes)
                .await
                .map_err(TransferError::Write)?;
            if total >= yield_at {
                yield_at = total + YIELD_BYTES;
                tokio::task::yield_now().await;
            }
        }
        Ok(Spliced::Partial(total))
    }

    /// Reads available bytes into the pipe; `None` if there are none. The pipe has to be empty: only then does `EAGAIN` refer to the socket, whose readiness
    /// may be cleared.
    fn fill(&mut self, from: &TcpStream, max: usize) -> io::Result<Option<usize>> {
        let Some(ends) = self.ends.as_ref().filter(|_| self.buffered == 0) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let max = max.min(self.chunk).min(ends.capacity);
        loop {
            let read = from.try_io(Interest::READABLE, || {
                Ok(splice(from, None, &ends.into, None, max, flags())?)
            });
            match read {
                Ok(read) => {
                    self.buffered = read;
                    return Ok(Some(read));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes everything in the pipe.
    async fn drain(&mut self, to: &TcpStream, on_bytes: impl Fn(usize)) -> io::Result<()> {
        let Some(ends) = &self.ends else {
            return Ok(());
        };
        let (mut waited, filled) = (false, self.buffered);
        while self.buffered > 0 {
            poll_fn(|cx| {
                let ready = to.poll_write_ready(cx);
                waited |= ready.is_pending();
                ready
            })
            .await?;
            let written = to.try_io(Interest::WRITABLE, || {
                Ok(splice(&ends.out, None, to, None, self.buffered, flags())?)
            });
            match written {
                Err(error) if is_transient(&error) => {}
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                written => {
                    let written = written?;
                    self.buffered -= written;
                    on_bytes(written);
                }
            }
        }
        if waited {
            self.chunk = (self.chunk / 2).max(MIN_CHUNK);
        } else if filled == self.chunk {
            self.chunk = (self.chunk * 2).min(ends.capacity);
        }
        Ok(())
    }
}

fn flags() -> SpliceFlags {
    SpliceFlags::MOVE | SpliceFlags::NONBLOCK
}

fn is_transient(error: &io::Error) -> bool {
    let kind = error.kind();
    kind == io::ErrorKind::WouldBlock || kind == io::ErrorKind::Interrupted
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let mut kept = self.pool.0.borrow_mut();
        if self.buffered == 0 && kept.len() < MAX_IDLE {
            kept.extend(self.ends.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (one, other) = tokio::join!(TcpStream::connect(address), listener.accept());
        (one.expect("connected"), other.expect("accepted").0)
    }

    #[tokio::test]
    async fn the_requested_number_of_bytes_is_moved_and_the_rest_stays() {
        let pipes = Rc::new(PipePool::default());
        let (mut client, from) = pair().await;
        let (to, mut backend) = pair().await;
        let sent: Vec<u8> = (0..5_000_000u32).map(|at| (at / 7) as u8).collect();
        let count = sent.len() as u64 - 5;
        let reported = Cell::new(0);
        let mut pipe = pipes.acquire().expect("a pipe");
        let carried = pipe.splice_exact(&from, &to, count, |more| {
            reported.set(reported.get() + more)
        });
        let mut got = vec![0; count as usize];
        let (written, moved, read) = tokio::join!(
            client.write_all(&sent),
            carried,
            // A slow reader.
            async {
                tokio::task::yield_now().await;
                backend.read_exact(&mut got).await
            }
        );
        written.expect("written");
        read.expect("read");
        assert_eq!(moved.expect("moved"), count);
        assert_eq!(reported.get() as u64, count);
        assert_eq!(got, sent[..count as usize]);
        drop(pipe);
        assert_eq!(pipes.0.borrow().len(), 1);
        let mut rest = [0; 5];
        let mut from = from;
        from.read_exact(&mut rest).await.expect("the rest");
        assert_eq!(rest, sent[count as usize..]);
    }

    #[tokio::test]
    async fn an_early_end_of_stream_is_returned_and_the_bytes_before_it_are_written() {
        let pipes = Rc::new(PipePool::default());
        let (mut client, from) = pair().await;
        let (to, mut backend) = pair().await;
        client.write_all(b"too little").await.expect("written");
        drop(client);
        let mut pipe = pipes.acquire().expect("a pipe");
        let moved = pipe.splice_exact(&from, &to, 1000, |_| {}).await;
        assert_eq!(moved.expect("moved"), 10);
        drop(to);
        let mut got = Vec::new();
        backend.read_to_end(&mut got).await.expect("read");
        assert_eq!(got, b"too little");
    }

    #[tokio::test]
    async fn a_pipe_with_bytes_left_is_not_reused() {
        let pipes = Rc::new(PipePool::default());
        let (mut client, from) = pair().await;
        client.write_all(b"left").await.expect("written");
        let mut pipe = pipes.acquire().expect("a pipe");
        from.readable().await.expect("readable");
        assert_eq!(pipe.fill(&from, 100).expect("filled"), Some(4));
        drop(pipe);
        assert!(pipes.0.borrow().is_empty());
    }
}
