//! The request's body on its way to the backend, beside the response.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use pointsman_routing::action::Forward;

use super::failure::{Failure, client_fault};
use super::flow::{FlowError, Progress, carry_data};
use super::sink::Sink;
use super::source::Source;
use super::tap::Tap;
use super::trailers;
use crate::worker::Worker;

/// The request's body on its way.
pub(super) struct Upload<'u, F> {
    work: Pin<&'u mut F>,
    /// It goes no further.
    done: bool,
    /// All of it went.
    pub(super) sent: bool,
}

/// The future that sends a request's body.
pub(super) trait SendBody: Future<Output = Result<(), FlowError>> {}

impl<F: Future<Output = Result<(), FlowError>>> SendBody for F {}

impl<'u, F: SendBody> Upload<'u, F> {
    pub(super) fn new(work: Pin<&'u mut F>) -> Self {
        Upload {
            work,
            done: false,
            sent: false,
        }
    }

    /// Waits for `work` while the upload goes on.
    pub(super) async fn beside<W: Future>(
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

    /// Moves it on. Fails if the client is at fault; a backend that takes no more may have answered all the same.
    fn poll(&mut self, cx: &mut Context<'_>) -> Result<(), Failure> {
        if self.done {
            return Ok(());
        }
        match self.work.as_mut().poll(cx) {
            Poll::Pending => Ok(()),
            Poll::Ready(Err(FlowError::Source(error))) => Err(client_fault(error)),
            Poll::Ready(sent) => {
                self.done = true;
                self.sent = sent.is_ok();
                Ok(())
            }
        }
    }
}

/// Sends the request's body: what was kept of it by an earlier try, then the rest. What comes of a WebSocket waits until both sides have agreed; its head is sent.
pub(super) async fn send(
    worker: &Worker,
    forward: &Forward<'_>,
    source: &mut Source<'_>,
    sink: &mut Sink<'_>,
    tap: &mut Tap,
    progress: &Progress,
    websocket: bool,
) -> Result<(), FlowError> {
    let sent = async {
        if websocket {
            return Ok(sink.flush().await?);
        }
        // A piece that was kept and not sent by a try that was given up: it is not to be sent twice.
        if tap.is_passing() {
            source.advance();
            tap.passed();
        }
        if !tap.kept().is_empty() {
            let kept = tap.kept().to_vec();
            progress.add(kept.len());
            sink.bytes(&kept).await?;
        }
        match tap.ended() {
            Some(trailers) => Ok(sink.finish(trailers).await?),
            None => {
                carry_data(worker, source, sink, Some(tap), progress).await?;
                let trailers = trailers::forwarded(source.trailers(), forward);
                tap.end(trailers.as_deref());
                Ok(sink.finish(trailers).await?)
            }
        }
    }
    .await;
    progress.end();
    sent
}
