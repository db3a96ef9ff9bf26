//! Bytes both ways between two connections, until both sides have said all.
//!
//! Each direction copies through a buffer that is lent only while there is something to copy. Where a direction of plain text carries bulk, it
//! changes to [`pipe`](super::splice), and back when it no longer does.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::buffer::{BUFFER_BYTES, Buffer, BufferPool};
use super::deadline::{DeadlineTimer, Elapsed};
use super::splice::{PipePool, SpliceError, Spliced};
use super::stream::{ReadHalf, WriteHalf};

/// A direction is bulk once so many reads in a row have filled the buffer.
const FULL_READS: u32 = 4;

/// It is no longer, once less than this comes at a time.
const BULK: u64 = BUFFER_BYTES as u64;

/// How long a connection is silent before its peer is asked whether it is there.
const ASKING: TcpKeepalive = TcpKeepalive::new().with_time(Duration::from_secs(60));

/// One of two connections.
#[derive(Debug)]
pub(crate) struct RelayEnd {
    /// What comes from it.
    pub(crate) reader: ReadHalf,
    /// What goes to it.
    pub(crate) writer: WriteHalf,
    /// What came from it before.
    pub(crate) first: Vec<u8>,
}

/// What a relay needs of its worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RelayPools<'w> {
    /// Lends buffers.
    pub(crate) buffers: &'w Rc<BufferPool>,
    /// Lends pipes.
    pub(crate) pipes: &'w Rc<PipePool>,
}

/// How far a relay has come.
#[derive(Debug)]
pub(crate) struct RelayProgress {
    /// Bytes from near to far.
    pub(crate) up: Cell<u64>,
    /// Bytes from far to near.
    pub(crate) down: Cell<u64>,
    last: Cell<Instant>,
}

impl RelayProgress {
    /// Nothing has moved yet.
    pub(crate) fn new() -> Self {
        RelayProgress {
            up: Cell::new(0),
            down: Cell::new(0),
            last: Cell::new(Instant::now()),
        }
    }

    fn add(&self, counter: &Cell<u64>, count: u64) {
        counter.set(counter.get() + count);
        self.last.set(Instant::now());
    }
}

/// Why a relay ended before both sides had said all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RelayError {
    /// The near side broke.
    #[error("the client: {0}")]
    Downstream(io::Error),
    /// The far side broke.
    #[error("the endpoint: {0}")]
    Upstream(io::Error),
    /// Nothing has moved for too long.
    #[error("silent for too long")]
    Idle,
}

/// Carries bytes both ways. When one side has said all, so is the other told; it may still answer. If one side breaks, both connections are reset,
/// so that nobody takes the break for an end. `heard` is told of bytes as they move: so many up, so many down.
pub(crate) async fn relay(
    tools: RelayPools<'_>,
    idle: Option<Duration>,
    mut near: RelayEnd,
    mut far: RelayEnd,
    moved: &RelayProgress,
    heard: impl Fn(u64, u64),
) -> Result<(), RelayError> {
    if idle.is_none() {
        // A peer that is gone without a word is found by asking for it.
        for end in [&near, &far] {
            end.reader.with_tcp(|tcp| {
                let _ = SockRef::from(tcp).set_tcp_keepalive(&ASKING);
            });
        }
    }
    let carried = {
        let up = Direction {
            tools,
            add: |count| {
                moved.add(&moved.up, count);
                heard(count, 0);
            },
        };
        let down = Direction {
            tools,
            add: |count| {
                moved.add(&moved.down, count);
                heard(0, count);
            },
        };
        let first = std::mem::take(&mut near.first);
        let up = async {
            let carried = up.carry(&mut near.reader, &mut far.writer, first).await;
            carried
                .map_err(|broken| broken.into_error(RelayError::Downstream, RelayError::Upstream))
        };
        let first = std::mem::take(&mut far.first);
        let down = async {
            let carried = down.carry(&mut far.reader, &mut near.writer, first).await;
            carried
                .map_err(|broken| broken.into_error(RelayError::Upstream, RelayError::Downstream))
        };
        let deadline = || idle.map(|idle| moved.last.get() + idle);
        let both = async { tokio::try_join!(up, down) };
        DeadlineTimer::new().run_until(deadline, both).await
    };
    let outcome = match carried {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error),
        Err(Elapsed) => Err(RelayError::Idle),
    };
    for end in [near, far] {
        end.close(matches!(
            outcome,
            Err(RelayError::Downstream(_) | RelayError::Upstream(_))
        ));
    }
    outcome
}

