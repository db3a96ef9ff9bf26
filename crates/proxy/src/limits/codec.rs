//! The limits that the HTTP/1 codec keeps.

use super::Limits;
use crate::http1;

impl Limits {
    /// Those of requests.
    pub(crate) fn of_requests(&self) -> http1::Limits {
        http1::Limits {
            target_bytes: self.uri_bytes,
            field_bytes: self.header_bytes,
            fields: self.headers,
            body_bytes: self.body_bytes,
            ..http1::Limits::default()
        }
    }

    /// Those of responses.
    pub(crate) fn of_responses(&self) -> http1::Limits {
        http1::Limits {
            body_bytes: None,
            ..self.of_requests()
        }
    }
}
