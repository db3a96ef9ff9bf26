//! A client's connection that speaks HTTP/1: requests one after the other.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use super::http2::{self, PREFACE};
use tokio::task::spawn_local;

use crate::downstream::ClientConnection;
use crate::exchange;
use crate::exchange::answer::Answer;
use crate::exchange::client::{Client, Http1Client};
use crate::exchange::lines::Lines;
use crate::exchange::report::{self, Said};
use crate::exchange::request::{Request, Spoken};
use crate::exchange::source::{Incoming, Source};
use crate::http1::{BodyDecoder, Error, Limits, RequestHead, Version};
use crate::wire::alarm::Alarm;
use crate::wire::bell::Place;
use crate::wire::buffer::Buffer;
use crate::wire::io::{Prefixed, Reader, Writer, unsplit};
use crate::wire::linger::{LINGER, linger};
use crate::worker::Worker;

/// Serves a connection until it ends.
pub(crate) async fn serve(
    worker: Rc<Worker>,
    passage: ClientConnection,
    mut reader: Reader,
    mut writer: Writer,
) {
    let mut connection = Connection {
        limits: worker.limits().of_requests(),
        alarm: Alarm::new(),
        head: RequestHead::new(),
        bytes: Vec::new(),
        out: Vec::new(),
        begun: Instant::now(),
    };
    let mut closed = passage.socket.closed.place();
    let mut first = true;
    let mut rest: Option<Buffer> = None;
    loop {
        let came = connection
            .next(
                &worker,
                &passage,
                &mut closed,
                &mut reader,
                rest.take(),
                first,
            )
            .await;
        let mut buffer = match came {
            Next::Request(buffer) => buffer,
            Next::End => break,
            Next::Http2(buffer) => {
                let read = buffer.filled().to_vec();
                drop(buffer);
                if let Some(stream) = unsplit(reader, writer) {
                    // In a task of its own, so that neither pays for the other's room.
                    let stream = Prefixed::new(read, stream);
                    drop(closed);
                    spawn_local(http2::serve(worker, passage, stream));
                }
                return;
            }
            Next::Refused(answer) => {
                connection
                    .refuse(&worker, &passage, &mut writer, answer)
                    .await;
                linger(&mut reader, &mut writer).await;
                break;
            }
        };
        first = false;
        let keep = connection
            .exchange(&worker, &passage, &mut reader, &mut writer, &mut buffer)
            .await;
        if !keep {
            linger(&mut reader, &mut writer).await;
            break;
        }
        rest = Some(buffer).filter(|buffer| !buffer.is_empty());
    }
    if let Writer::Tcp(half) = writer {
        // Dropping both halves closes the socket; the half alone would be shut down first.
        half.forget();
    }
}

/// What is kept of a connection from one request to the next.
struct Connection {
    limits: Limits,
    alarm: Alarm,
    head: RequestHead,
    /// The bytes of the head.
    bytes: Vec<u8>,
    /// What waits to be written.
    out: Vec<u8>,
    /// When the first bytes of the head came.
    begun: Instant,
}

/// What came.
enum Next {
    /// A request's head, with what follows it.
    Request(Buffer),
    /// The preface of HTTP/2, and what follows it.
    Http2(Buffer),
    /// The end.
    End,
    /// Something that is no request.
    Refused(Answer),
}

impl Connection {
    /// Waits for a request's head.
    async fn next(
        &mut self,
        worker: &Rc<Worker>,
        passage: &ClientConnection,
        closed: &mut Place<'_>,
        reader: &mut Reader,
        rest: Option<Buffer>,
        first: bool,
    ) -> Next {
        let limits = worker.limits();
        let mut buffer = match rest {
            Some(buffer) => buffer,
            None => {
                let patience = if first {
                    limits.head_time
                } else {
                    limits.idle_time
                };
                match self.wait(worker, passage, closed, reader, patience).await {
                    Some(buffer) => buffer,
                    None => return Next::End,
                }
            }
        };
        self.begun = Instant::now();
        let deadline = self.begun + limits.head_time;
        let most = self.limits.field_bytes + self.limits.target_bytes + 1024;
        loop {
            // RFC 9113 §3.3: a client that knows begins with the preface of HTTP/2. A part of it is no request of HTTP/1 either.
            if first && buffer.filled().starts_with(PREFACE) {
                return Next::Http2(buffer);
            }
            if !first || !PREFACE.starts_with(buffer.filled()) {
                match self.head.parse(buffer.filled(), &self.limits) {
                    Err(_) if first && !is_http(buffer.filled()) => return Next::End,
                    Err(error) => return Next::Refused(Answer::refused(error)),
                    Ok(Some(length)) => {
                        self.bytes.clear();
                        self.bytes.extend_from_slice(&buffer.filled()[..length]);
                        buffer.consume(length);
                        return Next::Request(buffer);
                    }
                    Ok(None) => {}
                }
            }
            let filling = buffer.fill(reader, most);
            match passage.until(&mut self.alarm, deadline, filling).await {
                Err(_) => {
                    let message = "the head of the request took too long";
                    let answer = Answer::new(408, "HeadTimeout", message);
                    return Next::Refused(match passage.socket.closed.has_rung() {
                        true => answer,
                        false => answer.beyond("head-time"),
                    });
                }
                Ok(Ok(0)) if buffer.is_empty() => return Next::End,
                Ok(Ok(0)) => {
                    let error = Error::Client(crate::http1::Fault::IncompleteHead);
                    return Next::Refused(Answer::refused(error));
                }
                Ok(Ok(_)) => {}
                Ok(Err(_)) => return Next::End,
            }
        }
    }

