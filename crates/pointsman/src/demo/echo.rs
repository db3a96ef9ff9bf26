//! Echo backends, which respond with their name and the request. One serves HTTP/1; the other serves HTTP/2 with prior knowledge and gRPC, where every method
//! echoes its message.

use anyhow::Result;
use bytes::Bytes;
use pointsman_proxy::http1::{Encoder, Event, Framing, HeadWriter, Limits, RequestReader};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Application protocol of a backend.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum EchoProtocol {
    Http1,
    Http2,
}

/// Starts a backend on a free port. Returns the port.
pub async fn start(name: &'static str, protocol: EchoProtocol) -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                // Errors of a connection affect only its client.
                Ok((stream, _)) => match protocol {
                    EchoProtocol::Http1 => drop(tokio::spawn(http1(stream, name))),
                    EchoProtocol::Http2 => drop(tokio::spawn(http2(stream, name))),
                },
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
            }
        }
    });
    Ok(port)
}

/// Renders a request as the body of its response.
fn describe<'a>(
    name: &str,
    line: &str,
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> String {
    let mut text = format!("request to {name}\n{line}\n");
    for (field, value) in fields {
        let (field, value) = (
            String::from_utf8_lossy(field),
            String::from_utf8_lossy(value),
        );
        text.push_str(&format!("{}: {value}\n", field.to_ascii_lowercase()));
    }
    text
}

async fn http1(mut stream: TcpStream, name: &str) -> Result<()> {
    let mut reader = RequestReader::new(Limits::default());
    let (mut buffer, mut out, mut text) = (Vec::new(), Vec::new(), String::new());
    loop {
        let event = reader.next(&buffer)?;
        match &event {
            Event::Head(_) => {
                let request = reader.head().view(&buffer);
                let line = format!("{} {} HTTP/1.1", request.method(), request.target());
                text = describe(name, &line, request.fields().iter());
                if reader.head().expects_continue() {
                    stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
                }
            }
            Event::End { .. } => {
                out.clear();
                let mut body =
                    Encoder::response(Framing::Length(text.len() as u64), reader.head().version());
                let mut head = HeadWriter::response(&mut out, 200, None)?;
                head.field(b"x-backend", name.as_bytes())?;
                head.field(b"content-type", b"text/plain")?;
                body.announce(&mut head);
                head.finish();
                body.data(text.as_bytes(), &mut out)?;
                stream.write_all(&out).await?;
                if !reader.head().keep_alive() {
                    return Ok(());
                }
            }
            Event::More { consumed } => {
                buffer.drain(..*consumed);
                if stream.read_buf(&mut buffer).await? == 0 {
                    return Ok(());
                }
                continue;
            }
            _ => {}
        }
        buffer.drain(..event.consumed());
    }
}

async fn http2(stream: TcpStream, name: &'static str) -> Result<()> {
    let mut connection = h2::server::handshake(stream).await?;
    while let Some(request) = connection.accept().await {
        let (request, respond) = request?;
        tokio::spawn(respond_http2(request, respond, name));
    }
    Ok(())
}

async fn respond_http2(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    name: &str,
) -> Result<()> {
    let (head, mut body) = request.into_parts();
    let content_type = head.headers.get("content-type").cloned();
    let grpc = content_type
        .as_ref()
        .is_some_and(|content_type| content_type.as_bytes().starts_with(b"application/grpc"));
    let mut response = http::Response::builder().header("x-backend", name);
    if let Some(content_type) = content_type {
        response = response.header("content-type", content_type);
    }
    let mut response = respond.send_response(response.body(())?, false)?;
    if !grpc {
        let line = format!("{} {} HTTP/2", head.method, head.uri);
        let fields = head.headers.iter();
        let text = describe(
            name,
            &line,
            fields.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes())),
        );
        response.send_data(Bytes::from(text), true)?;
        return Ok(());
    }
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        response.send_data(data, false)?;
    }
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
    response.send_trailers(trailers)?;
    Ok(())
}
