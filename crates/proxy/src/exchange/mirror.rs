//! Copies of requests, sent elsewhere. Nobody waits for them, and what they answer is read and dropped.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::spawn_local;

use super::backend::{Backend, Outbound};
use super::lines::Lines;
use crate::http1::Framing;
use crate::upstream::{Upstream, UpstreamProtocol};
use crate::worker::{MirrorTarget, Worker};

/// Copies that a worker sends at once. A mirror that does not keep up loses copies, not the worker its memory.
const MOST: usize = 1024;

/// The copies of one request.
#[derive(Debug, Default)]
pub(crate) struct Copies(Vec<Copy>);

/// One of them. Dropped before the end of the body, it is given up.
#[derive(Debug)]
struct Copy {
    pieces: UnboundedSender<Piece>,
    /// Bytes that wait to be sent.
    lag: Rc<Cell<usize>>,
    worker: Rc<Worker>,
}

/// What a copy is made of.
#[derive(Debug)]
enum Piece {
    Data(Bytes),
    End(Option<HeaderMap>),
}

impl Copies {
    /// Starts those whose turn it is.
    pub(crate) fn start(
        worker: &Rc<Worker>,
        mirrors: &[MirrorTarget],
        outbound: &Outbound<'_>,
        grpc: bool,
    ) -> Self {
        let mut copies = Copies::default();
        for mirror in mirrors.iter().filter(|mirror| mirror.split.hit()) {
            let upstream = &mirror.upstream;
            if worker.mirrored_requests.get() >= MOST {
                worker.metrics.worker_series().dropped_mirrors.increment();
                continue;
            }
            worker.metrics.worker_series().mirrors.increment();
            let (pieces, received) = unbounded_channel();
            let lag = Rc::new(Cell::new(0));
            let sending = Sending {
                head: Owned::new(outbound, mirror.hostname.as_deref()),
                speech: upstream.protocol(grpc),
                upstream: upstream.clone(),
                pieces: received,
                lag: lag.clone(),
            };
            spawn_local(sending.run(worker.clone()));
            copies.0.push(Copy {
                pieces,
                lag,
                worker: worker.clone(),
            });
        }
        if outbound.framing.is_empty() {
            // There is nothing to wait for.
            copies.end(None);
            copies.0.clear();
        }
        copies
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A piece of the body.
    pub(crate) fn piece(&mut self, piece: &[u8]) {
        if self.0.is_empty() {
            return;
        }
        let bytes = Bytes::copy_from_slice(piece);
        self.0.retain(|copy| {
            let lag = copy.lag.get() + bytes.len();
            if lag > copy.worker.limits().mirror_bytes {
                copy.worker
                    .metrics
                    .worker_series()
                    .dropped_mirrors
                    .increment();
                return false;
            }
            copy.lag.set(lag);
            copy.pieces.send(Piece::Data(bytes.clone())).is_ok()
        });
    }

    /// The end of the body.
    pub(crate) fn end(&mut self, trailers: Option<&HeaderMap>) {
        for copy in &self.0 {
            let _ = copy.pieces.send(Piece::End(trailers.cloned()));
        }
    }
}

/// A head of its own: the request may be over before its copy is.
#[derive(Debug)]
struct Owned {
    method: String,
    scheme: &'static str,
    path: String,
    query: Option<String>,
    lines: Vec<(Vec<u8>, Vec<u8>)>,
    framing: Framing,
    takes_trailers: bool,
}

impl Owned {
    fn new(outbound: &Outbound<'_>, hostname: Option<&str>) -> Self {
        let lines = outbound.lines.pairs();
        let value = |name: &[u8], value: &[u8]| match hostname {
            Some(hostname) if name.eq_ignore_ascii_case(b"host") => hostname.into(),
            _ => value.to_vec(),
        };
        Owned {
            method: outbound.method.to_owned(),
            scheme: outbound.scheme,
            path: outbound.path.to_owned(),
            query: outbound.query.map(str::to_owned),
            lines: lines
                .map(|(name, written)| (name.to_vec(), value(name, written)))
                .collect(),
            framing: outbound.framing,
            takes_trailers: outbound.takes_trailers,
        }
    }

    fn outbound(&self) -> Outbound<'_> {
        let lines = self.lines.iter();
        Outbound {
            method: &self.method,
            scheme: self.scheme,
            path: &self.path,
            query: self.query.as_deref(),
            lines: Lines::new(lines.map(|(name, value)| (&name[..], &value[..]))),
            framing: self.framing,
            // What is copied is the request, not a conversation.
            websocket: false,
            takes_trailers: self.takes_trailers,
            uri: None,
        }
    }
}

/// A copy on its way.
struct Sending {
    head: Owned,
    speech: UpstreamProtocol,
    upstream: Rc<Upstream>,
    pieces: UnboundedReceiver<Piece>,
    lag: Rc<Cell<usize>>,
}

impl Sending {
    async fn run(mut self, worker: Rc<Worker>) {
        worker
            .mirrored_requests
            .set(worker.mirrored_requests.get() + 1);
        if self.send(&worker).await.is_none() {
            tracing::debug!(backend = %self.upstream.id, "a mirror's copy was given up");
            worker.metrics.worker_series().dropped_mirrors.increment();
        }
        worker
            .mirrored_requests
            .set(worker.mirrored_requests.get() - 1);
    }

    /// None if it did not get there, or was not answered.
    async fn send(&mut self, worker: &Rc<Worker>) -> Option<()> {
        let mut pick = self.upstream.select(worker, &[], Instant::now())?;
        // A connection that has waited may be closed by now, and nobody would send the copy again.
        let opened = Backend::open(worker, &pick, self.speech, true).await;
        let mut backend = match opened {
            Ok(backend) => backend,
            Err(_) => {
                pick.record_failure();
                return None;
            }
        };
        let outbound = self.head.outbound();
        let (mut sink, mut returning) = backend.begin(worker, &outbound).ok()?;
        let pieces = &mut self.pieces;
        let lag = &self.lag;
        let upload = async {
            loop {
                match pieces.recv().await? {
                    Piece::Data(bytes) => {
                        sink.bytes(&bytes).await.ok()?;
                        sink.flush().await.ok()?;
                        lag.set(lag.get().saturating_sub(bytes.len()));
                    }
                    Piece::End(trailers) => return sink.finish(trailers.map(Box::new)).await.ok(),
                }
            }
        };
        let download = async {
            while !returning.next().await.ok()? {}
            let mut body = returning.body(worker.limits().buffer_bytes);
            while body.ready().await.ok()? {
                body.advance();
            }
            Some(())
        };
        let both = async {
            let (up, down) = tokio::join!(upload, download);
            up.and(down)
        };
        let limit = worker.limits().stall_time;
        tokio::time::timeout(limit, both).await.ok()??;
        drop(returning);
        pick.record_response();
        backend.keep(worker, &pick);
        Some(())
    }
}
