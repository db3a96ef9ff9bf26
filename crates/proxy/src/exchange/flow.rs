//! Moving a body from where it comes to where it goes.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;

use super::sink::{Sink, SinkError};
use super::source::{Source, SourceError};
use super::tap::Tap;

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
    /// When it last moved; none when it is over, or has not begun.
    pub(crate) moved: Cell<Option<Instant>>,
}

impl Progress {
    /// Nothing has moved.
    pub(crate) fn new() -> Self {
        Progress {
            bytes: Cell::new(0),
            moved: Cell::new(None),
        }
    }

    /// So many bytes are on their way.
    pub(crate) fn add(&self, count: usize) {
        self.bytes.set(self.bytes.get() + count as u64);
        self.moved.set(Some(Instant::now()));
    }
}

/// Moves a body to its end, trailers included. What is gathered leaves whenever nothing more is there to be gathered.
pub(crate) async fn carry(
    source: &mut Source<'_>,
    sink: &mut Sink<'_>,
    mut tap: Option<&mut Tap>,
    progress: &Progress,
) -> Result<(), FlowError> {
    loop {
        let there = poll_fn(|cx| match source.poll_ready(cx) {
            Poll::Ready(there) => Poll::Ready(there.map(Some)),
            Poll::Pending => Poll::Ready(Ok(None)),
        });
        let there = match there.await? {
            Some(there) => there,
            None => {
                sink.flush().await?;
                progress.moved.set(Some(Instant::now()));
                source.ready().await?
            }
        };
        if !there {
            break;
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
    let trailers = source.trailers();
    if let Some(tap) = &mut tap {
        tap.end(trailers.as_ref());
    }
    sink.finish(trailers).await?;
    progress.moved.set(None);
    Ok(())
}
