//! Size limits for the parts of a message. A message that exceeds one is rejected with the status of its [`MessageFault`](super::MessageFault).

/// Limits for messages received from one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the request target (414).
    pub target_bytes: usize,
    /// Bytes of the header section: everything after the request line, or a response's whole head (431).
    pub field_bytes: usize,
    /// Fields in a head (431), capped at [`Limits::MAX_FIELDS`].
    pub fields: usize,
    /// Bytes of chunk extensions in excess of the bytes of data, over a whole body (400). Bounds the work for a body of tiny chunks with large extensions,
    /// which are discarded.
    pub chunk_extension_bytes: usize,
    /// Bytes of the trailer section (431).
    pub trailer_bytes: usize,
    /// Fields in the trailer section (431), capped at [`Limits::MAX_FIELDS`].
    pub trailers: usize,
    /// Bytes of a body, without framing (413).
    pub body_bytes: Option<u64>,
}

impl Limits {
    /// Capacity for fields on the stack while a head is parsed.
    pub const MAX_FIELDS: usize = 256;
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            target_bytes: 16 * 1024,
            field_bytes: 64 * 1024,
            fields: 100,
            chunk_extension_bytes: 4 * 1024,
            trailer_bytes: 16 * 1024,
            trailers: 32,
            body_bytes: None,
        }
    }
}
