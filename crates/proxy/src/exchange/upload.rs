//! Sending of the request's body, concurrently with the response.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use pointsman_routing::action::Forward;

use super::copy::{CopyError, Progress, copy_data};
use super::failure::{Failure, upload_failure};
use super::replay_buffer::ReplayBuffer;
use super::sink::Sink;
use super::source::Source;
use super::trailers;
use crate::worker::Worker;

/// The transfer of a request's body.
pub(super) struct Upload<'u, F> {
    work: Pin<&'u mut F>,
    /// The transfer has ended, successfully or not.
    done: bool,
    /// The body was sent completely.
    pub(super) sent: bool,
}

/// Future that sends a request's body.
pub(super) trait SendBody: Future<Output = Result<(), CopyError>> {}

impl<F: Future<Output = Result<(), CopyError>>> SendBody for F {}

impl<'u, F: SendBody> Upload<'u, F> {
    pub(super) fn new(work: Pin<&'u mut F>) -> Self {
        Upload {
            work,
            done: false,
            sent: false,
        }
    }

    /// Waits for `work` while the upload continues. Fails if the client is at fault.
    pub(super) async fn run_alongside<W: Future>(
        &mut self,
        mut work: Pin<&mut W>,
    ) -> Result<W::Output, Failure> {
        poll_fn(|cx| {
            if let Err(failure) = self.poll(cx) {
                return Poll::Ready(Err(failure));
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Polls the transfer. Fails if the client is at fault. If the backend stops reading, its response may still follow.
    fn poll(&mut self, cx: &mut Context<'_>) -> Result<(), Failure> {
        if self.done {
            return Ok(());
        }
        match self.work.as_mut().poll(cx) {
            Poll::Pending => Ok(()),
            Poll::Ready(Err(CopyError::Source(error))) => Err(upload_failure(error)),
            Poll::Ready(sent) => {
                self.done = true;
                self.sent = sent.is_ok();
                Ok(())
            }
        }
    }
}

/// Sends the request's body: first the part recorded by an earlier attempt, then the rest. For a WebSocket, sends only the head; data follows after the
/// upgrade.
pub(super) async fn send(
    worker: &Worker,
    forward: &Forward<'_>,
    source: &mut Source<'_>,
    sink: &mut Sink<'_>,
    replay: &mut ReplayBuffer,
    progress: &Progress,
    websocket: bool,
) -> Result<(), CopyError> {
    let sent = async {
        if websocket {
            return Ok(sink.flush().await?);
        }
        // An earlier attempt recorded this piece and was cancelled before sending it. It is sent from the buffer below.
        if replay.has_unsent() {
            source.advance();
            replay.mark_sent();
        }
        if !replay.recorded().is_empty() {
            let kept = replay.recorded().to_vec();
            progress.add(kept.len());
            sink.write(&kept).await?;
        }
        match replay.ended() {
            Some(trailers) => Ok(sink.finish(trailers).await?),
            None => {
                copy_data(worker, source, sink, Some(replay), progress).await?;
                let trailers = trailers::forwarded(source.trailers(), forward);
                replay.end(trailers.as_deref());
                Ok(sink.finish(trailers).await?)
            }
        }
    }
    .await;
    progress.end();
    sent
}
