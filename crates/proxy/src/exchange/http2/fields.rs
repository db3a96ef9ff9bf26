//! Conversion of header fields for `h2`.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::super::forwarded::X_REQUEST_ID;
use super::super::headers::Headers;
use crate::http1::{WriteError, is_forwarded};

/// Maximum total size of values that share one allocation. Larger ones are allocated separately, because the HPACK table keeps the allocation of each entry
/// alive.
const MAX_SHARED_BYTES: usize = 2048;

/// Builds a header map with capacity for `more` additional fields. Hop-by-hop fields are omitted.
pub(super) fn map(headers: &Headers<'_>, more: usize) -> Result<HeaderMap, WriteError> {
    let mut map = HeaderMap::with_capacity(headers.iter().len() + more);
    let bytes: usize = headers.iter().map(|header| header.value.len()).sum();
    let shared = (bytes <= MAX_SHARED_BYTES).then(|| {
        let mut all = Vec::with_capacity(bytes);
        headers
            .iter()
            .for_each(|header| all.extend_from_slice(header.value));
        Bytes::from(all)
    });
    let mut at = 0;
    for header in headers.iter() {
        let end = at + header.value.len();
        if is_forwarded(header.name) {
            let value = match &shared {
                Some(all) => HeaderValue::from_maybe_shared(all.slice(at..end)),
                None => HeaderValue::from_bytes(header.value),
            };
            let mut value = value.map_err(|_| WriteError::Value)?;
            let name = match header.known {
                Some(name) => name.clone(),
                None => HeaderName::from_bytes(header.name).map_err(|_| WriteError::Name)?,
            };
            // Each value is unique, so indexing it in the HPACK table would only evict useful entries.
            value.set_sensitive(name == X_REQUEST_ID);
            map.try_append(name, value).map_err(|_| WriteError::Name)?;
        }
        at = end;
    }
    Ok(map)
}

/// Returns the trailers that may be forwarded. RFC 9110 §6.5.1: fields that frame, route or modify the message are not allowed in trailers.
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