impl RelayEnd {
    /// Both halves of a connection of which nothing was read.
    pub(crate) fn new((reader, writer): (ReadHalf, WriteHalf)) -> Self {
        RelayEnd {
            reader,
            writer,
            first: Vec::new(),
        }
    }

    /// Closes it, or resets it.
    pub(crate) fn close(self, reset: bool) {
        if reset {
            self.reader.with_tcp(|tcp| {
                let _ = SockRef::from(tcp).set_linger(Some(Duration::ZERO));
            });
        }
        if let WriteHalf::Tcp(half) = self.writer {
            // It goes with the other half; alone it would be shut down first, which looks like an end.
            half.forget();
        }
    }
}

/// Which side broke.
enum DirectionError {
    Reading(io::Error),
    Writing(io::Error),
}

impl DirectionError {
    fn into_error(
        self,
        reading: impl Fn(io::Error) -> RelayError,
        writing: impl Fn(io::Error) -> RelayError,
    ) -> RelayError {
        match self {
            DirectionError::Reading(error) => reading(error),
            DirectionError::Writing(error) => writing(error),
        }
    }
}

impl From<SpliceError> for DirectionError {
    fn from(error: SpliceError) -> Self {
        match error {
            SpliceError::Read(error) => DirectionError::Reading(error),
            SpliceError::Write(error) => DirectionError::Writing(error),
        }
    }
}

/// One direction, and who counts its bytes.
struct Direction<'r, F> {
    tools: RelayPools<'r>,
    add: F,
}

impl<F: Fn(u64)> Direction<'_, F> {
    /// Carries all that comes, and tells the end.
    async fn carry(
        &self,
        from: &mut ReadHalf,
        to: &mut WriteHalf,
        first: Vec<u8>,
    ) -> Result<(), DirectionError> {
        if !first.is_empty() {
            self.write(to, &first).await?;
            drop(first);
        }
        loop {
            if self.copy(from, to).await? || self.splice(from, to).await? {
                break;
            }
        }
        match to.shutdown().await {
            // It is gone already. If that was no end, reading says so.
            Err(error) if error.kind() != io::ErrorKind::NotConnected => {
                Err(DirectionError::Writing(error))
            }
            _ => Ok(()),
        }
    }

    /// Copies until the end, which is told, or until it is bulk that sockets can pass on.
    async fn copy(&self, from: &mut ReadHalf, to: &mut WriteHalf) -> Result<bool, DirectionError> {
        let mut full = 0;
        loop {
            let buffer = self.read(from).await.map_err(DirectionError::Reading)?;
            let Some(buffer) = buffer else {
                return Ok(true);
            };
            self.write(to, buffer.filled()).await?;
            full = match buffer.filled().len() {
                BUFFER_BYTES.. => full + 1,
                _ => 0,
            };
            if full >= FULL_READS && from.as_tcp().is_some() && to.as_tcp().is_some() {
                return Ok(false);
            }
        }
    }

    /// Splices until the end, which is told, or until it is no bulk any more.
    async fn splice(&self, from: &ReadHalf, to: &WriteHalf) -> Result<bool, DirectionError> {
        let (Some(from), Some(to)) = (from.as_tcp(), to.as_tcp()) else {
            return Ok(false);
        };
        loop {
            readable(from).await.map_err(DirectionError::Reading)?;
            let Some(mut pipe) = self.tools.pipes.acquire() else {
                return Ok(false);
            };
            match pipe
                .splice_available(from, to, u64::MAX, |count| (self.add)(count as u64))
                .await?
            {
                Spliced::Eof(_) => return Ok(true),
                // Nothing was there after all: that says nothing.
                Spliced::Partial(0 | BULK..) => {}
                Spliced::Partial(_) => return Ok(false),
            }
        }
    }

    /// Waits for bytes, without holding a buffer meanwhile; none is the end.
    async fn read(&self, from: &mut ReadHalf) -> io::Result<Option<Buffer>> {
        poll_fn(|cx| {
            let mut buffer = self.tools.buffers.acquire();
            let count = std::task::ready!(buffer.poll_fill(Pin::new(&mut *from), 0, cx))?;
            Poll::Ready(Ok(Some(buffer).filter(|_| count > 0)))
        })
        .await
    }

    async fn write(&self, to: &mut WriteHalf, bytes: &[u8]) -> Result<(), DirectionError> {
        to.write_all(&mut [bytes])
            .await
            .map_err(DirectionError::Writing)?;
        (self.add)(bytes.len() as u64);
        Ok(())
    }
}

async fn readable(from: &TcpStream) -> io::Result<()> {
    poll_fn(|cx| from.poll_read_ready(cx)).await
}
