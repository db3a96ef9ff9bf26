//! What a client's HTTP/2 frames cost, counted as their bytes pass. The library that reads them answers each PING and each SETTINGS, and lets a client reset
//! as many streams as it likes; here they are counted against limits. A frame's first nine bytes tell what it is: nothing is decoded.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::trailers::Peek;

/// Small DATA frames cost more than windows account for: what they cost may come to so many times the connection's window, so that a stream's window may be full of the
/// smallest gRPC messages while their reader is slow.
pub(crate) const SMALL_FRAMES: usize = 2;

/// The time that control frames are counted over.
const WINDOW: Duration = Duration::from_secs(10);

/// Control frames that a request accounts for: updates of windows, a PRIORITY, the end of a stream.
const PER_REQUEST: u32 = 4;

/// Those that a piece of a response's body accounts for: clients may update two windows for each frame, and some measure their line with a PING.
const PER_PIECE: u32 = 3;

/// How many bytes are read after the connection was closed, so that the other side reads why before it is reset.
const LINGER_BYTES: usize = 256 * 1024;

/// Bytes before the first frame: the connection preface.
const PREFACE_BYTES: usize = 24;

/// Why a connection has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// More control frames than its requests account for.
    TooManyControlFrames,
    /// More streams reset than ended.
    TooManyResets,
    /// A trailer section with pseudo-header fields.
    BadTrailers,
}

/// What a connection has cost so far.
#[derive(Debug)]
pub(crate) struct Account {
    most_control: u32,
    most_resets: u32,
    most_head: usize,
    /// Heads that were larger than that.
    large: Cell<u32>,
    /// Control frames in this window, and those that were accounted for.
    control: Cell<u32>,
    earned: Cell<u32>,
    since: Cell<Instant>,
    resets: Cell<u32>,
    ended: Cell<u32>,
    verdict: Cell<Option<Verdict>>,
    /// When bytes were last written.
    wrote: Cell<Instant>,
}

impl Account {
    /// With these limits on control frames, resets and the bytes of a head.
    pub(crate) fn new(most_control: u32, most_resets: u32, most_head: usize) -> Self {
        let now = Instant::now();
        Account {
            most_control,
            most_resets,
            most_head,
            large: Cell::new(0),
            control: Cell::new(0),
            earned: Cell::new(0),
            since: Cell::new(now),
            resets: Cell::new(0),
            ended: Cell::new(0),
            verdict: Cell::new(None),
            wrote: Cell::new(now),
        }
    }

    /// Why the connection has to end, if it has to.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        self.verdict.get()
    }

    /// When bytes were last written.
    pub(crate) fn wrote(&self) -> Instant {
        self.wrote.get()
    }

    /// A request has come to its end.
    pub(crate) fn ended(&self) {
        self.ended.set(self.ended.get().saturating_add(1));
    }

    /// A piece of a response's body of this size was sent.
    pub(crate) fn sent(&self, length: usize) {
        let frames = PER_PIECE.saturating_add((length / 4096) as u32);
        self.earned.set(self.earned.get().saturating_add(frames));
    }

    /// Heads that were too large to be kept since this was last asked: the library answers them alone.
    pub(crate) fn take_large(&self) -> u32 {
        self.large.take()
    }

    /// A head has grown to this size, by so much.
    fn head(&self, bytes: usize, grown: usize) {
        if bytes > self.most_head && bytes - grown <= self.most_head {
            self.large.set(self.large.get().saturating_add(1));
        }
    }

    fn request(&self) {
        self.earned
            .set(self.earned.get().saturating_add(PER_REQUEST));
    }

    fn control(&self) {
        self.control.set(self.control.get().saturating_add(1));
        let most = self.earned.get().saturating_add(self.most_control);
        if self.control.get() <= most {
            return;
        }
        // The clock is looked at only here.
        if self.since.get().elapsed() < WINDOW {
            self.judge(Verdict::TooManyControlFrames);
            return;
        }
        self.since.set(Instant::now());
        self.control.set(0);
        self.earned.set(0);
    }

    fn reset(&self) {
        self.resets.set(self.resets.get().saturating_add(1));
        if self.resets.get() > self.ended.get().saturating_add(self.most_resets) {
            self.judge(Verdict::TooManyResets);
        }
    }

    fn judge(&self, verdict: Verdict) {
        if self.verdict.get().is_none() {
            self.verdict.set(Some(verdict));
        }
    }
}

