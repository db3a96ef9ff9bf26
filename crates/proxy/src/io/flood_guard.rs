//! Limits on HTTP/2 frames that cost the server more than the client. `h2` replies to every PING and SETTINGS and lets a client reset any number of streams.
//! This module counts such frames in the incoming bytes and limits them. It reads only the nine-byte frame headers and the beginning of trailers.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::lingering_close::{self, poll_discard};
use super::trailers::TrailerInspector;

/// Budget for small DATA frames, as a multiple of the connection's window. Flow control does not cover their overhead, and a stream's window may fill with the
/// smallest gRPC messages while their reader is slow.
pub(crate) const SMALL_FRAMES: usize = 2;

/// Interval over which control frames are counted.
const WINDOW: Duration = Duration::from_secs(10);

/// Control frames allowed for each request: window updates, a PRIORITY, the end of the stream.
const CREDIT_PER_REQUEST: u32 = 4;

/// Control frames allowed for each piece of a response body: clients may send two window updates per frame, and some estimate bandwidth with PINGs.
const CREDIT_PER_DATA: u32 = 3;

/// Length of the connection preface, which precedes the first frame.
const PREFACE_BYTES: usize = 24;

/// The reason for which a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Violation {
    /// More control frames than its requests allow for.
    TooManyControlFrames,
    /// More streams reset than completed.
    TooManyResets,
    /// Trailers with pseudo-header fields.
    BadTrailers,
}

/// Counts the frames of a connection against limits.
#[derive(Debug)]
pub(crate) struct FloodGuard {
    max_control: u32,
    max_resets: u32,
    max_head: usize,
    /// Heads larger than `max_head`.
    oversized_heads: Cell<u32>,
    /// Control frames in this interval, and those that requests and responses allow for.
    control: Cell<u32>,
    credit: Cell<u32>,
    since: Cell<Instant>,
    resets: Cell<u32>,
    completed: Cell<u32>,
    violation: Cell<Option<Violation>>,
    last_write: Cell<Instant>,
}

impl FloodGuard {
    /// Creates a guard with limits on control frames, on resets, and on the bytes of a head.
    pub(crate) fn new(max_control: u32, max_resets: u32, max_head: usize) -> Self {
        let now = Instant::now();
        FloodGuard {
            max_control,
            max_resets,
            max_head,
            oversized_heads: Cell::new(0),
            control: Cell::new(0),
            credit: Cell::new(0),
            since: Cell::new(now),
            resets: Cell::new(0),
            completed: Cell::new(0),
            violation: Cell::new(None),
            last_write: Cell::new(now),
        }
    }

    /// Returns the first violation of a limit.
    pub(crate) fn violation(&self) -> Option<Violation> {
        self.violation.get()
    }

    /// Returns the time at which bytes were last written.
    pub(crate) fn last_write(&self) -> Instant {
        self.last_write.get()
    }

    /// Records that a request has completed.
    pub(crate) fn record_end(&self) {
        self.completed.set(self.completed.get().saturating_add(1));
    }

    /// Records a piece of a response body that was sent.
    pub(crate) fn record_data(&self, length: usize) {
        let frames = CREDIT_PER_DATA.saturating_add((length / 4096) as u32);
        self.credit.set(self.credit.get().saturating_add(frames));
    }

    /// Returns the number of oversized heads since the last call. `h2` rejects them without passing them on.
    pub(crate) fn take_oversized_heads(&self) -> u32 {
        self.oversized_heads.take()
    }

    /// Records that a head has grown by `grown` to this size.
    fn record_head(&self, bytes: usize, grown: usize) {
        if bytes > self.max_head && bytes - grown <= self.max_head {
            self.oversized_heads
                .set(self.oversized_heads.get().saturating_add(1));
        }
    }

    fn record_request(&self) {
        self.credit
            .set(self.credit.get().saturating_add(CREDIT_PER_REQUEST));
    }

    fn record_control(&self) {
        self.control.set(self.control.get().saturating_add(1));
        let max = self.credit.get().saturating_add(self.max_control);
        if self.control.get() <= max {
            return;
        }
        // The clock is read only here.
        if self.since.get().elapsed() < WINDOW {
            self.report(Violation::TooManyControlFrames);
            return;
        }
        self.since.set(Instant::now());
        self.control.set(0);
        self.credit.set(0);
    }

    fn record_reset(&self) {
        self.resets.set(self.resets.get().saturating_add(1));
        if self.resets.get() > self.completed.get().saturating_add(self.max_resets) {
            self.report(Violation::TooManyResets);
        }
    }

    fn report(&self, violation: Violation) {
        if self.violation.get().is_none() {
            self.violation.set(Some(violation));
        }
    }
}

