//! Lingering close: closes a connection so that the peer can still read the last bytes sent.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};

use super::stream::{ReadHalf, WriteHalf};

/// Time for which the peer's remaining bytes are read.
pub(crate) const LINGERING_TIME: Duration = Duration::from_secs(1);

/// Remaining bytes that are read at most.
pub(super) const MAX_BYTES: usize = 256 * 1024;

/// Shuts down writing and discards incoming bytes for a short time. Closing at once would reset the connection, and the peer could lose the last bytes written
/// (RFC 9112 §9.6).
pub(crate) async fn lingering_close(reader: &mut ReadHalf, writer: &mut WriteHalf) {
    let mut remaining = MAX_BYTES;
    let lingering = async {
        if writer.shutdown().await.is_ok() {
            poll_fn(|cx| poll_discard(reader, &mut remaining, cx)).await;
        }
    };
    let _ = tokio::time::timeout(LINGERING_TIME, lingering).await;
}

/// Reads to the end of the stream, or until `remaining` bytes were read. The scratch space is on the stack: a connection that waits for a request holds no
/// buffer.
pub(super) fn poll_discard<R: AsyncRead + Unpin>(
    reader: &mut R,
    remaining: &mut usize,
    cx: &mut Context<'_>,
) -> Poll<()> {
    let mut scratch = [0; 2048];
    while *remaining > 0 {
        let mut buf = ReadBuf::new(&mut scratch);
        let read = ready!(Pin::new(&mut *reader).poll_read(cx, &mut buf));
        let count = buf.filled().len();
        if read.is_err() || count == 0 {
            break;
        }
        *remaining = remaining.saturating_sub(count);
    }
    Poll::Ready(())
}
