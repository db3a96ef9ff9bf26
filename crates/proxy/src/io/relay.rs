//! Bidirectional byte relay between two connections.
//!
//! Each direction copies through a pooled buffer, which it holds only while there are bytes to copy. A plaintext direction with a high volume switches to
//! [`splice`](super::splice), and back when the volume drops.

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
use super::splice::{PipePool, Spliced, TransferError};
use super::stream::{ReadHalf, WriteHalf};

/// Number of consecutive reads that have to fill the buffer before a direction is spliced.
const BULK_READS: u32 = 4;

/// Smallest number of bytes per wake-up for which a direction continues to splice.
const MIN_BULK: u64 = BUFFER_BYTES as u64;

/// TCP keepalive where there is no idle timeout: probes after a minute of silence.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new().with_time(Duration::from_secs(60));

/// One of the two connections of a relay.
#[derive(Debug)]
pub(crate) struct RelayEnd {
    pub(crate) reader: ReadHalf,
    pub(crate) writer: WriteHalf,
    /// Bytes that were read from it already.
    pub(crate) prefix: Vec<u8>,
}

/// Resources of the worker that a relay uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RelayPools<'w> {
    pub(crate) buffers: &'w Rc<BufferPool>,
    pub(crate) pipes: &'w Rc<PipePool>,
}

/// Byte counts of a relay, and the time of the last transfer.
#[derive(Debug)]
pub(crate) struct RelayProgress {
    pub(crate) to_upstream: Cell<u64>,
    pub(crate) to_downstream: Cell<u64>,
    last: Cell<Instant>,
}

impl RelayProgress {
    /// Creates zero counts.
    pub(crate) fn new() -> Self {
        RelayProgress {
            to_upstream: Cell::new(0),
            to_downstream: Cell::new(0),
            last: Cell::new(Instant::now()),
        }
    }

    fn record(&self, counter: &Cell<u64>, count: u64) {
        counter.set(counter.get() + count);
        self.last.set(Instant::now());
    }
}

/// Reason why a relay ended before both sides had finished.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RelayError {
    #[error("client connection failed: {0}")]
    Downstream(io::Error),
    #[error("endpoint connection failed: {0}")]
    Upstream(io::Error),
    /// No bytes were transferred within the idle timeout.
    #[error("idle timeout")]
    Idle,
}

/// Relays bytes in both directions. A half-close on one side is propagated to the other, which may still send. If one side fails, both connections are reset,
/// so that neither takes the failure for an orderly end. `on_bytes` is called with the bytes sent upstream and downstream as they are transferred.
pub(crate) async fn relay(
    pools: RelayPools<'_>,
    idle: Option<Duration>,
    mut downstream: RelayEnd,
    mut upstream: RelayEnd,
    progress: &RelayProgress,
    on_bytes: impl Fn(u64, u64),
) -> Result<(), RelayError> {
    if idle.is_none() {
        // Keepalive probes detect a peer that has vanished.
        for end in [&downstream, &upstream] {
            end.reader.with_tcp(|tcp| {
                let _ = SockRef::from(tcp).set_tcp_keepalive(&KEEPALIVE);
            });
        }
    }
    let relayed = {
        let up = Direction {
            pools,
            on_bytes: |count| {
                progress.record(&progress.to_upstream, count);
                on_bytes(count, 0);
            },
        };
        let down = Direction {
            pools,
            on_bytes: |count| {
                progress.record(&progress.to_downstream, count);
                on_bytes(0, count);
            },
        };
        let prefix = std::mem::take(&mut downstream.prefix);
        let up = async {
            let forwarded = up
                .forward(&mut downstream.reader, &mut upstream.writer, prefix)
                .await;
            forwarded
                .map_err(|error| error.split_by_side(RelayError::Downstream, RelayError::Upstream))
        };
        let prefix = std::mem::take(&mut upstream.prefix);
        let down = async {
            let forwarded = down
                .forward(&mut upstream.reader, &mut downstream.writer, prefix)
                .await;
            forwarded
                .map_err(|error| error.split_by_side(RelayError::Upstream, RelayError::Downstream))
        };
        let deadline = || idle.map(|idle| progress.last.get() + idle);
        let both = async { tokio::try_join!(up, down) };
        DeadlineTimer::new().run_until(deadline, both).await
    };
    let outcome = match relayed {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error),
        Err(Elapsed) => Err(RelayError::Idle),
    };
    for end in [downstream, upstream] {
        end.close(matches!(
            outcome,
            Err(RelayError::Downstream(_) | RelayError::Upstream(_))
        ));
    }
    outcome
}

