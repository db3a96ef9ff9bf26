//! A client that speaks HTTP/2.

use std::cell::RefCell;

use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Response, StatusCode};

use super::super::client::Head;
use super::super::lines::Lines;
use super::super::sink::{Sink, SinkError};
use super::sink::Outgoing;
use super::{Gone, Sending, fields};
use crate::http1::{EncodeError, WriteError};
use crate::io::flood_guard::FloodGuard;

/// Where a response goes over HTTP/2.
#[derive(Debug)]
pub(crate) struct Http2Client<'c> {
    sending: &'c RefCell<Sending>,
    account: &'c FloodGuard,
    /// It asked for the head alone.
    head_only: bool,
    begun: bool,
}

impl<'c> Http2Client<'c> {
    /// A client whose request was HEAD or not.
    pub(crate) fn new(
        sending: &'c RefCell<Sending>,
        account: &'c FloodGuard,
        head_only: bool,
    ) -> Self {
        Http2Client {
            sending,
            account,
            head_only,
            begun: false,
        }
    }

    pub(crate) fn begun(&self) -> bool {
        self.begun
    }

    /// Tells when it is gone.
    pub(crate) fn gone(&self) -> Gone<'c> {
        Gone(self.sending)
    }

    pub(crate) fn interim(&mut self, status: u16, lines: &Lines<'_>) -> Result<(), SinkError> {
        let response = response(status, lines, None)?;
        match &mut *self.sending.borrow_mut() {
            Sending::Response(respond) => Ok(respond.send_informational(response)?),
            _ => Ok(()),
        }
    }

    pub(crate) fn begin(&mut self, head: &Head<'_, '_>) -> Result<Option<Sink<'_>>, SinkError> {
        let bodiless = self.head_only || matches!(head.status, 204 | 304);
        let length = head.content_length.filter(|_| head.status != 204);
        let response = response(head.status, head.lines, length)?;
        self.send(response, bodiless || head.framing.is_empty())?;
        Ok((!bodiless).then(|| self.sink()))
    }

    /// Says that the stream is a WebSocket from here on. RFC 8441 §5: a 2xx opens it, and there is no `sec-websocket-accept`.
    pub(crate) fn switch(&mut self, head: &Head<'_, '_>) -> Result<(), SinkError> {
        let mut response = response(200, head.lines, None)?;
        response.headers_mut().remove("sec-websocket-accept");
        self.send(response, false)
    }

    /// Where the body goes.
    pub(crate) fn sink(&mut self) -> Sink<'_> {
        Sink::Http2(Outgoing::new(self.sending, Some(self.account)))
    }

    fn send(&mut self, response: Response<()>, ended: bool) -> Result<(), SinkError> {
        let mut sending = self.sending.borrow_mut();
        let Sending::Response(respond) = &mut *sending else {
            return Ok(());
        };
        let stream = respond.send_response(response, ended)?;
        self.begun = true;
        *sending = match ended {
            true => Sending::Over,
            false => Sending::Body(stream),
        };
        Ok(())
    }
}

fn response(
    status: u16,
    lines: &Lines<'_>,
    content_length: Option<u64>,
) -> Result<Response<()>, EncodeError> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).map_err(|_| WriteError::Status)?;
    let mut map = fields::map(lines, 1)?;
    if let Some(length) = content_length {
        map.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    *response.headers_mut() = map;
    Ok(response)
}
