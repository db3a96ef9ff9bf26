//! gRPC over one HTTP/2 connection, on both sides.

use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::body::Body;
use tower_service::Service;

/// Interval of pings, which detect a dead peer.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Time for the reply to a ping.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Method of delta xDS.
pub const DELTA_PATH: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

/// Method for reports of proxies.
pub const REPORT_PATH: &str = "/pointsman.v1.ProxyReports/Report";

/// Method for reports between controllers.
pub const CONTROLLERS_PATH: &str = "/pointsman.v1.Controllers/Exchange";

/// Largest message that is received. Responses are far smaller unless a single resource is large.
pub const MAX_MESSAGE: usize = 64 * 1024 * 1024;

/// Time to wait for the error of a connection whose streams have failed.
const FAILURE_TIMEOUT: Duration = Duration::from_millis(100);

/// A connection to a server.
#[derive(Clone, Debug)]
pub struct Connection {
    requests: SendRequest<Body>,
    failure: watch::Receiver<Option<String>>,
}

impl Connection {
    /// Returns the error that ended the connection, such as a TLS alert, which its streams don't know. `None` if the connection is open or was closed without an error.
    pub async fn failure(mut self) -> Option<String> {
        let failed = timeout(FAILURE_TIMEOUT, self.failure.wait_for(Option::is_some)).await;
        failed.ok()?.ok()?.clone()
    }
}

/// Returns an error with all of its causes.
fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        // Some errors include their cause.
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

impl Service<Request<Body>> for Connection {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.requests.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.requests.send_request(request))
    }
}

/// Starts HTTP/2 on a socket. The connection ends when all its streams have ended and it is dropped.
pub async fn connect<I>(io: I) -> hyper::Result<Connection>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    connect_with_window(io, STREAM_WINDOW).await
}

/// Bytes of one stream that the client buffers until they are read.
const STREAM_WINDOW: u32 = 2 * 1024 * 1024;

/// The same with another window of streams.
pub async fn connect_with_window<I>(io: I, window: u32) -> hyper::Result<Connection>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(window)
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .handshake(TokioIo::new(io))
        .await?;
    let (failed, failure) = watch::channel(None);
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            failed.send_replace(Some(causes(&error)));
        }
    });
    Ok(Connection {
        requests: sender,
        failure,
    })
}

/// Bytes of one stream that the server buffers before the socket takes them. It holds them for each proxy.
const SEND_BUFFER: usize = 64 * 1024;

/// Serves HTTP/2 on a socket until the client closes it.
pub async fn serve<I, S, F>(io: I, service: S) -> hyper::Result<()>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let service = hyper::service::service_fn(|request| {
        let response = service(request);
        async move { Ok::<_, Infallible>(response.await) }
    });
    hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .max_concurrent_streams(16)
        .max_send_buf_size(SEND_BUFFER)
        .serve_connection(TokioIo::new(io), service)
        .await
}
