//! Errors in messages, with the side at fault and the status to respond with.

use thiserror::Error as ThisError;

use crate::limits::limit_name;

/// A rejected message. Its connection must not be read further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ThisError)]
pub enum Error {
    /// A client's request.
    #[error("request: {0}")]
    Client(MessageFault),
    /// A backend's response.
    #[error("response: {0}")]
    Backend(MessageFault),
}

impl Error {
    /// Returns the status for the client: that of the fault for a request, 502 for a response.
    pub fn status(self) -> u16 {
        match self {
            Error::Client(fault) => fault.status(),
            Error::Backend(_) => 502,
        }
    }

    /// Returns the fault's name, for `x-pointsman-reason` and logs.
    pub fn reason(self) -> &'static str {
        self.fault().reason()
    }

    /// Returns the fault.
    pub fn fault(self) -> MessageFault {
        match self {
            Error::Client(fault) | Error::Backend(fault) => fault,
        }
    }

    /// Returns whether the client is at fault, rather than a backend.
    pub fn is_client_fault(self) -> bool {
        matches!(self, Error::Client(_))
    }
}

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $name:ident = $status:literal, $text:literal;)+) => {
        /// A violation of the protocol or of a limit.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, ThisError)]
        pub enum MessageFault {
            $($(#[doc = $doc])+ #[error($text)] $name,)+
        }

        impl MessageFault {
            /// All faults.
            pub const ALL: &[MessageFault] = &[$(MessageFault::$name),+];

            /// Returns the status for a request with this fault.
            pub fn status(self) -> u16 {
                match self { $(MessageFault::$name => $status,)+ }
            }

            /// Returns the name.
            pub fn reason(self) -> &'static str {
                match self { $(MessageFault::$name => stringify!($name),)+ }
            }
        }
    };
}

faults! {
    /// The request line is not method, target and version, separated by single spaces.
    BadRequestLine = 400, "malformed request line";
    /// The status line is not version, code and reason, or the code is below 100.
    BadStatusLine = 400, "malformed status line";
    /// A CR without LF, or an LF without CR.
    BareNewline = 400, "a line does not end with CRLF";
    /// A field name that is empty, followed by a space or not a token, or a folded line.
    BadFieldName = 400, "malformed field name, or a folded line";
    /// Control characters in a field's value; over HTTP/2, space around it.
    BadFieldValue = 400, "control characters in a field value, or space around it";
    /// More bytes of fields than [`super::Limits::field_bytes`].
    HeadTooLarge = 431, "the head is too large";
    /// More fields than [`super::Limits::fields`].
    TooManyFields = 431, "too many fields";
    /// More than 64 bytes of method.
    MethodTooLong = 501, "the method is longer than any known";
    /// A registered method in another case.
    MethodCase = 400, "the method differs from a registered one only in case";
    /// Neither HTTP/1.0 nor HTTP/1.1.
    BadVersion = 505, "HTTP version not supported";
    /// A target with characters that are invalid in URIs, a scheme other than http and https, or a form that is invalid for the method.
    BadTarget = 400, "malformed request target";
    /// Longer than [`super::Limits::target_bytes`].
    TargetTooLong = 414, "the request target is too long";
    /// CONNECT, which only forward proxies support.
    Connect = 501, "CONNECT is not supported";
    /// A request target in authority-form, which is for CONNECT only.
    AuthorityForm = 400, "a target in authority-form is not supported";
    /// HTTP/1.1 without Host.
    MissingHost = 400, "Host is missing";
    /// More than one Host field, even if they are equal.
    DuplicateHost = 400, "more than one Host";
    /// Not a host and an optional port.
    BadHost = 400, "malformed host";
    /// More than one Content-Length, a value that is not decimal digits, or more than 2^63-1.
    BadContentLength = 400, "malformed or duplicate Content-Length";
    /// A Transfer-Encoding other than a single `chunked`, or any in HTTP/1.0 or in a response that can't have one.
    BadTransferEncoding = 400, "Transfer-Encoding must be exactly one `chunked`";
    /// Content-Length and Transfer-Encoding in one message.
    LengthAndTransferEncoding = 400, "both Content-Length and Transfer-Encoding";
    /// More than 32 connection options.
    TooManyConnectionOptions = 400, "too many connection options";
    /// An Expect other than `100-continue`.
    BadExpectation = 417, "expectation other than 100-continue";
    /// Not hexadecimal digits, or too many.
    BadChunkSize = 400, "malformed chunk size";
    /// Control characters in chunk extensions, or more bytes of them than [`super::Limits::chunk_extension_bytes`].
    BadChunkExtension = 400, "malformed or oversized chunk extension";
    /// A chunk is not followed by CRLF.
    BadChunkEnd = 400, "a chunk does not end with CRLF";
    /// More trailers than [`super::Limits::trailer_bytes`] or [`super::Limits::trailers`].
    TrailersTooLarge = 431, "the trailers are too large";
    /// A body over [`super::Limits::body_bytes`].
    BodyTooLarge = 413, "the body is too large";
    /// The peer closed within a head.
    IncompleteHead = 400, "the connection ended within a head";
    /// The peer closed within a body.
    IncompleteBody = 400, "the connection ended within a body";
    /// A 101 that was not requested or is for another protocol, a 1xx that announces a body, or more than 32 interim responses.
    UnexpectedInterim = 400, "unexpected interim response";
    /// Bytes received while no response is expected.
    Unsolicited = 400, "bytes received without a request";
}

impl MessageFault {
    /// Returns the name of the exceeded limit, if it is configurable.
    pub fn limit(self) -> Option<&'static str> {
        match self {
            MessageFault::HeadTooLarge | MessageFault::TrailersTooLarge => {
                Some(limit_name::header_bytes)
            }
            MessageFault::TooManyFields => Some(limit_name::headers),
            MessageFault::TargetTooLong => Some(limit_name::uri_bytes),
            MessageFault::BodyTooLarge => Some(limit_name::body_bytes),
            _ => None,
        }
    }
}
