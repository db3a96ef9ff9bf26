//! The client's side of an exchange: where the response goes.

use super::handshake;
use super::http2::Gone;
use super::http2::client::Http2Client;
use super::lines::Lines;
use super::request::Spoken;
use super::sink::{Outgoing, Sink, SinkError};
use crate::http1::{Encoder, Framing, HeadWriter, Version, WriteError};
use crate::io::stream::WriteHalf;

/// A response's head.
#[derive(Debug)]
pub(crate) struct Head<'h, 'l> {
    /// The status.
    pub(crate) status: u16,
    /// The reason phrase; the standard one if none.
    pub(crate) reason: Option<&'h [u8]>,
    /// The fields, without framing.
    pub(crate) lines: &'h Lines<'l>,
    /// How the body is framed where it comes from.
    pub(crate) framing: Framing,
    /// The length of the body, also where it is not sent.
    pub(crate) content_length: Option<u64>,
}

/// Where a response goes.
#[derive(Debug)]
pub(crate) enum Client<'c> {
    /// Over HTTP/1.
    Http1(Http1Client<'c>),
    /// Over HTTP/2.
    Http2(Http2Client<'c>),
}

/// A client that speaks HTTP/1.
#[derive(Debug)]
pub(crate) struct Http1Client<'c> {
    writer: &'c mut WriteHalf,
    out: &'c mut Vec<u8>,
    spoken: Spoken,
    /// It asked for the head alone.
    head_only: bool,
    /// Whether the connection goes on after the response.
    keep: bool,
    begun: bool,
}

impl<'c> Http1Client<'c> {
    /// A client whose request was HEAD or not, and who wants to go on or not.
    pub(crate) fn new(
        writer: &'c mut WriteHalf,
        out: &'c mut Vec<u8>,
        spoken: Spoken,
        head_only: bool,
        keep: bool,
    ) -> Self {
        Http1Client {
            writer,
            out,
            spoken,
            head_only,
            keep,
            begun: false,
        }
    }

    fn begin(&mut self, head: &Head<'_, '_>) -> Result<Option<Sink<'_>>, WriteError> {
        let version = match self.spoken {
            Spoken::Http10 => Version::Http10,
            _ => Version::Http11,
        };
        let bodiless = self.head_only || head.status == 304;
        let encoder = match head.framing {
            _ if bodiless && head.status != 204 => Encoder::bodiless(head.content_length),
            framing => Encoder::response(framing, version),
        };
        self.keep &= !encoder.closes();
        let mut writer = HeadWriter::response(self.out, head.status, head.reason)?;
        writer.fields(head.lines.pairs())?;
        encoder.announce(&mut writer);
        match (self.keep, self.spoken) {
            (false, _) => writer.field(b"connection", b"close")?,
            (true, Spoken::Http10) => writer.field(b"connection", b"keep-alive")?,
            _ => {}
        }
        writer.finish();
        self.begun = true;
        if bodiless {
            return Ok(None);
        }
        Ok(Some(Sink::Http1(Outgoing::new(
            self.writer,
            self.out,
            encoder,
        ))))
    }

    /// Says that the connection is a WebSocket from here on.
    fn switch(&mut self, head: &Head<'_, '_>, key: Option<&[u8]>) -> Result<(), WriteError> {
        let mut writer = HeadWriter::response(self.out, 101, None)?;
        writer.fields(head.lines.pairs())?;
        writer.field(b"connection", b"upgrade")?;
        writer.field(b"upgrade", b"websocket")?;
        // A backend that speaks HTTP/2 has not said it.
        if let (None, Some(key)) = (head.lines.get("sec-websocket-accept"), key) {
            writer.field(b"sec-websocket-accept", handshake::accept(key).as_bytes())?;
        }
        writer.finish();
        self.begun = true;
        self.keep = false;
        Ok(())
    }
}

