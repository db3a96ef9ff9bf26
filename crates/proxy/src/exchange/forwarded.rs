//! What backends are told of the client: `x-forwarded-*` and a request id.

use std::borrow::Cow;

use http::HeaderName;

use super::lines::{Line, Lines};
use super::request::Request;
use crate::downstream::ClientConnection;
use crate::worker::Worker;

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// What a request is called.
pub(crate) static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What is told of one request.
#[derive(Debug)]
pub(crate) struct Forwarded<'p> {
    /// The addresses that the request came through, the last one as it was seen here.
    addresses: Cow<'p, str>,
    /// Whether the client's word on the rest is believed.
    trusted: bool,
    /// A request id, if the client has named none.
    id: Option<[u8; 32]>,
}

impl<'p> Forwarded<'p> {
    /// For a request of this connection. What the client says of others is believed only from proxies that are trusted.
    pub(crate) fn new(
        worker: &Worker,
        passage: &'p ClientConnection,
        request: &Request<'_>,
    ) -> Self {
        let trusted = passage.trusted;
        let mut addresses = Cow::Borrowed(&*passage.address);
        if trusted && request.lines.get("x-forwarded-for").is_some() {
            let mut all = String::new();
            for value in request.lines.all("x-forwarded-for") {
                all.push_str(&String::from_utf8_lossy(value));
                all.push_str(", ");
            }
            all.push_str(&passage.address);
            addresses = Cow::Owned(all);
        }
        let id = match request.lines.get("x-request-id") {
            Some(_) => None,
            None => Some(hexadecimal([worker.random(), worker.random()])),
        };
        Forwarded {
            addresses,
            trusted,
            id,
        }
    }

    /// Tells it.
    pub(crate) fn tell<'l>(
        &'l self,
        lines: &mut Lines<'l>,
        passage: &ClientConnection,
        authority: Option<&'l str>,
    ) {
        let set = |lines: &mut Lines<'l>, name: &'static HeaderName, value: &'l str| {
            lines.set_line(Line::known(name, value.as_bytes()));
        };
        set(lines, &X_FORWARDED_FOR, &self.addresses);
        if !self.trusted || lines.get("x-forwarded-proto").is_none() {
            set(lines, &X_FORWARDED_PROTO, passage.scheme());
        }
        match authority {
            Some(authority) if !self.trusted || lines.get("x-forwarded-host").is_none() => {
                set(lines, &X_FORWARDED_HOST, authority);
            }
            None if !self.trusted => lines.remove("x-forwarded-host"),
            _ => {}
        }
        if let Some(id) = &self.id {
            lines.add_line(Line::known(&X_REQUEST_ID, id));
        }
    }

    /// The request's id, if it was made here.
    pub(crate) fn id(&self) -> Option<&str> {
        std::str::from_utf8(self.id.as_ref()?).ok()
    }
}

fn hexadecimal(words: [u64; 2]) -> [u8; 32] {
    std::array::from_fn(|at| {
        let digit = words[at / 16] >> (60 - 4 * (at % 16));
        b"0123456789abcdef"[(digit & 15) as usize]
    })
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
