//! The head of a response, from a backend or made here.

use super::headers::Headers;
use crate::http1::Framing;

/// Head of a response.
#[derive(Debug)]
pub(crate) struct Head<'h> {
    pub(crate) status: u16,
    /// Reason phrase of HTTP/1; `None` for the standard one.
    pub(crate) reason: Option<&'h [u8]>,
    /// End-to-end header fields; the writer adds framing and connection fields.
    pub(crate) headers: Headers<'h>,
    /// Framing of the body as received or generated. The writer chooses the framing sent to the client.
    pub(crate) framing: Framing,
    /// Length of the body, also for responses that have none because the request was HEAD or the status is 304.
    pub(crate) content_length: Option<u64>,
}
