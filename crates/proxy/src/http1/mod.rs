//! A strict codec for HTTP/1.0 and HTTP/1.1 (RFC 9112), without I/O.
//!
//! The caller owns the bytes. It passes the unread part of a connection's buffer to the codec, which returns offsets into that slice; nothing is copied and no
//! field is allocated. [`RequestReader`] (for servers) and [`ResponseReader`] (for clients) turn bytes into [`Event`]s; [`HeadWriter`] and [`Encoder`] write.
//!
//! The one idea: **framing is never forwarded.** [`RequestHead::parse`] or [`ResponseHead::parse`] determines the end of a received message, and the
//! [`Encoder`] generates the framing of the forwarded one. Anything that two recipients could interpret differently is rejected, and nothing more is read from
//! that connection.
//!
//! Heads are parsed by `httparse`, which is more lenient. The codec additionally rejects lines that end without CR (in `line_endings`), empty lines before a
//! message (in `request` and `response`), and characters that are invalid in URIs (in `target`).

mod body;
mod chunked;
mod control_fields;
mod encode;
mod error;
mod field;
mod grammar;
mod limits;
mod line_endings;
mod reader;
mod request;
mod response;
mod target;
mod write;

pub use body::{BodyDecoder, Decoded, Framing};
pub(crate) use control_fields::content_length;
pub use encode::{EncodeError, Encoder};
pub use error::{Error, MessageFault};
pub use field::{Field, Fields, KnownField};
pub(crate) use field::{is_forbidden_trailer, is_forwarded};
pub use grammar::{Version, is_token, list, standard_reason};
pub use limits::Limits;
pub(crate) use reader::MAX_INTERIM_RESPONSES;
pub use reader::{BodyReader, Close, Eof, Event, RequestReader, ResponseReader};
pub use request::{RequestHead, RequestView};
pub use response::{ResponseContext, ResponseHead, ResponseView};
pub use target::TargetForm;
pub(crate) use target::{is_authority, is_path, is_query};
pub use write::{HeadWriter, WriteError};