/// A connection whose incoming frames are counted.
#[derive(Debug)]
pub(crate) struct GuardedStream<I> {
    io: I,
    guard: Rc<FloodGuard>,
    scanner: FrameScanner,
    closing: bool,
    /// Bytes left to discard while closing.
    lingering: usize,
}

impl<I> GuardedStream<I> {
    /// Wraps a connection.
    pub(crate) fn new(io: I, guard: Rc<FloodGuard>) -> Self {
        GuardedStream {
            io,
            guard,
            scanner: FrameScanner::new(),
            closing: false,
            lingering: lingering_close::MAX_BYTES,
        }
    }
}

/// Finds frame headers in a stream of bytes.
#[derive(Debug)]
struct FrameScanner {
    /// Payload bytes to skip.
    skip: usize,
    header: [u8; 9],
    header_len: usize,
    /// Highest stream identifier so far.
    latest: u32,
    /// Bytes of that stream's head.
    head: usize,
    /// Trailers that are being checked, and the bytes of this frame that belong to them.
    trailers: Option<TrailerInspector>,
    trailer_bytes: usize,
}

impl FrameScanner {
    fn new() -> Self {
        FrameScanner {
            skip: PREFACE_BYTES,
            header: [0; 9],
            header_len: 0,
            latest: 0,
            head: 0,
            trailers: None,
            trailer_bytes: 0,
        }
    }

    fn feed(&mut self, mut bytes: &[u8], guard: &FloodGuard) {
        while !bytes.is_empty() {
            if self.trailer_bytes > 0 {
                let (now, rest) = bytes.split_at(self.trailer_bytes.min(bytes.len()));
                self.trailer_bytes -= now.len();
                bytes = rest;
                self.inspect_trailers(now, guard);
            } else if self.skip > 0 {
                let count = self.skip.min(bytes.len());
                self.skip -= count;
                bytes = &bytes[count..];
            } else {
                let count = (9 - self.header_len).min(bytes.len());
                self.header[self.header_len..self.header_len + count]
                    .copy_from_slice(&bytes[..count]);
                self.header_len += count;
                bytes = &bytes[count..];
                if self.header_len == 9 {
                    self.header_len = 0;
                    self.frame(guard);
                }
            }
        }
    }

    fn inspect_trailers(&mut self, bytes: &[u8], guard: &FloodGuard) {
        let Some(trailers) = &mut self.trailers else {
            return;
        };
        match trailers.feed(bytes) {
            None => {}
            Some(fine) => {
                self.trailers = None;
                if !fine {
                    guard.report(Violation::BadTrailers);
                }
            }
        }
    }

