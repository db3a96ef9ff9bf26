//! Mirrored requests. They never delay the original request, and their responses are discarded.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::backend::{UpstreamConnection, UpstreamRequest};
use super::headers::Headers;
use crate::http1::Framing;
use crate::io::task::spawn_within;
use crate::sockets::SocketFactory;
use crate::upstream::{Upstream, UpstreamProtocol};
use crate::worker::{MirrorTarget, Worker};

/// Maximum number of concurrent copies per worker. Further copies are dropped, so that a slow mirror does not exhaust memory.
const MAX_CONCURRENT_COPIES: usize = 1024;

/// Bound for the size of a copy's future.
const COPY_BYTES: usize = 2288;

/// The mirrored copies of one request.
#[derive(Debug, Default)]
pub(crate) struct MirrorCopies(Vec<MirrorCopy>);

/// A mirrored copy. Dropping it before the end of the body cancels the copy.
#[derive(Debug)]
struct MirrorCopy {
    parts: UnboundedSender<BodyPart>,
    /// Bytes received from the client and not yet sent to the mirror.
    queued_bytes: Rc<Cell<usize>>,
    worker: Rc<Worker>,
}

/// A part of a mirrored body.
#[derive(Debug)]
enum BodyPart {
    Data(Bytes),
    End(Option<HeaderMap>),
}

impl MirrorCopies {
    /// Starts the copies that are due by their mirrors' percentages.
    pub(crate) fn start(
        worker: &Rc<Worker>,
        sockets: &Rc<SocketFactory>,
        mirrors: &[MirrorTarget],
        upstream_request: &UpstreamRequest<'_>,
        grpc: bool,
    ) -> Self {
        let mut copies = MirrorCopies::default();
        for mirror in mirrors
            .iter()
            .filter(|mirror| mirror.selector.is_selected())
        {
            let upstream = &mirror.upstream;
            if worker.mirrored_requests.get() >= MAX_CONCURRENT_COPIES {
                worker.metrics.worker_series().dropped_mirrors.increment();
                continue;
            }
            worker.metrics.worker_series().mirrors.increment();
            let (parts, received) = unbounded_channel();
            let queued_bytes = Rc::new(Cell::new(0));
            let sending = MirrorTask {
                head: OwnedRequest::new(upstream_request, mirror.hostname.as_deref()),
                protocol: upstream.protocol(grpc),
                upstream: upstream.clone(),
                sockets: sockets.clone(),
                parts: received,
                queued_bytes: queued_bytes.clone(),
            };
            spawn_within::<COPY_BYTES, _>(sending.run(worker.clone()));
            copies.0.push(MirrorCopy {
                parts,
                queued_bytes,
                worker: worker.clone(),
            });
        }
        if upstream_request.framing.is_empty() {
            // There is no body.
            copies.end(None);
            copies.0.clear();
        }
        copies
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sends a piece of the body to all mirrors.
    pub(crate) fn send(&mut self, piece: &[u8]) {
        if self.0.is_empty() {
            return;
        }
        let bytes = Bytes::copy_from_slice(piece);
        self.0.retain(|copy| {
            let queued_bytes = copy.queued_bytes.get() + bytes.len();
            if queued_bytes > copy.worker.limits().mirror_bytes {
                copy.worker
                    .metrics
                    .worker_series()
                    .dropped_mirrors
                    .increment();
                return false;
            }
            copy.queued_bytes.set(queued_bytes);
            copy.parts.send(BodyPart::Data(bytes.clone())).is_ok()
        });
    }

    /// Ends the body.
    pub(crate) fn end(&mut self, trailers: Option<&HeaderMap>) {
        for copy in &self.0 {
            let _ = copy.parts.send(BodyPart::End(trailers.cloned()));
        }
    }
}

/// Owned head of a copy, which may outlive the original request.
#[derive(Debug)]
struct OwnedRequest {
    method: String,
    scheme: &'static str,
    path: String,
    query: Option<String>,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    framing: Framing,
    accepts_trailers: bool,
}

impl OwnedRequest {
    fn new(upstream_request: &UpstreamRequest<'_>, hostname: Option<&str>) -> Self {
        let headers = upstream_request.headers.pairs();
        let value = |name: &[u8], value: &[u8]| match hostname {
            Some(hostname) if name.eq_ignore_ascii_case(b"host") => hostname.into(),
            _ => value.to_vec(),
        };
        OwnedRequest {
            method: upstream_request.method.to_owned(),
            scheme: upstream_request.scheme,
            path: upstream_request.path.to_owned(),
            query: upstream_request.query.map(str::to_owned),
            headers: headers
                .map(|(name, written)| (name.to_vec(), value(name, written)))
                .collect(),
            framing: upstream_request.framing,
            accepts_trailers: upstream_request.accepts_trailers,
        }
    }

    fn upstream_request(&self) -> UpstreamRequest<'_> {
        let headers = self.headers.iter();
        UpstreamRequest {
            method: &self.method,
            scheme: self.scheme,
            path: &self.path,
            query: self.query.as_deref(),
            headers: Headers::new(headers.map(|(name, value)| (&name[..], &value[..]))),
            framing: self.framing,
            // Only the request is mirrored, not the upgraded connection.
            websocket: false,
            accepts_trailers: self.accepts_trailers,
            uri: None,
        }
    }
}

/// Task that sends a copy.
struct MirrorTask {
    head: OwnedRequest,
    protocol: UpstreamProtocol,
    upstream: Rc<Upstream>,
    sockets: Rc<SocketFactory>,
    parts: UnboundedReceiver<BodyPart>,
    queued_bytes: Rc<Cell<usize>>,
}

impl MirrorTask {
    async fn run(mut self, worker: Rc<Worker>) {
        worker
            .mirrored_requests
            .set(worker.mirrored_requests.get() + 1);
        if self.send(&worker).await.is_none() {
            tracing::debug!(backend = %self.upstream.id, "mirrored request failed");
            worker.metrics.worker_series().dropped_mirrors.increment();
        }
        worker
            .mirrored_requests
            .set(worker.mirrored_requests.get() - 1);
    }

    /// Returns `None` if the copy could not be sent or got no response.
    async fn send(&mut self, worker: &Rc<Worker>) -> Option<()> {
        let mut endpoint = self
            .upstream
            .select(worker, &self.sockets, &[], Instant::now())?;
        // A pooled connection may have been closed by the endpoint, and copies are not retried.
        let opened = UpstreamConnection::open(worker, &endpoint, self.protocol, true).await;
        let mut backend = match opened {
            Ok(backend) => backend,
            Err(_) => {
                endpoint.record_failure();
                return None;
            }
        };
        let upstream_request = self.head.upstream_request();
        let (mut sink, mut response) = backend.begin(worker, &upstream_request).ok()?;
        let parts = &mut self.parts;
        let queued_bytes = &self.queued_bytes;
        let upload = async {
            loop {
                match parts.recv().await? {
                    BodyPart::Data(bytes) => {
                        sink.write(&bytes).await.ok()?;
                        sink.flush().await.ok()?;
                        queued_bytes.set(queued_bytes.get().saturating_sub(bytes.len()));
                    }
                    BodyPart::End(trailers) => {
                        return sink.finish(trailers.map(Box::new)).await.ok();
                    }
                }
            }
        };
        let download = async {
            while !response.next_head().await.ok()? {}
            let mut body = response.body(worker.limits().buffer_bytes);
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
        drop(response);
        endpoint.record_response();
        backend.keep(worker, &endpoint, Instant::now());
        Some(())
    }
}
