//! Header lines as `h2` takes them.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::super::lines::Lines;
use crate::http1::{WriteError, is_forwarded};

/// Values up to this size together are kept in one place; larger ones each in its own, so that the compression's table holds no more than it has to.
const TOGETHER: usize = 2048;

/// Makes a map of lines, with room for some more. What belongs to a connection is left out.
pub(super) fn map(lines: &Lines<'_>, more: usize) -> Result<HeaderMap, WriteError> {
    let mut map = HeaderMap::with_capacity(lines.iter().len() + more);
    let bytes: usize = lines.iter().map(|(_, value)| value.len()).sum();
    let together = (bytes <= TOGETHER).then(|| {
        let mut all = Vec::with_capacity(bytes);
        lines
            .iter()
            .for_each(|(_, value)| all.extend_from_slice(value));
        Bytes::from(all)
    });
    let mut at = 0;
    for (name, value) in lines.iter() {
        let end = at + value.len();
        if is_forwarded(name) {
            let value = match &together {
                Some(all) => HeaderValue::from_maybe_shared(all.slice(at..end)),
                None => HeaderValue::from_bytes(value),
            };
            let value = value.map_err(|_| WriteError::Value)?;
            map.try_append(self::name(name)?, value)
                .map_err(|_| WriteError::Name)?;
        }
        at = end;
    }
    Ok(map)
}

/// A name. Those that are added to every request need no memory of their own.
fn name(name: &[u8]) -> Result<HeaderName, WriteError> {
    Ok(match name {
        b"x-forwarded-for" => HeaderName::from_static("x-forwarded-for"),
        b"x-forwarded-proto" => HeaderName::from_static("x-forwarded-proto"),
        b"x-forwarded-host" => HeaderName::from_static("x-forwarded-host"),
        b"x-request-id" => HeaderName::from_static("x-request-id"),
        b"x-pointsman-reason" => HeaderName::from_static("x-pointsman-reason"),
        b"grpc-status" => HeaderName::from_static("grpc-status"),
        b"grpc-message" => HeaderName::from_static("grpc-message"),
        name => HeaderName::from_bytes(name).map_err(|_| WriteError::Name)?,
    })
}

/// Trailers that may be passed on. RFC 9110 §6.5.1: fields that frame, route or modify the message are not for trailers.
pub(super) fn trailers(mut map: HeaderMap) -> Option<HeaderMap> {
    let bad: Vec<HeaderName> = map
        .keys()
        .filter(|name| !is_forwarded(name.as_str().as_bytes()))
        .cloned()
        .collect();
    for name in bad {
        map.remove(name);
    }
    (!map.is_empty()).then_some(map)
}
