//! Test support: the real binary on its own sockets, backends that record requests, clients that send arbitrary bytes.

pub mod backend;
pub mod certificates;
pub mod gateway;
pub mod generated;
pub mod http1;
pub mod http2;
pub mod manifests;
pub mod message;
pub mod namespace;
pub mod raw;

use std::future::Future;
use std::time::Duration;

/// Timeout of all waits. It is reached only in failing tests.
pub const LONG: Duration = Duration::from_secs(30);

/// Awaits a future with a timeout, and panics with `what` if it is exceeded.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LONG, future).await {
        Ok(value) => value,
        Err(_) => panic!("after {LONG:?}: {what} did not happen"),
    }
}

/// Repeats a check until it succeeds.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut ask: impl FnMut() -> F) {
    within(what, async {
        while !ask().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
