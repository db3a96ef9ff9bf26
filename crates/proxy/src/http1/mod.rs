//! HTTP/1.0 and HTTP/1.1 as RFC 9112 has them, strictly, without I/O.
//!
//! The caller owns the bytes. It hands a codec the unread part of a connection's buffer, which always begins where the last answer said
//! that it ended, and gets back offsets into that same slice; nothing is copied and no field is allocated. [`RequestReader`] (what a
//! server reads) and [`ResponseReader`] (what a client reads) turn bytes into [`Event`]s; [`HeadWriter`] and [`Encoder`] write.
//!
//! The one idea: **framing is never passed on.** What the peer said about where its message ends is decided once, by
//! [`RequestHead::parse`] or [`ResponseHead::parse`], and what goes out is framed anew by the [`Encoder`]. Anything two readers could
//! understand differently is refused, and after a refusal nothing more is read from that connection.
//!
//! Heads are parsed by `httparse`, which is more liberal than that. What it lets through is refused here: lines that end without CR (in
//! `lines`), any number of empty lines before a message (in `request` and `response`), bytes that no URI has (in `target`).

mod body;
mod chunked;
mod control;
mod encode;
mod error;
mod field;
mod grammar;
mod limits;
mod lines;
mod reader;
mod request;
mod response;
mod target;
mod write;

pub use body::{BodyDecoder, Decoded, Framing};
pub(crate) use control::content_length;
pub use encode::{EncodeError, Encoder};
pub use error::{Error, Fault};
pub use field::{Field, Fields, Known};
pub(crate) use field::{is_forbidden_trailer, is_forwarded};
pub use grammar::{Version, is_token, list, standard_reason};
pub use limits::Limits;
pub(crate) use reader::MOST_INTERIMS;
pub use reader::{Body, Close, Eof, Event, RequestReader, ResponseReader};
pub use request::{Request, RequestHead};
pub use response::{Asked, Response, ResponseHead};
pub use target::Form;
pub(crate) use target::{is_authority, is_path, is_query};
pub use write::{HeadWriter, WriteError};
