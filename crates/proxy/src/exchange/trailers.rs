//! Trailers of requests. To HTTP/2 backends, Pointsman forwards all trailers except names that Pointsman or a rule sets as headers, because some origins merge
//! trailers into headers. HTTP/1 backends receive none ([`Encoder::request`](crate::http1::Encoder::request)).

use http::HeaderName;
use pointsman_routing::action::Forward;

use super::source::Trailers;
use crate::http1::is_forbidden_trailer;

/// Returns the trailers to forward: without fields that are not allowed in trailers, `x-forwarded-*`, the request id, and names that a filter of the rule
/// sets, adds or removes.
pub(super) fn forwarded(trailers: Trailers, forward: &Forward<'_>) -> Trailers {
    let mut map = trailers?;
    let rejected = |name: &&HeaderName| {
        // Some origins treat `_` as `-`.
        let name = name.as_str().replace('_', "-");
        is_forbidden_trailer(name.as_bytes())
            || name == "x-request-id"
            || forward.edits_request_field(name.as_bytes())
    };
    let rejected: Vec<HeaderName> = map.keys().filter(rejected).cloned().collect();
    for name in rejected {
        map.remove(name);
    }
    Some(map).filter(|map| !map.is_empty())
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::*;

    #[test]
    fn trailers_that_frame_route_or_modify_the_request_are_not_forwarded() {
        let table = [
            ("x-sum", true),
            ("grpc-status", true),
            ("content-digest", true),
            ("x_sum", true),
            ("x-forwarded-for", false),
            ("x-forwarded-client-cert", false),
            ("x_forwarded_for", false),
            ("forwarded", false),
            ("x-request-id", false),
            ("x_request-id", false),
            ("content-type", false),
            ("content_length", false),
            ("transfer_encoding", false),
            ("host", false),
            ("authorization", false),
            ("cookie", false),
            ("if-match", false),
            ("pragma", false),
        ];
        for (name, passes) in table {
            let mut map = HeaderMap::new();
            map.append(name, HeaderValue::from_static("1"));
            map.append(name, HeaderValue::from_static("2"));
            let forwarded = forwarded(Some(Box::new(map)), &Forward::unchanged());
            assert_eq!(
                forwarded.map(|map| map.len()),
                passes.then_some(2),
                "{name}"
            );
        }
    }
}