impl<'c> Client<'c> {
    /// Tells when it is gone, where that can be known before something is written.
    pub(crate) fn gone(&self) -> Option<Gone<'c>> {
        match self {
            Client::Http1(_) => None,
            Client::Http2(client) => Some(client.gone()),
        }
    }

    /// Whether a response has begun: then it is too late for another one.
    pub(crate) fn begun(&self) -> bool {
        match self {
            Client::Http1(client) => client.begun,
            Client::Http2(client) => client.begun(),
        }
    }

    /// Takes back a response of which nothing has left: another one may be given.
    pub(crate) fn take_back(&mut self) {
        if let Client::Http1(client) = self {
            client.out.clear();
            client.begun = false;
        }
    }

    /// Whether the client has broken the connection off. One that has only said all it will still waits.
    pub(crate) fn is_gone(&self) -> bool {
        match self {
            Client::Http1(client) => client.writer.is_reset(),
            // That is heard at once, by who watches the exchange.
            Client::Http2(_) => false,
        }
    }

    /// The connection ends after this response.
    pub(crate) fn close(&mut self) {
        match self {
            Client::Http1(client) => client.keep = false,
            // A stream carries one request; the connection is not concerned.
            Client::Http2(_) => {}
        }
    }

    /// Whether the connection goes on.
    pub(crate) fn keeps(&self) -> bool {
        match self {
            Client::Http1(client) => client.keep,
            Client::Http2(_) => false,
        }
    }

    /// Says that the body may come.
    pub(crate) async fn go_on(&mut self) -> Result<(), SinkError> {
        self.interim(100, &Lines::default()).await
    }

    /// Passes on an interim response. RFC 9110 §15.2: "A server MUST NOT send a 1xx response to an HTTP/1.0 client."
    pub(crate) async fn interim(
        &mut self,
        status: u16,
        lines: &Lines<'_>,
    ) -> Result<(), SinkError> {
        match self {
            Client::Http1(client) if client.spoken == Spoken::Http10 => Ok(()),
            Client::Http1(client) => {
                let mut writer = HeadWriter::response(client.out, status, None)
                    .map_err(crate::http1::EncodeError::from)?;
                writer
                    .fields(lines.pairs())
                    .map_err(crate::http1::EncodeError::from)?;
                writer.finish();
                self.flush().await
            }
            Client::Http2(client) => client.interim(status, lines),
        }
    }

    /// Begins the response. There is no sink where no body may be sent.
    pub(crate) fn begin(&mut self, head: &Head<'_, '_>) -> Result<Option<Sink<'_>>, SinkError> {
        match self {
            Client::Http1(client) => client
                .begin(head)
                .map_err(|error| SinkError::Encode(error.into())),
            Client::Http2(client) => client.begin(head),
        }
    }

    /// Says that the connection is a WebSocket from here on, in answer to this key.
    pub(crate) fn switch(
        &mut self,
        head: &Head<'_, '_>,
        key: Option<&[u8]>,
    ) -> Result<(), SinkError> {
        match self {
            Client::Http1(client) => client
                .switch(head, key)
                .map_err(|error| SinkError::Encode(error.into())),
            Client::Http2(client) => client.switch(head),
        }
    }

    /// Where the bytes of a WebSocket go.
    pub(crate) fn stream(&mut self) -> Option<Sink<'_>> {
        match self {
            Client::Http1(client) => {
                let encoder = Encoder::response(Framing::UntilClose, Version::Http10);
                let outgoing = Outgoing::new(client.writer, client.out, encoder);
                Some(Sink::Http1(outgoing))
            }
            Client::Http2(client) => Some(client.sink()),
        }
    }

    /// Sends what was gathered.
    pub(crate) async fn flush(&mut self) -> Result<(), SinkError> {
        match self {
            Client::Http1(client) => {
                client.writer.write_all(&mut [client.out]).await?;
                client.out.clear();
                Ok(())
            }
            // It leaves when the connection is next looked at, with what other streams have.
            Client::Http2(_) => Ok(()),
        }
    }
}
