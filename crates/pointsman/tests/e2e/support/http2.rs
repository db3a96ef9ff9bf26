//! An HTTP/2 client for complete exchanges or for single frames, and gRPC framing.

use std::future::poll_fn;
use std::net::SocketAddr;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{Request, Uri};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::http1::Stream;
use super::message::{TestRequest, Response, of_map, to_map};
use super::within;

/// A connection.
pub struct Http2 {
    requests: SendRequest<Bytes>,
    driver: JoinHandle<Result<(), h2::Error>>,
    scheme: &'static str,
}

impl Http2 {
    /// Connects with prior knowledge, without TLS.
    pub async fn connect(address: SocketAddr) -> Http2 {
        let stream = within("a connection", TcpStream::connect(address)).await;
        let stream = stream.unwrap_or_else(|error| panic!("{address}: {error}"));
        Http2::over(stream, "http").await
    }

    pub async fn over(stream: impl Stream + 'static, scheme: &'static str) -> Http2 {
        let handshake = h2::client::Builder::new().handshake(stream);
        let (requests, connection) = within("a handshake", handshake).await.expect("HTTP/2");
        Http2 {
            requests,
            driver: tokio::spawn(connection),
            scheme,
        }
    }

    fn request(&self, ask: &TestRequest) -> Request<()> {
        let uri = Uri::builder()
            .scheme(self.scheme)
            .authority(ask.host.as_str())
            .path_and_query(ask.target.as_str())
            .build()
            .expect("a URI");
        let mut request = Request::builder()
            .method(ask.method.as_str())
            .uri(uri)
            .version(http::Version::HTTP_2)
            .body(())
            .expect("a request");
        *request.headers_mut() = to_map(&ask.headers);
        request
    }

    /// Performs a complete exchange.
    pub async fn ask(&self, ask: &TestRequest) -> Response {
        self.try_ask(ask)
            .await
            .unwrap_or_else(|error| panic!("no response to {ask:?}: {error}"))
    }

    pub async fn try_ask(&self, ask: &TestRequest) -> Result<Response, h2::Error> {
        let mut requests = within("room for a stream", self.requests.clone().ready()).await?;
        let (response, mut body) = requests.send_request(self.request(ask), ask.body.is_none())?;
        if let Some(bytes) = &ask.body {
            body.send_data(bytes.clone(), true)?;
        }
        within("a response", finish(response)).await
    }

    /// Opens a stream whose body the test sends itself.
    pub async fn open(&self, ask: &TestRequest) -> (ResponseFuture, SendStream<Bytes>) {
        self.send(self.request(ask)).await
    }

    /// Like `open`; fails if the connection has ended.
    pub async fn try_open(
        &self,
        ask: &TestRequest,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        let mut requests = within("room for a stream", self.requests.clone().ready()).await?;
        requests.send_request(self.request(ask), false)
    }

    /// Like `open`, for a request created by the test.
    pub async fn send(&self, request: Request<()>) -> (ResponseFuture, SendStream<Bytes>) {
        let ready = within("room for a stream", self.requests.clone().ready()).await;
        let mut requests = ready.expect("a living connection");
        requests.send_request(request, false).expect("sent")
    }

    /// Returns whether the peer supports extended CONNECT.
    pub fn takes_extended_connect(&self) -> bool {
        self.requests.is_extended_connect_protocol_enabled()
    }

    /// Number of concurrent streams that the peer allows.
    pub fn streams(&self) -> usize {
        self.requests.current_max_send_streams()
    }

    /// Waits for the end of the connection.
    pub async fn ended(self) -> Result<(), h2::Error> {
        drop(self.requests);
        within("the end of a connection", self.driver)
            .await
            .expect("no panic")
    }
}

/// Reads a complete response.
pub async fn finish(response: ResponseFuture) -> Result<Response, h2::Error> {
    let (head, mut body) = response.await?.into_parts();
    let mut whole = Response {
        status: head.status.as_u16(),
        headers: of_map(&head.headers),
        ..Response::default()
    };
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        whole.body.extend(data);
    }
    if let Some(trailers) = body.trailers().await? {
        whole.trailers = of_map(&trailers);
    }
    Ok(whole)
}

/// Encodes a gRPC message.
pub fn message(text: &str) -> Bytes {
    frame(text.as_bytes())
}

/// The same for a message that is not text.
pub fn frame(bytes: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(bytes.len()).expect("short"));
    frame.put_slice(bytes);
    frame.freeze()
}

/// A call of a method: `pkg.Service/Method`.
pub fn call(method: &str) -> TestRequest {
    super::message::ask("POST", &format!("/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
}

/// Reads messages incrementally.
pub struct Messages {
    body: RecvStream,
    ahead: BytesMut,
}

impl Messages {
    pub fn of(body: RecvStream) -> Messages {
        Messages {
            body,
            ahead: BytesMut::new(),
        }
    }

    /// Returns the next message, or `None` at the end.
    pub async fn next(&mut self) -> Option<String> {
        let bytes = self.next_bytes().await?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The same for messages that are not text.
    pub async fn next_bytes(&mut self) -> Option<Bytes> {
        loop {
            if self.ahead.len() >= 5 {
                let length = (&self.ahead[1..5]).get_u32() as usize;
                if self.ahead.len() >= 5 + length {
                    self.ahead.advance(5);
                    return Some(self.ahead.split_to(length).freeze());
                }
            }
            let data = within("data", self.body.data()).await?.expect("data");
            let _ = self.body.flow_control().release_capacity(data.len());
            self.ahead.extend_from_slice(&data);
        }
    }

    /// The trailers, after the last message.
    pub async fn trailers(&mut self) -> super::message::Fields {
        let trailers = within("trailers", poll_fn(|cx| self.body.poll_trailers(cx))).await;
        of_map(&trailers.expect("no reset").unwrap_or_default())
    }
}

/// Decodes all messages of a body.
pub fn messages(mut body: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    while body.len() >= 5 {
        let length = (&body[1..5]).get_u32() as usize;
        all.push(String::from_utf8_lossy(&body[5..5 + length]).into_owned());
        body = &body[5 + length..];
    }
    all
}
