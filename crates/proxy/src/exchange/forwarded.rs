//! The `x-forwarded-*` headers and the request id.

use std::borrow::Cow;

use http::HeaderName;

use super::headers::{Header, Headers};
use super::request::DownstreamRequest;
use crate::downstream::ClientConnection;
use crate::worker::Worker;

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// Header of the request id.
pub(crate) static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Headers that describe a request's client to the backend.
#[derive(Debug)]
pub(crate) struct ForwardedHeaders<'p> {
    /// Value of `x-forwarded-for`: the addresses that the request passed through; the last is that of the connection.
    addresses: Cow<'p, str>,
    /// The client is a trusted proxy, whose own headers are kept.
    trusted: bool,
    /// Generated request id, if the client has sent none.
    id: Option<[u8; 32]>,
}

impl<'p> ForwardedHeaders<'p> {
    /// Creates the headers of a request. Those sent by the client are kept only if it is a trusted proxy.
    pub(crate) fn new(
        worker: &Worker,
        connection: &'p ClientConnection,
        request: &DownstreamRequest<'_>,
    ) -> Self {
        let trusted = connection.trusted;
        let mut addresses = Cow::Borrowed(&*connection.address);
        if trusted && request.headers.get("x-forwarded-for").is_some() {
            let mut all = String::new();
            for value in request.headers.all("x-forwarded-for") {
                all.push_str(&String::from_utf8_lossy(value));
                all.push_str(", ");
            }
            all.push_str(&connection.address);
            addresses = Cow::Owned(all);
        }
        let id = match request.headers.get("x-request-id") {
            Some(_) => None,
            None => Some(hexadecimal([worker.random(), worker.random()])),
        };
        ForwardedHeaders {
            addresses,
            trusted,
            id,
        }
    }

    /// Sets the headers, after those of an untrusted client were removed.
    pub(crate) fn apply_to<'l>(
        &'l self,
        headers: &mut Headers<'l>,
        connection: &ClientConnection,
        authority: Option<&'l str>,
    ) {
        let set = |headers: &mut Headers<'l>, name: &'static HeaderName, value: &'l str| {
            let header = Header::known(name, value.as_bytes());
            match self.trusted {
                true => headers.set(header),
                // The client's own value was removed.
                false => headers.push(header),
            }
        };
        set(headers, &X_FORWARDED_FOR, &self.addresses);
        if !self.trusted || headers.get("x-forwarded-proto").is_none() {
            set(headers, &X_FORWARDED_PROTO, connection.scheme());
        }
        if let Some(authority) = authority
            && (!self.trusted || headers.get("x-forwarded-host").is_none())
        {
            set(headers, &X_FORWARDED_HOST, authority);
        }
        if let Some(id) = &self.id {
            headers.push(Header::known(&X_REQUEST_ID, id));
        }
    }

    /// Returns the request id, if it was generated here.
    pub(crate) fn id(&self) -> Option<&str> {
        std::str::from_utf8(self.id.as_ref()?).ok()
    }
}

fn hexadecimal(words: [u64; 2]) -> [u8; 32] {
    let mut digits = [0; 32];
    let halves = words.into_iter().flat_map(|word| [word >> 32, word]);
    for (eight, half) in digits.chunks_exact_mut(8).zip(halves) {
        eight.copy_from_slice(&eight_digits(half as u32).to_be_bytes());
    }
    digits
}

/// Returns the hexadecimal digits of a number, one per byte.
fn eight_digits(number: u32) -> u64 {
    let mut digits = u64::from(number);
    digits = (digits << 16 | digits) & 0x0000_ffff_0000_ffff;
    digits = (digits << 8 | digits) & 0x00ff_00ff_00ff_00ff;
    digits = (digits << 4 | digits) & 0x0f0f_0f0f_0f0f_0f0f;
    // 1 for each letter.
    let letters = ((digits + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    digits + 0x3030_3030_3030_3030 + letters * u64::from(b'a' - b'0' - 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_written_in_thirty_two_digits() {
        let id = hexadecimal([0x0123_4567_89ab_cdef, 0x10]);
        assert_eq!(&id, b"0123456789abcdef0000000000000010");
    }
}