    /// Waits for the first bytes of a request. No buffer is held meanwhile.
    async fn wait(
        &mut self,
        worker: &Rc<Worker>,
        passage: &ClientConnection,
        closed: &mut Place<'_>,
        reader: &mut Reader,
        patience: Duration,
    ) -> Option<Buffer> {
        let came = poll_fn(|cx| {
            let mut buffer = worker.buffers.lend();
            match buffer.poll_fill(Pin::new(&mut *reader), 0, cx) {
                Poll::Ready(Ok(1..)) => Poll::Ready(Some(buffer)),
                Poll::Ready(_) => Poll::Ready(None),
                // Others need the room, and no request is on its way.
                Poll::Pending
                    if passage.admission.poll_idle(cx).is_ready() && reader.is_drained() =>
                {
                    Poll::Ready(None)
                }
                // A socket that was closed waits for no more requests.
                Poll::Pending => closed.poll(cx).map(|()| None),
            }
        });
        let came = self.alarm.within(patience, came).await;
        passage.admission.set_busy();
        if came.is_err() {
            tracing::debug!(client = %passage.resolved.client, ?patience, "no request came in time");
        }
        came.ok().flatten()
    }

    /// Carries out the request whose head was read. Returns whether another one may follow.
    async fn exchange(
        &mut self,
        worker: &Rc<Worker>,
        passage: &ClientConnection,
        reader: &mut Reader,
        writer: &mut Writer,
        buffer: &mut Buffer,
    ) -> bool {
        let view = self.head.view(&self.bytes);
        let head = view.head();
        let spoken = match head.version() {
            Version::Http10 => Spoken::Http10,
            Version::Http11 => Spoken::Http11,
        };
        let request = Request {
            spoken,
            method: view.method(),
            authority: view.authority(),
            path: view.path(),
            query: view.query(),
            lines: Lines::new(view.fields().forwarded()),
            framing: head.framing(),
            websocket: view.opens_websocket(),
            expects_continue: head.expects_continue() && buffer.is_empty(),
            takes_trailers: head.takes_trailers(),
            uri: None,
        };
        let decoder = BodyDecoder::new(head.framing(), &self.limits);
        let most = worker.limits().buffer_bytes;
        let mut source = Source::Http1(Incoming::new(reader, buffer, decoder, most));
        let keep = head.keep_alive() && !passage.socket.closed.has_rung();
        let head_only = request.method == "HEAD";
        let mut client = Client::Http1(Http1Client::new(
            writer,
            &mut self.out,
            spoken,
            head_only,
            keep,
        ));
        let begun = self.begun;
        exchange::run(
            worker,
            passage,
            &mut self.alarm,
            &request,
            &mut source,
            &mut client,
            begun,
        )
        .await
    }

    /// Answers what is no request.
    async fn refuse(
        &mut self,
        worker: &Rc<Worker>,
        passage: &ClientConnection,
        writer: &mut Writer,
        answer: Answer,
    ) {
        answer.count(worker, passage.resolved.client);
        let client = Http1Client::new(writer, &mut self.out, Spoken::Http11, false, false);
        let mut client = Client::Http1(client);
        let date = worker.date();
        let given = answer.give(&mut client, false, &date);
        let given = self.alarm.within(LINGER, given).await;
        let bytes = given.ok().and_then(Result::ok).unwrap_or(0);
        let said = Said::default();
        report::refused(
            worker,
            passage,
            Spoken::Http11,
            self.begun,
            &said,
            (&answer, bytes),
        );
    }
}

/// Whether a first line may be meant as one of HTTP. Who sends another protocol's, such as a broken preface of HTTP/2, would not understand an answer.
fn is_http(bytes: &[u8]) -> bool {
    let line = bytes
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ').skip(2);
    match (words.next(), words.next()) {
        (Some(version), None) => version.contains(&b'/'),
        _ => true,
    }
}
