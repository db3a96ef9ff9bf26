//! Moving a body from where it comes to where it goes.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;

use super::sink::{Sink, SinkError};
use super::source::{Source, SourceError};
use super::tap::Tap;
use crate::io::splice::TransferError;
use crate::worker::Worker;

/// Which side a body broke on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FlowError {
    /// Where it comes from.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Where it goes.
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// How far a body has come, for who watches it.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Bytes that went.
    pub(crate) bytes: Cell<u64>,
    /// When it last moved, as far as somebody has asked; none when it is over, or has not begun.
    moved: Cell<Option<Instant>>,
    /// It has moved since. What moves on without waiting never reads the clock.
    moving: Cell<bool>,
    /// It waits for where it comes from, not for where it goes.
    hungry: Cell<bool>,
    /// Whether it may come as slowly as it likes: a stream of events has its own pace.
    patient: Cell<bool>,
    ended: Cell<bool>,
}

impl Progress {
    /// Nothing has moved.
    pub(crate) fn new(patient: bool) -> Self {
        Progress {
            bytes: Cell::new(0),
            moved: Cell::new(None),
            moving: Cell::new(false),
            hungry: Cell::new(false),
            patient: Cell::new(patient),
            ended: Cell::new(false),
        }
    }

    /// So many bytes are on their way.
    pub(crate) fn add(&self, count: usize) {
        self.bytes.set(self.bytes.get() + count as u64);
        self.moving.set(true);
    }

    /// It waits for where it comes from.
    fn wait(&self) {
        self.moving.set(true);
        self.hungry.set(true);
    }

    /// Whether it waits for where it comes from.
    pub(crate) fn is_hungry(&self) -> bool {
        self.hungry.get()
    }

    /// It is over.
    pub(crate) fn end(&self) {
        self.moved.set(None);
        self.moving.set(false);
        self.ended.set(true);
    }

    /// Whether it is over.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// From now on it may come as slowly as it likes.
    pub(crate) fn be_patient(&self) {
        self.patient.set(true);
    }

    /// When it last moved; none if it has nothing to hurry for.
    pub(crate) fn moved(&self) -> Option<Instant> {
        let free = self.hungry.get() && self.patient.get();
        self.last().filter(|_| !free)
    }

    /// When it last moved, be it in a hurry or not.
    pub(crate) fn last(&self) -> Option<Instant> {
        if self.moving.replace(false) {
            self.moved.set(Some(Instant::now()));
        }
        self.moved.get()
    }
}

/// Bodies of which so much is left are moved in bulk.
const BULK: u64 = 128 * 1024;

/// Whether what is left of a body may be moved in bulk: it is large, both sides are plain connections of HTTP/1, and nothing stands between its bytes.
fn is_bulk(source: &Source<'_>, sink: &Sink<'_>) -> bool {
    let (Source::Http1(incoming), Sink::Http1(outgoing)) = (source, sink) else {
        return false;
    };
    let large = incoming.bulk().filter(|(_, left)| *left >= BULK);
    large.is_some_and(|(from, _)| outgoing.is_plain() && from.as_tcp().is_some())
}

/// Moves what is left of a body without looking at it.
async fn bulk(
    worker: &Worker,
    source: &mut Source<'_>,
    sink: &mut Sink<'_>,
    progress: &Progress,
) -> Result<(), FlowError> {
    let (Source::Http1(incoming), Sink::Http1(outgoing)) = (source, &mut *sink) else {
        return Ok(());
    };
    let Some(mut pipe) = worker.pipes.acquire() else {
        return Ok(());
    };
    outgoing.flush().await.map_err(SinkError::from)?;
    let Some((from, left)) = incoming.bulk() else {
        return Ok(());
    };
    let (Some(from), Some(to)) = (from.as_tcp(), outgoing.as_tcp()) else {
        return Ok(());
    };
    let moved = pipe
        .splice_exact(from, to, left, |count| progress.add(count))
        .await;
    let moved = moved.map_err(|error| match error {
        TransferError::Read(error) => FlowError::Source(error.into()),
        TransferError::Write(error) => FlowError::Sink(error.into()),
    })?;
    incoming.moved(moved);
    outgoing.moved(moved).map_err(SinkError::from)?;
    Ok(())
}

/// Moves a message's body to its end, trailers included.
pub(crate) async fn carry(
    worker: &Worker,
    source: &mut Source<'_>,
    sink: &mut Sink<'_>,
    progress: &Progress,
) -> Result<(), FlowError> {
    carry_data(worker, source, sink, None, progress).await?;
    sink.finish(source.trailers()).await?;
    progress.end();
    Ok(())
}

/// Moves the data of a body to its end. Data that is gathered leaves whenever no more is there to be gathered.
pub(crate) async fn carry_data(
    worker: &Worker,
    source: &mut Source<'_>,
    sink: &mut Sink<'_>,
    mut tap: Option<&mut Tap>,
    progress: &Progress,
) -> Result<(), FlowError> {
    loop {
        if is_bulk(source, sink) && tap.as_ref().is_none_or(|tap| tap.is_idle()) {
            // Boxed: few bodies are large, and all others would pay for its room.
            Box::pin(bulk(worker, source, sink, progress)).await?;
        }
        let there = poll_fn(|cx| match source.poll_ready(cx) {
            Poll::Ready(there) => Poll::Ready(there.map(Some)),
            Poll::Pending => Poll::Ready(Ok(None)),
        });
        let there = match there.await? {
            Some(there) => there,
            None => {
                sink.flush().await?;
                progress.wait();
                let there = source.ready().await?;
                progress.hungry.set(false);
                there
            }
        };
        if !there {
            return Ok(());
        }
        progress.add(source.piece().len());
        if let Some(tap) = &mut tap {
            tap.piece(source.piece());
        }
        sink.pass(source).await?;
        if let Some(tap) = &mut tap {
            tap.passed();
        }
    }
}