/// A connection whose incoming frames are counted.
#[derive(Debug)]
pub(crate) struct Frames<I> {
    io: I,
    account: Rc<Account>,
    scan: Scan,
    closing: bool,
    lingered: usize,
}

impl<I> Frames<I> {
    /// Counts on this account.
    pub(crate) fn new(io: I, account: Rc<Account>) -> Self {
        Frames {
            io,
            account,
            scan: Scan::new(),
            closing: false,
            lingered: 0,
        }
    }
}

/// Where in the frames the bytes stand.
#[derive(Debug)]
struct Scan {
    /// Bytes that are not looked at.
    skip: usize,
    header: [u8; 9],
    have: usize,
    /// The latest stream that was opened.
    latest: u32,
    /// How large its head is so far.
    head: usize,
    /// A trailer section that is being looked at, and how much of this frame belongs to it.
    peek: Option<Peek>,
    peekable: usize,
}

impl Scan {
    fn new() -> Self {
        Scan {
            skip: PREFACE_BYTES,
            header: [0; 9],
            have: 0,
            latest: 0,
            head: 0,
            peek: None,
            peekable: 0,
        }
    }

    fn feed(&mut self, mut bytes: &[u8], account: &Account) {
        while !bytes.is_empty() {
            if self.peekable > 0 {
                let (now, rest) = bytes.split_at(self.peekable.min(bytes.len()));
                self.peekable -= now.len();
                bytes = rest;
                self.look(now, account);
            } else if self.skip > 0 {
                let count = self.skip.min(bytes.len());
                self.skip -= count;
                bytes = &bytes[count..];
            } else {
                let count = (9 - self.have).min(bytes.len());
                self.header[self.have..self.have + count].copy_from_slice(&bytes[..count]);
                self.have += count;
                bytes = &bytes[count..];
                if self.have == 9 {
                    self.have = 0;
                    self.frame(account);
                }
            }
        }
    }

    fn look(&mut self, bytes: &[u8], account: &Account) {
        let Some(peek) = &mut self.peek else { return };
        match peek.feed(bytes) {
            None => {}
            Some(fine) => {
                self.peek = None;
                if !fine {
                    account.judge(Verdict::BadTrailers);
                }
            }
        }
    }

