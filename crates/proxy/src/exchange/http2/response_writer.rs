//! Responses to clients over HTTP/2.

use std::cell::RefCell;

use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Response, StatusCode};

use super::super::head::Head;
use super::super::headers::Headers;
use super::super::sink::{Sink, SinkError};
use super::sink::Http2Sink;
use super::{ResetWatch, SendState, fields};
use crate::http1::{EncodeError, WriteError};
use crate::io::flood_guard::FloodGuard;

/// Writes a response to a stream.
#[derive(Debug)]
pub(crate) struct Http2ResponseWriter<'c> {
    sending: &'c RefCell<SendState>,
    flood_guard: &'c FloodGuard,
    /// The request was HEAD.
    head_only: bool,
    started: bool,
}

impl<'c> Http2ResponseWriter<'c> {
    /// Creates the writer for the response to one request.
    pub(crate) fn new(
        sending: &'c RefCell<SendState>,
        flood_guard: &'c FloodGuard,
        head_only: bool,
    ) -> Self {
        Http2ResponseWriter {
            sending,
            flood_guard,
            head_only,
            started: false,
        }
    }

    pub(crate) fn has_started(&self) -> bool {
        self.started
    }

    /// Returns a watch for a reset by the client.
    pub(crate) fn reset_watch(&self) -> ResetWatch<'c> {
        ResetWatch(self.sending)
    }

    pub(crate) fn interim(&mut self, status: u16, headers: &Headers<'_>) -> Result<(), SinkError> {
        let response = response(status, headers, None)?;
        match &mut *self.sending.borrow_mut() {
            SendState::Response(respond) => Ok(respond.send_informational(response)?),
            _ => Ok(()),
        }
    }

    pub(crate) fn begin(&mut self, head: &Head<'_>) -> Result<Option<Sink<'_>>, SinkError> {
        let bodiless = self.head_only || matches!(head.status, 204 | 304);
        let length = head.content_length.filter(|_| head.status != 204);
        let response = response(head.status, &head.headers, length)?;
        self.send(response, bodiless || head.framing.is_empty())?;
        Ok((!bodiless).then(|| self.sink()))
    }

    /// Opens the WebSocket. RFC 8441 §5: with a 2xx and without `sec-websocket-accept`.
    pub(crate) fn accept_websocket(&mut self, head: &Head<'_>) -> Result<(), SinkError> {
        let mut response = response(200, &head.headers, None)?;
        response.headers_mut().remove("sec-websocket-accept");
        self.send(response, false)
    }

    /// Returns the sink for the body.
    pub(crate) fn sink(&mut self) -> Sink<'_> {
        Sink::Http2(Http2Sink::new(self.sending, Some(self.flood_guard)))
    }

    fn send(&mut self, response: Response<()>, ended: bool) -> Result<(), SinkError> {
        let mut sending = self.sending.borrow_mut();
        let SendState::Response(respond) = &mut *sending else {
            return Ok(());
        };
        let stream = respond.send_response(response, ended)?;
        self.started = true;
        *sending = match ended {
            true => SendState::Finished,
            false => SendState::Body(stream),
        };
        Ok(())
    }
}

fn response(
    status: u16,
    headers: &Headers<'_>,
    content_length: Option<u64>,
) -> Result<Response<()>, EncodeError> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).map_err(|_| WriteError::Status)?;
    let mut map = fields::map(headers, 1)?;
    if let Some(length) = content_length {
        map.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    *response.headers_mut() = map;
    Ok(response)
}
