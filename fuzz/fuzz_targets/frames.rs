//! Fuzzes the guard that limits HTTP/2 frames: it never panics, its result does not depend on how the bytes are split, and it forwards bytes unchanged.
#![no_main]

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncRead, ReadBuf};

#[allow(dead_code, reason = "only reading is fuzzed")]
#[path = "../../crates/proxy/src/io/flood_guard.rs"]
mod flood_guard;
#[allow(dead_code, reason = "only reading is fuzzed")]
#[path = "../../crates/proxy/src/io/trailers.rs"]
mod trailers;

/// Replaces the module of the proxy, which `flood_guard` uses only to close connections.
mod lingering_close {
    use std::task::{Context, Poll};

    pub(super) const MAX_BYTES: usize = 0;

    pub(super) fn poll_discard<R>(_: &mut R, _: &mut usize, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

use flood_guard::{FloodGuard, GuardedStream, Violation};

/// A stream that returns at most a fixed number of bytes per read.
struct Chunks<'b>(&'b [u8], usize);

impl AsyncRead for Chunks<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let (now, rest) = self
            .0
            .split_at(self.1.min(self.0.len()).min(buf.remaining()));
        buf.put_slice(now);
        self.0 = rest;
        Poll::Ready(Ok(()))
    }
}

/// Reads the bytes through a guard, in chunks. Returns the forwarded bytes, and the violation if there was one.
fn forward(bytes: &[u8], chunk: usize) -> (Vec<u8>, Option<Violation>) {
    let guard = Rc::new(FloodGuard::new(20, 5, 4096));
    let mut stream = GuardedStream::new(Chunks(bytes, chunk), guard.clone());
    let mut cx = Context::from_waker(Waker::noop());
    let mut forwarded = Vec::new();
    loop {
        let mut storage = [0; 4096];
        let mut buf = ReadBuf::new(&mut storage);
        let read = Pin::new(&mut stream).poll_read(&mut cx, &mut buf);
        if read.is_pending() || buf.filled().is_empty() {
            return (forwarded, guard.violation());
        }
        forwarded.extend_from_slice(buf.filled());
    }
}

fuzz_target!(|input: (u8, &[u8])| {
    let (chunk, bytes) = input;
    let (whole, violation) = forward(bytes, usize::MAX);
    let (chunked, same) = forward(bytes, usize::from(chunk).max(1));
    assert_eq!(violation, same);
    for forwarded in [whole, chunked] {
        assert!(bytes.starts_with(&forwarded));
        assert!(violation.is_some() || forwarded.len() == bytes.len());
    }
});