    /// A frame begins. RFC 9113 §4.1: length, type, flags, stream.
    fn frame(&mut self, account: &Account) {
        let [a, b, c, kind, flags, stream @ ..] = self.header;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let stream = u32::from_be_bytes(stream) & 0x7fff_ffff;
        self.skip = length;
        match kind {
            DATA if length == 0 && flags & END_STREAM == 0 => account.control(),
            DATA => {}
            HEADERS if stream > self.latest => {
                self.latest = stream;
                self.peek = None;
                self.head = length;
                account.head(length, length);
                account.request();
            }
            HEADERS => {
                account.control();
                self.peek = Some(Peek::new(flags));
            }
            CONTINUATION if length == 0 => account.control(),
            CONTINUATION => {
                self.head += length;
                account.head(self.head, length);
            }
            RST_STREAM => account.reset(),
            // Also those that are not known: they are dropped, and each costs its reading.
            _ => account.control(),
        }
        if matches!(kind, HEADERS | CONTINUATION) && self.peek.is_some() {
            (self.peekable, self.skip) = (length, 0);
        }
    }
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;

impl<I: AsyncRead + Unpin> AsyncRead for Frames<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        // Nothing more is read once there is a verdict; who polls the connection sees to it.
        if this.account.verdict().is_some() {
            return Poll::Pending;
        }
        let before = room.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(cx, room))?;
        this.scan.feed(&room.filled()[before..], &this.account);
        if this.account.verdict().is_some() {
            room.set_filled(before);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Frames<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, bytes))?;
        self.account.wrote.set(Instant::now());
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, slices))?;
        self.account.wrote.set(Instant::now());
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
    fn verdict(account: impl Fn() -> Account, frames: &[Vec<u8>]) -> Option<Verdict> {
        let mut bytes = vec![b'x'; PREFACE_BYTES];
        bytes.extend(frames.concat());
        let verdicts: Vec<_> = [1, 2, 7, 9, 10, 4096]
            .into_iter()
            .map(|size| {
                let (account, mut scan) = (account(), Scan::new());
                for piece in bytes.chunks(size) {
                    scan.feed(piece, &account);
                }
                account.verdict()
            })
            .collect();
        assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]));
        verdicts[0]
    }

    #[test]
    fn control_frames_count_beyond_those_that_requests_account_for() {
        let ping = frame(8, 6, 0, 0);
        let request = frame(30, HEADERS, 5, 1);
        let account = || Account::new(10, 10, 1000);
        assert_eq!(verdict(account, &vec![ping.clone(); 10]), None);
        let flood = Some(Verdict::TooManyControlFrames);
        assert_eq!(verdict(account, &vec![ping.clone(); 11]), flood);
        for (kind, length, flags) in [
            (4, 0, 0),
            (2, 5, 0),
            (8, 4, 0),
            (0, 0, 0),
            (9, 0, 0),
            (77, 3, 0),
        ] {
            assert_eq!(
                verdict(account, &vec![frame(length, kind, flags, 1); 11]),
                flood,
                "{kind}"
            );
        }
        let mut frames = vec![request];
        frames.extend(vec![ping; 14]);
        assert_eq!(verdict(account, &frames), None);
        // Data and the ends of bodies are no control frames.
        assert_eq!(verdict(account, &vec![frame(7, DATA, 0, 1); 50]), None);
        assert_eq!(
            verdict(account, &vec![frame(0, DATA, END_STREAM, 1); 50]),
            None
        );
    }

    #[test]
    fn resets_count_beyond_requests_that_ended() {
        let pair = [frame(3, HEADERS, 5, 1), frame(4, RST_STREAM, 0, 1)].concat();
        assert_eq!(
            verdict(|| Account::new(10, 3, 1000), &vec![pair.clone(); 3]),
            None
        );
        let some = Some(Verdict::TooManyResets);
        assert_eq!(
            verdict(|| Account::new(10, 3, 1000), &vec![pair.clone(); 4]),
            some
        );
        let ended = || {
            let account = Account::new(10, 3, 1000);
            account.ended();
            account
        };
        assert_eq!(verdict(ended, &vec![pair; 4]), None);
    }

    #[test]
    fn trailers_may_not_begin_with_a_pseudo_header_field() {
        let head = frame(3, HEADERS, 4, 1);
        let trailers = |block: &[u8]| {
            let mut bytes = frame(block.len(), HEADERS, 5, 1);
            bytes[9..].copy_from_slice(block);
            verdict(|| Account::new(10, 10, 1000), &[head.clone(), bytes])
        };
        let bad = Some(Verdict::BadTrailers);
        assert_eq!(trailers(&[0x84]), bad);
        assert_eq!(trailers(b"\x00\x05:path\x01/"), bad);
        assert_eq!(trailers(b"\x00\x05x-sum\x011"), None);
    }

    #[test]
    fn a_head_that_is_too_large_is_counted_once() {
        let large = |frames: &[Vec<u8>]| {
            let (account, mut scan) = (Account::new(10, 10, 1000), Scan::new());
            scan.feed(&[b'x'; PREFACE_BYTES], &account);
            scan.feed(&frames.concat(), &account);
            account.take_large()
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
