//! Copying bodies from a source to a sink.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;

use super::replay_buffer::ReplayBuffer;
use super::sink::{Sink, SinkError};
use super::source::{Source, SourceError};
use crate::io::splice::TransferError;
use crate::worker::Worker;

/// Failure to copy a body, by the side at fault.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// Progress of a copy, shared with the timeouts that observe it.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Number of bytes copied.
    pub(crate) bytes: Cell<u64>,
    /// Time of the last progress that was observed; `None` before the start and after the end.
    last_activity: Cell<Option<Instant>>,
    /// There was progress since the last observation. The clock is read only on observation.
    active: Cell<bool>,
    /// The copy waits for the source, not for the sink.
    waiting_for_source: Cell<bool>,
    /// The source may pause for any time, as in a stream of events.
    may_idle: Cell<bool>,
    ended: Cell<bool>,
}

impl Progress {
    /// Creates the progress of a copy that has not started.
    pub(crate) fn new(may_idle: bool) -> Self {
        Progress {
            bytes: Cell::new(0),
            last_activity: Cell::new(None),
            active: Cell::new(false),
            waiting_for_source: Cell::new(false),
            may_idle: Cell::new(may_idle),
            ended: Cell::new(false),
        }
    }

    /// Records copied bytes.
    pub(crate) fn add(&self, count: usize) {
        self.bytes.set(self.bytes.get() + count as u64);
        self.active.set(true);
    }

    /// Records that the copy waits for the source.
    fn set_waiting_for_source(&self) {
        self.active.set(true);
        self.waiting_for_source.set(true);
    }

    /// Returns whether the copy waits for the source.
    pub(crate) fn is_waiting_for_source(&self) -> bool {
        self.waiting_for_source.get()
    }

    /// Records the end.
    pub(crate) fn end(&self) {
        self.last_activity.set(None);
        self.active.set(false);
        self.ended.set(true);
    }

    /// Returns whether the copy has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// Allows the source to pause for any time.
    pub(crate) fn allow_idle(&self) {
        self.may_idle.set(true);
    }

    /// Returns the time of the last progress, from which the stall timeout runs; `None` while pauses are allowed.
    pub(crate) fn stall_start(&self) -> Option<Instant> {
        let may_pause = self.waiting_for_source.get() && self.may_idle.get();
        self.last_activity().filter(|_| !may_pause)
    }

    /// Returns the time of the last progress.
    pub(crate) fn last_activity(&self) -> Option<Instant> {
        if self.active.replace(false) {
            self.last_activity.set(Some(Instant::now()));
        }
        self.last_activity.get()
    }
}

/// Minimum number of remaining bytes for which a splice pays off.
const SPLICE_MIN_BYTES: u64 = 128 * 1024;

/// Returns whether the rest of a body can be spliced: it is large, both sides are HTTP/1 without TLS, and it is not chunked.
fn can_splice(source: &Source<'_>, sink: &Sink<'_>) -> bool {
    let (Source::Http1(source), Sink::Http1(sink)) = (source, sink) else {
        return false;
    };
    let large = source
        .spliceable()
        .filter(|(_, left)| *left >= SPLICE_MIN_BYTES);
    large.is_some_and(|(from, _)| sink.is_plain() && from.as_tcp().is_some())
}

/// Transfers the rest of a body in the kernel.
async fn splice(
    worker: &Worker,
    source: &mut Source<'_>,
    sink: &mut Sink<'_>,
    progress: &Progress,
) -> Result<(), CopyError> {
    let (Source::Http1(source), Sink::Http1(sink)) = (source, &mut *sink) else {
        return Ok(());
    };
    let Some(mut pipe) = worker.pipes.acquire() else {
        return Ok(());
    };
    sink.flush().await.map_err(SinkError::from)?;
    let Some((from, left)) = source.spliceable() else {
        return Ok(());
    };
    let (Some(from), Some(to)) = (from.as_tcp(), sink.as_tcp()) else {
        return Ok(());
    };
    let moved = pipe
        .splice_exact(from, to, left, |count| progress.add(count))
        .await;
    let moved = moved.map_err(|error| match error {
        TransferError::Read(error) => CopyError::Source(error.into()),
        TransferError::Write(error) => CopyError::Sink(error.into()),
    })?;
    source.record_spliced(moved);
    sink.record_spliced(moved).map_err(SinkError::from)?;
    Ok(())
}

/// Copies a body with its trailers.
pub(crate) async fn copy_body(
    worker: &Worker,
    source: &mut Source<'_>,
    sink: &mut Sink<'_>,
    progress: &Progress,
) -> Result<(), CopyError> {
    copy_data(worker, source, sink, None, progress).await?;
    sink.finish(source.trailers()).await?;
    progress.end();
    Ok(())
}

/// Copies a body without its trailers. The sink is flushed whenever the source has no data ready.
pub(crate) async fn copy_data(
    worker: &Worker,
    source: &mut Source<'_>,
    sink: &mut Sink<'_>,
    mut replay: Option<&mut ReplayBuffer>,
    progress: &Progress,
) -> Result<(), CopyError> {
    loop {
        if can_splice(source, sink) && replay.as_ref().is_none_or(|replay| replay.is_inactive()) {
            // Boxed: large bodies are rare, and the future of every exchange would be larger.
            Box::pin(splice(worker, source, sink, progress)).await?;
        }
        let has_data = poll_fn(|cx| match source.poll_ready(cx) {
            Poll::Ready(has_data) => Poll::Ready(has_data.map(Some)),
            Poll::Pending => Poll::Ready(Ok(None)),
        });
        let has_data = match has_data.await? {
            Some(has_data) => has_data,
            None => {
                sink.flush().await?;
                progress.set_waiting_for_source();
                let has_data = source.ready().await?;
                progress.waiting_for_source.set(false);
                has_data
            }
        };
        if !has_data {
            return Ok(());
        }
        progress.add(source.piece().len());
        if let Some(replay) = &mut replay {
            replay.record(source.piece());
        }
        sink.write_from(source).await?;
        if let Some(replay) = &mut replay {
            replay.mark_sent();
        }
    }
}
