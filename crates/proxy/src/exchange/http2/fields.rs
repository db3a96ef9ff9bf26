//! Header lines as `h2` takes them.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::super::forwarded::X_REQUEST_ID;
use super::super::lines::Lines;
use crate::http1::{WriteError, is_forwarded};

/// Values up to this size together are kept in one place; larger ones each in its own, so that the compression's table holds no more than it has to.
const TOGETHER: usize = 2048;

/// Makes a map of lines, with room for some more. What belongs to a connection is left out.
pub(super) fn map(lines: &Lines<'_>, more: usize) -> Result<HeaderMap, WriteError> {
    let mut map = HeaderMap::with_capacity(lines.iter().len() + more);
    let bytes: usize = lines.iter().map(|line| line.value.len()).sum();
    let together = (bytes <= TOGETHER).then(|| {
        let mut all = Vec::with_capacity(bytes);
        lines
            .iter()
            .for_each(|line| all.extend_from_slice(line.value));
        Bytes::from(all)
    });
    let mut at = 0;
    for line in lines.iter() {
        let end = at + line.value.len();
        if is_forwarded(line.name) {
            let value = match &together {
                Some(all) => HeaderValue::from_maybe_shared(all.slice(at..end)),
                None => HeaderValue::from_bytes(line.value),
            };
            let mut value = value.map_err(|_| WriteError::Value)?;
            let name = match line.known {
                Some(name) => name.clone(),
                None => HeaderName::from_bytes(line.name).map_err(|_| WriteError::Name)?,
            };
            // No two are the same: in the compression's table they would only drive out what comes again.
            value.set_sensitive(name == X_REQUEST_ID);
            map.try_append(name, value).map_err(|_| WriteError::Name)?;
        }
        at = end;
    }
    Ok(map)
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
