//! What a client's HTTP/2 frames cost, counted as their bytes pass. The library that reads them answers each PING and each SETTINGS, and lets a client reset
//! as many streams as it likes; here they are counted against limits. A frame's first nine bytes tell what it is: nothing is decoded.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::trailers::TrailerInspector;

/// Small DATA frames cost more than windows guard for: what they cost may come to so many times the connection's window, so that a stream's window may be full of the
/// smallest gRPC messages while their reader is slow.
pub(crate) const SMALL_FRAMES: usize = 2;

/// The time that control frames are counted over.
const WINDOW: Duration = Duration::from_secs(10);

/// Control frames that a request accounts for: updates of windows, a PRIORITY, the end of a stream.
const CREDIT_PER_REQUEST: u32 = 4;

/// Those that a piece of a response's body accounts for: clients may update two windows for each frame, and some measure their line with a PING.
const CREDIT_PER_DATA: u32 = 3;

/// How many bytes are read after the connection was closed, so that the other side reads why before it is reset.
const LINGER_BYTES: usize = 256 * 1024;

/// Bytes before the first frame: the connection preface.
const PREFACE_BYTES: usize = 24;

/// Why a connection has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Violation {
    /// More control frames than its requests guard for.
    TooManyControlFrames,
    /// More streams reset than ended.
    TooManyResets,
    /// A trailer section with pseudo-header fields.
    BadTrailers,
}

/// What a connection has cost so far.
#[derive(Debug)]
pub(crate) struct FloodGuard {
    max_control: u32,
    max_resets: u32,
    max_head: usize,
    /// Heads that were larger than that.
    oversized_heads: Cell<u32>,
    /// Control frames in this window, and those that were accounted for.
    control: Cell<u32>,
    credit: Cell<u32>,
    since: Cell<Instant>,
    resets: Cell<u32>,
    ended: Cell<u32>,
    violation: Cell<Option<Violation>>,
    /// When bytes were last written.
    last_write: Cell<Instant>,
}

impl FloodGuard {
    /// With these limits on control frames, resets and the bytes of a head.
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
            ended: Cell::new(0),
            violation: Cell::new(None),
            last_write: Cell::new(now),
        }
    }

    /// Why the connection has to end, if it has to.
    pub(crate) fn violation(&self) -> Option<Violation> {
        self.violation.get()
    }

    /// When bytes were last written.
    pub(crate) fn last_write(&self) -> Instant {
        self.last_write.get()
    }

    /// A request has come to its end.
    pub(crate) fn record_end(&self) {
        self.ended.set(self.ended.get().saturating_add(1));
    }

    /// A piece of a response's body of this size was sent.
    pub(crate) fn record_data(&self, length: usize) {
        let frames = CREDIT_PER_DATA.saturating_add((length / 4096) as u32);
        self.credit.set(self.credit.get().saturating_add(frames));
    }

    /// Heads that were too large to be kept since this was last asked: the library answers them alone.
    pub(crate) fn take_oversized_heads(&self) -> u32 {
        self.oversized_heads.take()
    }

    /// A head has grown to this size, by so much.
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
        let most = self.credit.get().saturating_add(self.max_control);
        if self.control.get() <= most {
            return;
        }
        // The clock is looked at only here.
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
        if self.resets.get() > self.ended.get().saturating_add(self.max_resets) {
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
    lingered: usize,
}

impl<I> GuardedStream<I> {
    /// Counts on this guard.
    pub(crate) fn new(io: I, guard: Rc<FloodGuard>) -> Self {
        GuardedStream {
            io,
            guard,
            scanner: FrameScanner::new(),
            closing: false,
            lingered: 0,
        }
    }
}

/// Where in the frames the bytes stand.
#[derive(Debug)]
struct FrameScanner {
    /// Bytes that are not looked at.
    skip: usize,
    header: [u8; 9],
    header_len: usize,
    /// The latest stream that was opened.
    latest: u32,
    /// How large its head is so far.
    head: usize,
    /// A trailer section that is being looked at, and how much of this frame belongs to it.
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

    /// A frame begins. RFC 9113 §4.1: length, type, flags, stream.
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
            // Also those that are not known: they are dropped, and each costs its reading.
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
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        // Nothing more is read once there is a violation; who polls the connection sees to it.
        if this.guard.violation().is_some() {
            return Poll::Pending;
        }
        let before = room.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(cx, room))?;
        this.scanner.feed(&room.filled()[before..], &this.guard);
        if this.guard.violation().is_some() {
            room.set_filled(before);
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

    /// Says that nothing more will be written, and reads a little of what still comes: closing at once would reset the connection, and the other side
    /// might lose what it was told last.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.closing {
            ready!(Pin::new(&mut this.io).poll_shutdown(cx))?;
            this.closing = true;
        }
        let mut scratch = [0; 2048];
        while this.lingered < LINGER_BYTES {
            let mut room = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut this.io).poll_read(cx, &mut room)) {
                Ok(()) if !room.filled().is_empty() => this.lingered += room.filled().len(),
                _ => break,
            }
        }
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

    /// What becomes of these frames, fed in pieces of every size.
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
    fn control_frames_count_beyond_those_that_requests_account_for() {
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
        // Data and the ends of bodies are no control frames.
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
        let ended = || {
            let guard = FloodGuard::new(10, 3, 1000);
            guard.record_end();
            guard
        };
        assert_eq!(violation(ended, &vec![pair; 4]), None);
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