impl RelayEnd {
    /// Takes both halves of a connection of which nothing was read yet.
    pub(crate) fn new((reader, writer): (ReadHalf, WriteHalf)) -> Self {
        RelayEnd {
            reader,
            writer,
            prefix: Vec::new(),
        }
    }

    /// Closes or resets the connection.
    pub(crate) fn close(self, reset: bool) {
        if reset {
            self.reader.with_tcp(|tcp| {
                let _ = SockRef::from(tcp).set_linger(Some(Duration::ZERO));
            });
        }
        if let WriteHalf::Tcp(half) = self.writer {
            // The socket closes with the other half. Dropping this one would send a FIN first, which looks like an orderly end.
            half.forget();
        }
    }
}

/// One direction of a relay.
struct Direction<'r, F> {
    pools: RelayPools<'r>,
    /// Called with numbers of transferred bytes.
    on_bytes: F,
}

impl<F: Fn(u64)> Direction<'_, F> {
    /// Transfers everything, then the end of the stream.
    async fn forward(
        &self,
        from: &mut ReadHalf,
        to: &mut WriteHalf,
        prefix: Vec<u8>,
    ) -> Result<(), TransferError> {
        if !prefix.is_empty() {
            self.write(to, &prefix).await?;
            drop(prefix);
        }
        loop {
            if self.copy(from, to).await? || self.splice(from, to).await? {
                break;
            }
        }
        match to.shutdown().await {
            // The connection is gone already; if it was not an orderly end, the read side reports it.
            Err(error) if error.kind() != io::ErrorKind::NotConnected => {
                Err(TransferError::Write(error))
            }
            _ => Ok(()),
        }
    }

    /// Copies until the end of the stream, then returns true; returns false when bulk can be spliced instead.
    async fn copy(&self, from: &mut ReadHalf, to: &mut WriteHalf) -> Result<bool, TransferError> {
        let mut full = 0;
        loop {
            let buffer = self.read(from).await.map_err(TransferError::Read)?;
            let Some(buffer) = buffer else {
                return Ok(true);
            };
            self.write(to, buffer.filled()).await?;
            full = match buffer.filled().len() {
                BUFFER_BYTES.. => full + 1,
                _ => 0,
            };
            if full >= BULK_READS && from.as_tcp().is_some() && to.as_tcp().is_some() {
                return Ok(false);
            }
        }
    }

    /// Splices until the end of the stream, then returns true; returns false when it is no longer bulk.
    async fn splice(&self, from: &ReadHalf, to: &WriteHalf) -> Result<bool, TransferError> {
        let (Some(from), Some(to)) = (from.as_tcp(), to.as_tcp()) else {
            return Ok(false);
        };
        loop {
            readable(from).await.map_err(TransferError::Read)?;
            let Some(mut pipe) = self.pools.pipes.acquire() else {
                return Ok(false);
            };
            match pipe
                .splice_available(from, to, u64::MAX, |count| (self.on_bytes)(count as u64))
                .await?
            {
                Spliced::Eof(_) => return Ok(true),
                // A spurious wake-up says nothing about the volume.
                Spliced::Partial(0 | MIN_BULK..) => {}
                Spliced::Partial(_) => return Ok(false),
            }
        }
    }

    /// Waits for bytes, without holding a buffer meanwhile; `None` at the end of the stream.
    async fn read(&self, from: &mut ReadHalf) -> io::Result<Option<Buffer>> {
        poll_fn(|cx| {
            let mut buffer = self.pools.buffers.acquire();
            let count = std::task::ready!(buffer.poll_fill(Pin::new(&mut *from), 0, cx))?;
            Poll::Ready(Ok(Some(buffer).filter(|_| count > 0)))
        })
        .await
    }

    async fn write(&self, to: &mut WriteHalf, bytes: &[u8]) -> Result<(), TransferError> {
        to.write_all(&mut [bytes])
            .await
            .map_err(TransferError::Write)?;
        (self.on_bytes)(bytes.len() as u64);
        Ok(())
    }
}

async fn readable(from: &TcpStream) -> io::Result<()> {
    poll_fn(|cx| from.poll_read_ready(cx)).await
}
