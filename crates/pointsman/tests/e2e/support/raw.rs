//! Backends below HTTP: scripted bytes, TCP, UDP, WebSocket.

use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};

use super::backend::{Backend, Record, RecordedRequest};
use super::message::of_map;

/// Behaviour of a scripted backend after its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterBytes {
    Close,
    Keep,
}

impl Backend {
    /// Responds to each request with these bytes. Request bodies are read if they have a Content-Length.
    pub async fn bytes(name: &str, answer: impl Into<Vec<u8>>, then: AfterBytes) -> Backend {
        let answer: Arc<[u8]> = answer.into().into();
        Backend::listening(name, move |stream, record| {
            say(stream, record, answer.clone(), then)
        })
        .await
    }

    /// TCP: sends its name, then echoes until the peer closes.
    pub async fn tcp(name: &str) -> Backend {
        let greeting = format!("{name}\n");
        Backend::listening(name, move |mut stream, record| {
            let greeting = greeting.clone();
            async move {
                let (connection, _open) = record.connected();
                record.note(RecordedRequest {
                    connection,
                    ..RecordedRequest::default()
                });
                if stream.write_all(greeting.as_bytes()).await.is_err() {
                    return;
                }
                let (mut reader, mut writer) = stream.split();
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
                let _ = writer.shutdown().await;
            }
        })
        .await
    }

    /// UDP: echoes each datagram prefixed with its name. Records the sender's port as the connection.
    pub async fn udp(name: &str) -> Backend {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let address = socket.local_addr().expect("an address");
        let record = Record::new();
        let seen = record.clone();
        let own = name.to_owned();
        let server = tokio::spawn(async move {
            let mut buffer = vec![0; 65536];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                let body = buffer[..length].to_vec();
                let text = [own.as_bytes(), b": ", &body].concat();
                seen.note(RecordedRequest {
                    body,
                    connection: from.port().into(),
                    ..RecordedRequest::default()
                });
                let _ = socket.send_to(&text, from).await;
            }
        });
        Backend::of(name, address, record, server)
    }

    /// WebSocket: echoes each message.
    pub async fn websocket(name: &str) -> Backend {
        Backend::listening(name, |stream, record| async move {
            let (connection, _open) = record.connected();
            let noted = record.clone();
            #[allow(clippy::result_large_err)] // the callback's type is the library's
            let note = move |request: &Request, mut response: Response| {
                noted.note(RecordedRequest {
                    method: request.method().to_string(),
                    target: request.uri().to_string(),
                    headers: of_map(request.headers()),
                    connection,
                    ..RecordedRequest::default()
                });
                let protocol = request.headers().get("sec-websocket-protocol");
                if let Some(protocol) = protocol {
                    response
                        .headers_mut()
                        .insert("sec-websocket-protocol", protocol.clone());
                }
                Ok(response)
            };
            let Ok(mut socket) = tokio_tungstenite::accept_hdr_async(stream, note).await else {
                return;
            };
            while let Some(Ok(message)) = socket.next().await {
                if (message.is_text() || message.is_binary()) && socket.send(message).await.is_err()
                {
                    return;
                }
            }
        })
        .await
    }
}

async fn say(mut stream: TcpStream, record: Arc<Record>, answer: Arc<[u8]>, then: AfterBytes) {
    let (connection, _open) = record.connected();
    let mut ahead = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = ahead.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if !matches!(stream.read_buf(&mut ahead).await, Ok(1..)) {
                return;
            }
        };
        let head = String::from_utf8_lossy(&ahead[..end]).into_owned();
        ahead.drain(..end);
        let mut saw = read(&head);
        saw.connection = connection;
        let length = saw
            .header("content-length")
            .and_then(|text| text.parse().ok());
        let length: usize = length.unwrap_or(0);
        while ahead.len() < length {
            if !matches!(stream.read_buf(&mut ahead).await, Ok(1..)) {
                return;
            }
        }
        saw.body = ahead.drain(..length).collect();
        record.note(saw);
        if stream.write_all(&answer).await.is_err() {
            return;
        }
        if then == AfterBytes::Close {
            let _ = stream.shutdown().await;
            // Reads until the peer closes: unread bytes would turn this close into a reset.
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            return;
        }
    }
}

fn read(head: &str) -> RecordedRequest {
    let mut lines = head.trim_end().split("\r\n");
    let mut start = lines
        .next()
        .unwrap_or_default()
        .splitn(3, ' ')
        .map(str::to_owned);
    let mut next = || start.next().unwrap_or_default();
    let mut saw = RecordedRequest {
        method: next(),
        target: next(),
        version: next(),
        ..RecordedRequest::default()
    };
    saw.headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    saw.host = saw.header("host").unwrap_or_default().to_owned();
    saw
}
