//! Closing a connection so that the other side can read what it was told last.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};

use super::stream::{ReadHalf, WriteHalf};

/// How long the other side is listened to.
pub(crate) const LINGERING_TIME: Duration = Duration::from_secs(1);

/// How many bytes of it.
const BYTES: usize = 256 * 1024;

/// Says that nothing more will be written, and reads a little of what still comes: closing at once would reset the connection, and the other side
/// might lose what was written (RFC 9112 §9.6).
pub(crate) async fn lingering_close(reader: &mut ReadHalf, writer: &mut WriteHalf) {
    let mut left = BYTES;
    let lingering = async {
        if writer.shutdown().await.is_ok() {
            poll_fn(|cx| poll_rest(reader, &mut left, cx)).await;
        }
    };
    let _ = tokio::time::timeout(LINGERING_TIME, lingering).await;
}

/// Reads to the end, or until enough was read. The room for it is on the stack: a connection that waits for a request holds none.
fn poll_rest(reader: &mut ReadHalf, left: &mut usize, cx: &mut Context<'_>) -> Poll<()> {
    let mut scratch = [0; 2048];
    loop {
        let mut room = ReadBuf::new(&mut scratch);
        let read = ready!(Pin::new(&mut *reader).poll_read(cx, &mut room));
        let count = room.filled().len();
        if read.is_err() || count == 0 || count > *left {
            return Poll::Ready(());
        }
        *left -= count;
    }
}
