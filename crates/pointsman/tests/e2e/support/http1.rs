//! An HTTP/1 client that sends arbitrary bytes and parses responses strictly.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::message::{TestRequest, Fields, Response, field};
use super::within;

/// A bidirectional byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A connection and the bytes read ahead.
pub struct Http1 {
    stream: Box<dyn Stream>,
    ahead: Vec<u8>,
}

impl Http1 {
    pub async fn connect(address: SocketAddr) -> Http1 {
        let client = within("a connection", Http1::try_connect(address)).await;
        client.unwrap_or_else(|error| panic!("{address}: {error}"))
    }

    pub async fn try_connect(address: SocketAddr) -> io::Result<Http1> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Http1::over(stream))
    }

    pub fn over(stream: impl Stream + 'static) -> Http1 {
        Http1 {
            stream: Box::new(stream),
            ahead: Vec::new(),
        }
    }

    /// Sends bytes. Ignores a closed connection, whose response may still be read.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let sent = within("bytes are sent", self.stream.write_all(bytes.as_ref())).await;
        if sent.is_ok() {
            let _ = self.stream.flush().await;
        }
    }

    /// Sends a request and reads the response.
    pub async fn ask(&mut self, ask: &TestRequest) -> Response {
        let response = self.try_ask(ask).await;
        response.unwrap_or_else(|error| panic!("no response to {ask:?}: {error}"))
    }

    pub async fn try_ask(&mut self, ask: &TestRequest) -> io::Result<Response> {
        self.stream.write_all(&ask.bytes()).await?;
        self.stream.flush().await?;
        self.read(ask.method == "HEAD").await
    }

    /// Reads a response (not one to HEAD).
    pub async fn response(&mut self) -> Response {
        let response = within("a response", self.try_response()).await;
        response.unwrap_or_else(|error| panic!("no response: {error}"))
    }

    pub async fn try_response(&mut self) -> io::Result<Response> {
        self.read(false).await
    }

    /// Reads a response's head, or an informational response.
    pub async fn head(&mut self) -> Response {
        let head = within("a head", self.read_head()).await;
        head.unwrap_or_else(|error| panic!("no head: {error}"))
    }

    async fn read(&mut self, to_head: bool) -> io::Result<Response> {
        let mut interim = Vec::new();
        let mut response = loop {
            let head = self.read_head().await?;
            if head.status >= 200 || head.status == 101 {
                break head;
            }
            interim.push(head.status);
        };
        response.interim = interim;
        if !to_head && response.status >= 200 && !matches!(response.status, 204 | 304) {
            self.read_body(&mut response).await?;
        }
        Ok(response)
    }

    async fn read_body(&mut self, response: &mut Response) -> io::Result<()> {
        let chunked = response
            .header("transfer-encoding")
            .is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
        let lengths = response.all("content-length");
        assert!(
            !chunked || lengths.is_empty(),
            "both framings: {response:?}"
        );
        assert!(lengths.len() < 2, "two lengths: {response:?}");
        if chunked {
            loop {
                let size = self.line().await?;
                let size = usize::from_str_radix(size.split(';').next().unwrap_or_default(), 16)
                    .map_err(|_| broken(&format!("chunk size {size:?}")))?;
                if size == 0 {
                    break;
                }
                let data = self.exactly(size).await?;
                response.body.extend(data);
                let end = self.exactly(2).await?;
                assert_eq!(end, b"\r\n", "after a chunk");
            }
            loop {
                let line = self.line().await?;
                if line.is_empty() {
                    return Ok(());
                }
                let (name, value) = line.split_once(':').ok_or_else(|| broken("a trailer"))?;
                response
                    .trailers
                    .push((name.to_owned(), value.trim().to_owned()));
            }
        }
        if let Some(length) = lengths.first() {
            let length = length.parse().map_err(|_| broken("a length"))?;
            response.body = self.exactly(length).await?;
            return Ok(());
        }
        self.stream.read_to_end(&mut self.ahead).await?;
        response.body = std::mem::take(&mut self.ahead);
        Ok(())
    }

    async fn read_head(&mut self) -> io::Result<Response> {
        let end = loop {
            if let Some(at) = find(&self.ahead, b"\r\n\r\n") {
                break at + 4;
            }
            self.more().await?;
        };
        let head: Vec<u8> = self.ahead.drain(..end).collect();
        let mut fields = [httparse::EMPTY_HEADER; 128];
        let mut parsed = httparse::Response::new(&mut fields);
        parsed
            .parse(&head)
            .map_err(|error| broken(&format!("{error}: {:?}", String::from_utf8_lossy(&head))))?;
        let headers: Fields = parsed
            .headers
            .iter()
            .map(|field| {
                (
                    field.name.to_owned(),
                    String::from_utf8_lossy(field.value).into_owned(),
                )
            })
            .collect();
        Ok(Response {
            status: parsed.code.unwrap_or_default(),
            headers,
            ..Response::default()
        })
    }

    async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(at) = find(&self.ahead, b"\r\n") {
                let line: Vec<u8> = self.ahead.drain(..at + 2).collect();
                return Ok(String::from_utf8_lossy(&line[..at]).into_owned());
            }
            self.more().await?;
        }
    }

    /// Reads a number of bytes.
    pub async fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.ahead.len() < length {
            self.more().await?;
        }
        Ok(self.ahead.drain(..length).collect())
    }

    async fn more(&mut self) -> io::Result<()> {
        if self.stream.read_buf(&mut self.ahead).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Reads until the peer closes or resets the connection.
    pub async fn rest(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.ahead);
        let _ = within(
            "the end of a connection",
            self.stream.read_to_end(&mut rest),
        )
        .await;
        rest
    }

    /// Expects the end of the connection without further bytes.
    pub async fn ended(&mut self) {
        let rest = self.rest().await;
        assert_eq!(
            String::from_utf8_lossy(&rest),
            "",
            "something after the last response"
        );
    }

    /// Closes the sending direction.
    pub async fn finish(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// Returns the stream, for use after a 101.
    pub fn into_stream(self) -> Box<dyn Stream> {
        assert!(
            self.ahead.is_empty(),
            "bytes after a head: {:?}",
            self.ahead
        );
        self.stream
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// Returns whether a response announces that the connection closes.
pub fn closes(response: &Response) -> bool {
    field(&response.headers, "connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
}
