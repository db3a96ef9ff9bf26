//! Bytes from one socket to another that never come up to this process: splice(2) moves them through a pipe.
//!
//! It pays where much is moved; for a few bytes at a time, two system calls and a pipe cost more than a copy. PipePool are kept by the worker, since
//! making one costs more than using it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// What a pipe is to hold: the first of these that the system grants. The more it holds, the fewer system calls there are: a mebibyte moves a
/// third more in the same time than the 64 KiB that pipes have by default.
const CAPACITIES: [usize; 2] = [1024 * 1024, 256 * 1024];

/// Bytes that are taken at once to begin with.
const MIN_CHUNK: usize = 64 * 1024;

/// PipePool kept for the next ones who need some.
const MAX_IDLE: usize = 16;

/// After so many bytes others have their yield_at.
const YIELD_BYTES: u64 = 2 * 1024 * 1024;

/// Which side broke.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpliceError {
    /// Where bytes come from.
    #[error("reading: {0}")]
    Read(io::Error),
    /// Where they go.
    #[error("writing: {0}")]
    Write(io::Error),
}

/// Lends pipes.
#[derive(Debug, Default)]
pub(crate) struct PipePool(RefCell<Vec<PipeEnds>>);

#[derive(Debug)]
struct PipeEnds {
    out: OwnedFd,
    into: OwnedFd,
    capacity: usize,
}

/// A pipe, given back when dropped if nothing is left in it.
#[derive(Debug)]
pub(crate) struct Pipe {
    ends: Option<PipeEnds>,
    /// Bytes that are in it.
    buffered: usize,
    /// Bytes that it takes at once: few while their reader is slow, so that he costs no more than another buffer would.
    chunk: usize,
    pool: Rc<PipePool>,
}

impl PipePool {
    /// An empty pipe; none if the system gives none, or none of use.
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
        let made = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK);
        let (out, into) = made
            .inspect_err(|error| tracing::debug!(%error, "no pipe; bytes are copied"))
            .ok()?;
        // A user who has many pipes gets small ones from the system, which are of no use.
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

/// How far [`Pipe::splice_available`] has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spliced {
    /// All that was asked for, or nothing more has come yet.
    Partial(u64),
    /// To the end of what there is.
    Eof(u64),
}

impl Pipe {
    /// Moves `count` bytes, fewer if `from` ends before. Returns how many, all of which are written; `moved` hears of them as they are.
    pub(crate) async fn splice_exact(
        &mut self,
        from: &TcpStream,
        to: &TcpStream,
        count: u64,
        moved: impl Fn(usize),
    ) -> Result<u64, SpliceError> {
        let mut done = 0;
        while done < count {
            let ready = poll_fn(|cx| from.poll_read_ready(cx)).await;
            ready.map_err(SpliceError::Read)?;
            match self
                .splice_available(from, to, count - done, &moved)
                .await?
            {
                Spliced::Partial(more) => done += more,
                Spliced::Eof(more) => return Ok(done + more),
            }
        }
        Ok(done)
    }

    /// Moves what has come, up to `count` bytes, and does not wait for more. All of it is written then.
    pub(crate) async fn splice_available(
        &mut self,
        from: &TcpStream,
        to: &TcpStream,
        count: u64,
        moved: impl Fn(usize),
    ) -> Result<Spliced, SpliceError> {
        let mut done = 0;
        let mut yield_at = YIELD_BYTES;
        while done < count {
            // Never more than is asked for: what follows belongs to somebody else.
            let left = usize::try_from(count - done).unwrap_or(usize::MAX);
            match self.fill(from, left).map_err(SpliceError::Read)? {
                None => return Ok(Spliced::Partial(done)),
                Some(0) => return Ok(Spliced::Eof(done)),
                Some(came) => done += came as u64,
            }
            self.drain(to, &moved).await.map_err(SpliceError::Write)?;
            if done >= yield_at {
                yield_at = done + YIELD_BYTES;
                tokio::task::yield_now().await;
            }
        }
        Ok(Spliced::Partial(done))
    }

    /// Takes what has come; none if nothing has. It has to be empty: only then does `EAGAIN` speak of the socket, and its readiness may be
    /// cleared.
    fn fill(&mut self, from: &TcpStream, most: usize) -> io::Result<Option<usize>> {
        let Some(ends) = self.ends.as_ref().filter(|_| self.buffered == 0) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let most = most.min(self.chunk).min(ends.capacity);
        loop {
            let came = from.try_io(Interest::READABLE, || {
                Ok(splice(from, None, &ends.into, None, most, flags())?)
            });
            match came {
                Ok(came) => {
                    self.buffered = came;
                    return Ok(Some(came));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes all that it holds.
    async fn drain(&mut self, to: &TcpStream, moved: impl Fn(usize)) -> io::Result<()> {
        let Some(ends) = &self.ends else {
            return Ok(());
        };
        let (mut waited, taken) = (false, self.buffered);
        while self.buffered > 0 {
            poll_fn(|cx| {
                let ready = to.poll_write_ready(cx);
                waited |= ready.is_pending();
                ready
            })
            .await?;
            let went = to.try_io(Interest::WRITABLE, || {
                Ok(splice(&ends.out, None, to, None, self.buffered, flags())?)
            });
            match went {
                Err(error) if is_transient(&error) => {}
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                went => {
                    let went = went?;
                    self.buffered -= went;
                    moved(went);
                }
            }
        }
        if waited {
            self.chunk = (self.chunk / 2).max(MIN_CHUNK);
        } else if taken == self.chunk {
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
    async fn exactly_so_many_bytes_are_moved_and_what_follows_stays() {
        let pipes = Rc::new(PipePool::default());
        let (mut client, from) = pair().await;
        let (to, mut backend) = pair().await;
        let sent: Vec<u8> = (0..5_000_000u32).map(|at| (at / 7) as u8).collect();
        let count = sent.len() as u64 - 5;
        let heard = Cell::new(0);
        let mut pipe = pipes.acquire().expect("a pipe");
        let carried = pipe.splice_exact(&from, &to, count, |more| heard.set(heard.get() + more));
        let mut got = vec![0; count as usize];
        let (written, moved, read) = tokio::join!(
            client.write_all(&sent),
            carried,
            // Whoever reads is slow to begin.
            async {
                tokio::task::yield_now().await;
                backend.read_exact(&mut got).await
            }
        );
        written.expect("written");
        read.expect("read");
        assert_eq!(moved.expect("moved"), count);
        assert_eq!(heard.get() as u64, count);
        assert_eq!(got, sent[..count as usize]);
        drop(pipe);
        assert_eq!(pipes.0.borrow().len(), 1);
        let mut rest = [0; 5];
        let mut from = from;
        from.read_exact(&mut rest).await.expect("the rest");
        assert_eq!(rest, sent[count as usize..]);
    }

    #[tokio::test]
    async fn an_end_before_all_has_come_is_told_and_what_came_is_written() {
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
    async fn a_pipe_that_is_not_empty_is_not_used_again() {
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
