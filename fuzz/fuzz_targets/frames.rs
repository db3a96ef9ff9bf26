//! Hostile frames for what counts them: nothing panics, the verdict does not depend on the pieces that they came in, and no byte is changed or lost.
#![no_main]

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncRead, ReadBuf};

#[allow(dead_code, reason = "a part of it is used here")]
#[path = "../../crates/proxy/src/wire/frames.rs"]
mod frames;
#[allow(dead_code, reason = "a part of it is used here")]
#[path = "../../crates/proxy/src/wire/trailers.rs"]
mod trailers;

use frames::{Account, Frames, Verdict};

/// Bytes that come in pieces.
struct Pieces<'b>(&'b [u8], usize);

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let (now, rest) = self
            .0
            .split_at(self.1.min(self.0.len()).min(room.remaining()));
        room.put_slice(now);
        self.0 = rest;
        Poll::Ready(Ok(()))
    }
}

/// What passes, and the verdict.
fn pass(bytes: &[u8], piece: usize) -> (Vec<u8>, Option<Verdict>) {
    let account = Rc::new(Account::new(20, 5, 4096));
    let mut frames = Frames::new(Pieces(bytes, piece), account.clone());
    let mut cx = Context::from_waker(Waker::noop());
    let mut passed = Vec::new();
    loop {
        let mut room = [0; 4096];
        let mut room = ReadBuf::new(&mut room);
        let read = Pin::new(&mut frames).poll_read(&mut cx, &mut room);
        if read.is_pending() || room.filled().is_empty() {
            return (passed, account.verdict());
        }
        passed.extend_from_slice(room.filled());
    }
}

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let (whole, verdict) = pass(bytes, usize::MAX);
    let (pieced, same) = pass(bytes, usize::from(piece).max(1));
    assert_eq!(verdict, same);
    for passed in [whole, pieced] {
        assert!(bytes.starts_with(&passed));
        assert!(verdict.is_some() || passed.len() == bytes.len());
    }
});
