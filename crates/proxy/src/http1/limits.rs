//! How much of each part of a message is taken. What is over a limit is refused with the status that its
//! [`Fault`](super::Fault) names.

/// Limits of one side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the request target (414).
    pub target_bytes: usize,
    /// Bytes of the header section: everything after the request line, or a response's whole head (431).
    pub field_bytes: usize,
    /// Fields in a head (431). At most [`Limits::MOST_FIELDS`], whatever stands here.
    pub fields: usize,
    /// Bytes of chunk extensions beyond those of the data they came with, over a whole body (400). Extensions are read and dropped;
    /// a body of tiny chunks with large extensions would otherwise cost its reader much and its sender little.
    pub chunk_extension_bytes: usize,
    /// Bytes of the trailer section (431).
    pub trailer_bytes: usize,
    /// Fields in the trailer section (431). At most [`Limits::MOST_FIELDS`].
    pub trailers: usize,
    /// Bytes of a body, without framing (413).
    pub body_bytes: Option<u64>,
}

impl Limits {
    /// Room for fields while a head is parsed, on the stack.
    pub const MOST_FIELDS: usize = 256;
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
