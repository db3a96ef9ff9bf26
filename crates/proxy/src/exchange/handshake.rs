//! What both sides of a WebSocket's opening say to each other over HTTP/1 (RFC 6455 §1.3). Over HTTP/2 nothing of it is said (RFC 8441 §5), so where the versions
//! differ it is made here.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::prelude::{BASE64_STANDARD, Engine};

use crate::worker::Worker;

/// A key: sixteen random bytes. It proves that the answer is one to it, and keeps nothing secret.
pub(crate) fn key(worker: &Worker) -> String {
    BASE64_STANDARD.encode([worker.random().to_be_bytes(), worker.random().to_be_bytes()].concat())
}

/// What is answered to a key.
pub(crate) fn accept(key: &[u8]) -> String {
    let said = [key, b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"].concat();
    BASE64_STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_specifications_own_example() {
        assert_eq!(
            accept(b"dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }
}
