//! The client of `demo --once`: sends one HTTP/1 or gRPC request per connection.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use pointsman_proxy::http1::{
    Encoder, Event, Framing, HeadWriter, Limits, ResponseContext, ResponseReader, Version,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// A GET request.
pub struct Get {
    to: SocketAddr,
    from: Option<Ipv4Addr>,
    host: String,
    target: String,
    headers: Vec<(&'static str, &'static str)>,
}

/// A response to the client.
#[derive(Debug, Default)]
pub struct DemoResponse {
    pub status: u16,
    pub reason: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl DemoResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        let named = |(field, _): &&(String, String)| field.eq_ignore_ascii_case(name);
        self.headers
            .iter()
            .find(named)
            .map(|(_, value)| value.as_str())
    }
}

pub fn get(to: SocketAddr, host: &str, target: &str) -> Get {
    Get {
        to,
        from: None,
        host: host.to_owned(),
        target: target.to_owned(),
        headers: Vec::new(),
    }
}

impl Get {
    /// Adds a header.
    pub fn header(mut self, name: &'static str, value: &'static str) -> Get {
        self.headers.push((name, value));
        self
    }

    /// Sets the source address.
    pub fn from(self, address: Ipv4Addr) -> Get {
        Get {
            from: Some(address),
            ..self
        }
    }

    async fn connect(&self) -> Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        if let Some(from) = self.from {
            socket.bind((from, 0).into())?;
        }
        socket
            .connect(self.to)
            .await
            .with_context(|| self.to.to_string())
    }

    /// Sends the request and reads the response.
    pub async fn send(&self) -> Result<DemoResponse> {
        let mut stream = self.connect().await?;
        let mut out = Vec::new();
        let target = self.target.as_bytes();
        let mut head = HeadWriter::request(&mut out, b"GET", target, Version::Http11)?;
        head.field(b"host", self.host.as_bytes())?;
        for (name, value) in &self.headers {
            head.field(name.as_bytes(), value.as_bytes())?;
        }
        Encoder::request(Framing::None).announce(&mut head);
        head.finish();
        stream.write_all(&out).await?;
        read(stream).await
    }
}

async fn read(mut stream: TcpStream) -> Result<DemoResponse> {
    let mut reader = ResponseReader::new(Limits::default());
    reader.expect(ResponseContext::default());
    let (mut buffer, mut body, mut response) = (Vec::new(), Vec::new(), DemoResponse::default());
    loop {
        let event = reader.next(&buffer)?;
        match &event {
            Event::Head(_) => {
                let head = reader.head().view(&buffer);
                response.status = head.status();
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                response.reason = text(head.reason());
                let fields = head.fields();
                response.headers = fields
                    .iter()
                    .map(|(name, value)| (text(name), text(value)))
                    .collect();
            }
            Event::Data(range) => body.extend_from_slice(&buffer[range.clone()]),
            Event::End { .. } => {
                response.body = String::from_utf8_lossy(&body).into_owned();
                return Ok(response);
            }
            Event::More { consumed } => {
                buffer.drain(..*consumed);
                if stream.read_buf(&mut buffer).await? == 0 {
                    bail!("the connection was closed before the end of the response");
                }
                continue;
            }
            Event::Interim(_) | Event::Switched => {}
        }
        buffer.drain(..event.consumed());
    }
}

/// Calls a gRPC method with one message. The body of the result is the response message; trailers are among the headers.
pub async fn call(to: SocketAddr, host: &str, method: &str, message: &str) -> Result<DemoResponse> {
    let stream = TcpStream::connect(to).await?;
    let (requests, connection) = h2::client::handshake(stream).await?;
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://{host}/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())?;
    let (response, mut body) = requests.ready().await?.send_request(request, false)?;
    let length = u32::try_from(message.len())?.to_be_bytes();
    body.send_data(
        Bytes::from([&[0], &length[..], message.as_bytes()].concat()),
        true,
    )?;
    let (head, mut body) = response.await?.into_parts();
    let mut bytes = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        bytes.extend_from_slice(&data);
    }
    let trailers = body.trailers().await?.unwrap_or_default();
    let fields = head.headers.iter().chain(&trailers);
    Ok(DemoResponse {
        status: head.status.as_u16(),
        reason: String::new(),
        headers: fields
            .map(|(name, value)| {
                (
                    name.to_string(),
                    String::from_utf8_lossy(value.as_bytes()).into_owned(),
                )
            })
            .collect(),
        body: String::from_utf8_lossy(bytes.get(5..).unwrap_or_default()).into_owned(),
    })
}