    /// Counts a frame by its header (RFC 9113 §4.1: length, type, flags, stream identifier).
    fn frame(&mut self, guard: &FloodGuard) {
        let [a, b, c, kind, flags, stream @ ..] = self.header;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let stream = u32::from_be_bytes(stream) & 0x7fff_ffff;
        self.skip = length;
        match kind {
            DATA if length == 0 && flags & END_STREAM == 0 => guard.record_control(),
            DATA => {}
            HEADERS if stream > self.latest => {
                self.latest = stream;
                self.trailers = None;
                self.head = length;
                guard.record_head(length, length);
                guard.record_request();
            }
            HEADERS => {
                guard.record_control();
                self.trailers = Some(TrailerInspector::new(flags));
            }
            CONTINUATION if length == 0 => guard.record_control(),
            CONTINUATION => {
                self.head += length;
                guard.record_head(self.head, length);
            }
            RST_STREAM => guard.record_reset(),
            // Unknown frames count too: they are discarded, but reading each has a cost.
            _ => guard.record_control(),
        }
        if matches!(kind, HEADERS | CONTINUATION) && self.trailers.is_some() {
            (self.trailer_bytes, self.skip) = (length, 0);
        }
    }
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;

impl<I: AsyncRead + Unpin> AsyncRead for GuardedStream<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        // Stop reading; the task that drives the connection closes it.
        if this.guard.violation().is_some() {
            return Poll::Pending;
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        this.scanner.feed(&buf.filled()[before..], &this.guard);
        if this.guard.violation().is_some() {
            buf.set_filled(before);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for GuardedStream<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, bytes))?;
        self.guard.last_write.set(Instant::now());
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, slices))?;
        self.guard.last_write.set(Instant::now());
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    /// Shuts down writing and discards some of the bytes that the peer still sends. Closing at once would reset the connection, and the peer could lose the
    /// last bytes written.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.closing {
            ready!(Pin::new(&mut this.io).poll_shutdown(cx))?;
            this.closing = true;
        }
        ready!(poll_discard(&mut this.io, &mut this.lingering, cx));
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(length: usize, kind: u8, flags: u8, stream: u32) -> Vec<u8> {
        let mut bytes = (length as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.resize(9 + length, 0);
        bytes
    }

    /// Returns the violation that these frames cause, after feeding them in chunks of several sizes.
    fn violation(guard: impl Fn() -> FloodGuard, frames: &[Vec<u8>]) -> Option<Violation> {
        let mut bytes = vec![b'x'; PREFACE_BYTES];
        bytes.extend(frames.concat());
        let violations: Vec<_> = [1, 2, 7, 9, 10, 4096]
            .into_iter()
            .map(|size| {
                let (guard, mut scanner) = (guard(), FrameScanner::new());
                for piece in bytes.chunks(size) {
                    scanner.feed(piece, &guard);
                }
                guard.violation()
            })
            .collect();
        assert!(
            violations
                .iter()
                .all(|violation| *violation == violations[0])
        );
        violations[0]
    }

    #[test]
    fn control_frames_count_beyond_those_that_requests_allow_for() {
        let ping = frame(8, 6, 0, 0);
        let request = frame(30, HEADERS, 5, 1);
        let guard = || FloodGuard::new(10, 10, 1000);
        assert_eq!(violation(guard, &vec![ping.clone(); 10]), None);
        let flood = Some(Violation::TooManyControlFrames);
        assert_eq!(violation(guard, &vec![ping.clone(); 11]), flood);
        for (kind, length, flags) in [
            (4, 0, 0),
            (2, 5, 0),
            (8, 4, 0),
            (0, 0, 0),
            (9, 0, 0),
            (77, 3, 0),
        ] {
            assert_eq!(
                violation(guard, &vec![frame(length, kind, flags, 1); 11]),
                flood,
                "{kind}"
            );
        }
        let mut frames = vec![request];
        frames.extend(vec![ping; 14]);
        assert_eq!(violation(guard, &frames), None);
        // DATA frames and the ends of bodies are not control frames.
        assert_eq!(violation(guard, &vec![frame(7, DATA, 0, 1); 50]), None);
        assert_eq!(
            violation(guard, &vec![frame(0, DATA, END_STREAM, 1); 50]),
            None
        );
    }

    #[test]
    fn resets_count_beyond_requests_that_ended() {
        let pair = [frame(3, HEADERS, 5, 1), frame(4, RST_STREAM, 0, 1)].concat();
        assert_eq!(
            violation(|| FloodGuard::new(10, 3, 1000), &vec![pair.clone(); 3]),
            None
        );
        let some = Some(Violation::TooManyResets);
        assert_eq!(
            violation(|| FloodGuard::new(10, 3, 1000), &vec![pair.clone(); 4]),
            some
        );
        let completed = || {
            let guard = FloodGuard::new(10, 3, 1000);
            guard.record_end();
            guard
        };
        assert_eq!(violation(completed, &vec![pair; 4]), None);
    }

    #[test]
    fn trailers_may_not_begin_with_a_pseudo_header_field() {
        let head = frame(3, HEADERS, 4, 1);
        let trailers = |block: &[u8]| {
            let mut bytes = frame(block.len(), HEADERS, 5, 1);
            bytes[9..].copy_from_slice(block);
            violation(|| FloodGuard::new(10, 10, 1000), &[head.clone(), bytes])
        };
        let bad = Some(Violation::BadTrailers);
        assert_eq!(trailers(&[0x84]), bad);
        assert_eq!(trailers(b"\x00\x05:path\x01/"), bad);
        assert_eq!(trailers(b"\x00\x05x-sum\x011"), None);
    }

    #[test]
    fn a_head_that_is_too_large_is_counted_once() {
        let large = |frames: &[Vec<u8>]| {
            let (guard, mut scanner) = (FloodGuard::new(10, 10, 1000), FrameScanner::new());
            scanner.feed(&[b'x'; PREFACE_BYTES], &guard);
            scanner.feed(&frames.concat(), &guard);
            guard.take_oversized_heads()
        };
        let more = frame(600, CONTINUATION, 0, 1);
        assert_eq!(large(&[frame(1000, HEADERS, 5, 1)]), 0);
        assert_eq!(large(&[frame(1001, HEADERS, 5, 1)]), 1);
        let parts = [frame(600, HEADERS, 1, 1), more.clone(), more];
        assert_eq!(large(&parts), 1);
        let two = [frame(600, HEADERS, 5, 1), frame(600, HEADERS, 5, 3)];
        assert_eq!(large(&two), 0);
    }
}
