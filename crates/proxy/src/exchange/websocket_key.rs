//! `Sec-WebSocket-Key` and `Sec-WebSocket-Accept` of the opening handshake over HTTP/1 (RFC 6455 §1.3). HTTP/2 has neither (RFC 8441 §5), so they are generated
//! here if client and backend use different versions.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::prelude::{BASE64_STANDARD, Engine};

use crate::worker::Worker;

/// Generates a key of sixteen random bytes. It associates request and response and is not a secret.
pub(crate) fn generate(worker: &Worker) -> String {
    BASE64_STANDARD.encode([worker.random().to_be_bytes(), worker.random().to_be_bytes()].concat())
}

/// Returns the `Sec-WebSocket-Accept` for a key.
pub(crate) fn accept(key: &[u8]) -> String {
    let input = [key, b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"].concat();
    BASE64_STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &input))
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
