//! What can be wrong with a message, whose fault it is and which status says so.

use thiserror::Error as ThisError;

/// A message that was refused. The connection it came on is not read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ThisError)]
pub enum Error {
    /// A client's request.
    #[error("request: {0}")]
    Client(Fault),
    /// A backend's response.
    #[error("response: {0}")]
    Backend(Fault),
}

impl Error {
    /// The status to answer the client with: what the fault means for a request, 502 for any response.
    pub fn status(self) -> u16 {
        match self {
            Error::Client(fault) => fault.status(),
            Error::Backend(_) => 502,
        }
    }

    /// The fault as one word, for `x-pointsman-reason` and logs.
    pub fn reason(self) -> &'static str {
        self.fault().reason()
    }

    /// What is wrong.
    pub fn fault(self) -> Fault {
        match self {
            Error::Client(fault) | Error::Backend(fault) => fault,
        }
    }

    /// Whether the client is to blame, rather than a backend.
    pub fn is_clients(self) -> bool {
        matches!(self, Error::Client(_))
    }

    /// Whether the connection that the message came on has to be closed. Always: where the next message begins is no longer known.
    pub fn must_close(self) -> bool {
        true
    }
}

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $name:ident = $status:literal, $text:literal;)+) => {
        /// What is wrong with a message.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, ThisError)]
        pub enum Fault {
            $($(#[doc = $doc])+ #[error($text)] $name,)+
        }

        impl Fault {
            /// Every fault there is.
            pub const ALL: &[Fault] = &[$(Fault::$name),+];

            /// The status it means in a request.
            pub fn status(self) -> u16 {
                match self { $(Fault::$name => $status,)+ }
            }

            /// Its name.
            pub fn reason(self) -> &'static str {
                match self { $(Fault::$name => stringify!($name),)+ }
            }
        }
    };
}

faults! {
    /// The request line is not method, target and version, one space apart.
    BadRequestLine = 400, "malformed request line";
    /// The status line is not version, code and reason, or the code is below 100.
    BadStatusLine = 400, "malformed status line";
    /// A CR without LF, or an LF without CR.
    BareNewline = 400, "a line does not end with CRLF";
    /// Empty, followed by a space, not a token, or a folded line.
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
    /// Characters that no URI has, a scheme other than http and https, or a form that the method does not have.
    BadTarget = 400, "malformed request target";
    /// Longer than [`super::Limits::target_bytes`].
    TargetTooLong = 414, "the request target is too long";
    /// CONNECT: this is no forward proxy.
    Connect = 501, "CONNECT is not served";
    /// A request target in authority-form, which only CONNECT has.
    AuthorityForm = 400, "authority-form is not served";
    /// HTTP/1.1 without Host.
    MissingHost = 400, "Host is missing";
    /// Two Hosts, be they equal.
    DuplicateHost = 400, "more than one Host";
    /// Not a host and an optional port.
    BadHost = 400, "malformed host";
    /// Not one field of digits, or more than 2^63-1.
    BadContentLength = 400, "malformed or duplicate Content-Length";
    /// Not one field that says `chunked` and nothing else, or any in HTTP/1.0 or in a response that can't have it.
    BadTransferEncoding = 400, "Transfer-Encoding other than one chunked";
    /// Content-Length and Transfer-Encoding in one message.
    LengthAndTransferEncoding = 400, "both Content-Length and Transfer-Encoding";
    /// More than 32 connection options.
    TooManyConnectionOptions = 400, "too many connection options";
    /// An Expect that isn't `100-continue`.
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
    /// A 101 that nobody asked for, or to another protocol; a 1xx that announces a body; more than 32 of them.
    UnexpectedInterim = 400, "an interim response that was not asked for";
    /// Bytes where no response is due.
    Unsolicited = 400, "bytes that no request asked for";
}

impl Fault {
    /// The limit that was gone beyond, if it is one that an operator sets.
    pub fn limit(self) -> Option<&'static str> {
        match self {
            Fault::HeadTooLarge | Fault::TrailersTooLarge => Some("header-bytes"),
            Fault::TooManyFields => Some("headers"),
            Fault::TargetTooLong => Some("uri-bytes"),
            Fault::BodyTooLarge => Some("body-bytes"),
            _ => None,
        }
    }
}
