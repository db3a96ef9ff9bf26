//! Read buffers. Buffers of the usual size come from a pool of the worker, and a connection returns its buffer while it has no traffic.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// Size of pooled buffers.
pub(crate) const BUFFER_BYTES: usize = 16 * 1024;

/// Buffers that a pool keeps for reuse.
const MAX_IDLE: usize = 256;

/// A pool of buffers of [`BUFFER_BYTES`].
#[derive(Debug, Default)]
pub(crate) struct BufferPool(RefCell<Vec<Vec<u8>>>);

impl BufferPool {
    /// Takes a buffer from the pool, or allocates one.
    pub(crate) fn acquire(self: &Rc<Self>) -> Buffer {
        let bytes = self.0.borrow_mut().pop();
        Buffer {
            bytes: bytes.unwrap_or_else(|| vec![0; BUFFER_BYTES]),
            start: 0,
            end: 0,
            pool: self.clone(),
        }
    }
}

/// A contiguous buffer: filled at the end, consumed from the start.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// Initialized over its whole length; only `start..end` holds data.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    pool: Rc<BufferPool>,
}

impl Buffer {
    /// Returns the bytes that were read and not consumed yet.
    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Discards bytes from the start.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Makes room for `count` more bytes by moving the contents to the start or, if that is not enough, by growing.
    pub(crate) fn make_room(&mut self, count: usize) {
        if self.bytes.len() - self.end >= count {
            return;
        }
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let wanted = self.end + count;
        if wanted > self.bytes.len() {
            self.bytes.resize(wanted.next_power_of_two(), 0);
        }
    }

    /// Reads once into the free space; a full buffer grows up to `max` bytes. Returns the number of bytes read: 0 at the end of the stream, or if there is no space.
    pub(crate) async fn fill<R: AsyncRead + Unpin>(
        &mut self,
        reader: &mut R,
        max: usize,
    ) -> io::Result<usize> {
        poll_fn(|cx| self.poll_fill(Pin::new(&mut *reader), max, cx)).await
    }

    /// Polls for [`fill`](Self::fill).
    pub(crate) fn poll_fill<R: AsyncRead>(
        &mut self,
        reader: Pin<&mut R>,
        max: usize,
        cx: &mut std::task::Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.end == self.bytes.len() {
            let grow = self.start == 0 && self.bytes.len() < max;
            self.make_room(if grow { 1 } else { 0 });
            if !grow && self.start > 0 {
                self.bytes.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
        }
        let mut buf = ReadBuf::new(&mut self.bytes[self.end..]);
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(0));
        }
        ready!(reader.poll_read(cx, &mut buf))?;
        let count = buf.filled().len();
        self.end += count;
        Poll::Ready(Ok(count))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut kept = self.pool.0.borrow_mut();
        if self.bytes.len() == BUFFER_BYTES && kept.len() < MAX_IDLE {
            kept.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_are_consumed_in_order_and_a_full_buffer_grows_to_its_limit() {
        let pool = Rc::new(BufferPool::default());
        let mut buffer = pool.acquire();
        let sent: Vec<u8> = (0..100_000u32).map(|at| at as u8).collect();
        let mut reader = &sent[..];
        while buffer.fill(&mut reader, 64 * 1024).await.expect("bytes") > 0 {}
        assert_eq!(buffer.filled(), &sent[..64 * 1024]);
        buffer.consume(60_000);
        while buffer.fill(&mut reader, 64 * 1024).await.expect("bytes") > 0 {}
        assert_eq!(buffer.filled(), &sent[60_000..]);
        buffer.consume(usize::MAX / 2);
        assert!(buffer.is_empty());
    }
}
