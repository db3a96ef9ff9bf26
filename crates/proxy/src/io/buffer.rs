//! Bytes that were read and are not done with. Buffers of the common size are lent by a pool that the worker keeps, so that a connection without
//! traffic holds none.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// The common size.
pub(crate) const BUFFER_BYTES: usize = 16 * 1024;

/// Buffers kept for the next ones who need some.
const MAX_IDLE: usize = 256;

/// Lends buffers.
#[derive(Debug, Default)]
pub(crate) struct BufferPool(RefCell<Vec<Vec<u8>>>);

impl BufferPool {
    /// An empty buffer of the common size.
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

/// Bytes in a row, taken from the front and added at the back.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// Always as long as its capacity; what lies outside of `start..end` means nothing.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    pool: Rc<BufferPool>,
}

impl Buffer {
    /// What was read and is not done with.
    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// These are done with.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Makes room for so many more bytes: by moving what there is to the front, else by growing.
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

    /// Reads once, into the room that there is; a full buffer grows, up to `most` bytes. Returns how many bytes came: none at the end, or if there is no room.
    pub(crate) async fn fill<R: AsyncRead + Unpin>(
        &mut self,
        reader: &mut R,
        most: usize,
    ) -> io::Result<usize> {
        poll_fn(|cx| self.poll_fill(Pin::new(&mut *reader), most, cx)).await
    }

    /// As [`fill`](Self::fill).
    pub(crate) fn poll_fill<R: AsyncRead>(
        &mut self,
        reader: Pin<&mut R>,
        most: usize,
        cx: &mut std::task::Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.end == self.bytes.len() {
            let grow = self.start == 0 && self.bytes.len() < most;
            self.make_room(if grow { 1 } else { 0 });
            if !grow && self.start > 0 {
                self.bytes.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
        }
        let mut room = ReadBuf::new(&mut self.bytes[self.end..]);
        if room.remaining() == 0 {
            return Poll::Ready(Ok(0));
        }
        ready!(reader.poll_read(cx, &mut room))?;
        let count = room.filled().len();
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
    async fn what_is_read_is_taken_in_order_and_a_full_buffer_grows_to_its_bound() {
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
