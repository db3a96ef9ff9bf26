//! Basic grammar of RFC 9110 and RFC 9112: tokens, lists, versions, reason phrases.

/// The version of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Version {
    /// HTTP/1.0: no chunked coding, and connections are closed by default.
    Http10,
    /// HTTP/1.1.
    #[default]
    Http11,
}

impl Version {
    /// Returns the version as sent.
    pub fn as_bytes(self) -> &'static [u8] {
        match self {
            Version::Http10 => b"HTTP/1.0",
            Version::Http11 => b"HTTP/1.1",
        }
    }
}

const fn table(of: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut at = 0;
    while at < 256 {
        table[at] = (at as u8).is_ascii_alphanumeric();
        at += 1;
    }
    at = 0;
    while at < of.len() {
        table[of[at] as usize] = true;
        at += 1;
    }
    table
}

/// RFC 9110 §5.6.2, "tchar".
pub(super) static TOKEN: [bool; 256] = table(b"!#$%&'*+-.^_`|~");

/// Characters of a path: RFC 3986 §3.3, "pchar" and "/", and also `[]{}|^` and the grave accent, which browsers send unescaped (URL Standard, "path
/// percent-encode set" and its predecessors).
pub(super) static PATH: [bool; 256] = table(b"-._~!$&'()*+,;=:@/%[]{}|^`");

/// Characters of a query: those of a path, "?", and the backslash, which browsers send unescaped only in queries.
pub(super) static QUERY: [bool; 256] = table(b"-._~!$&'()*+,;=:@/%[]{}|^`?\\");

/// RFC 3986 §3.2.2, "reg-name". The digits after "%" are checked separately.
pub(super) static REG_NAME: [bool; 256] = table(b"-._~!$&'()*+,;=%");

/// Returns whether all bytes are in the table. Processes eight at a time without a branch.
pub(super) fn all(bytes: &[u8], table: &[bool; 256]) -> bool {
    let of = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(true, |all, byte| all & table[usize::from(*byte)])
    };
    let (eights, rest) = bytes.as_chunks::<8>();
    eights.iter().all(|eight| of(eight)) && of(rest)
}

/// Returns whether this is a token (RFC 9110 §5.6.2), such as a method or a field name.
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, &TOKEN)
}

/// Returns the non-empty elements of a comma-separated list (RFC 9110 §5.6.1), without surrounding white space. Quoted strings are not supported: no list
/// that the codec reads contains them.
pub fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|byte| *byte == b',')
        .map(trim)
        .filter(|element| !element.is_empty())
}

fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Converts bytes that the parser has validated as ASCII.
pub(super) fn ascii(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// Returns the reason phrase of a status (RFC 9110 §15); empty if none is registered.
pub fn standard_reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        511 => "Network Authentication Required",
        _ => "",
    }
}
