//! What the tests stand on: the real binary on sockets of its own, backends that remember what they saw, clients that say exactly what they are told to.

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

/// How long anything may take before a test gives up. Nothing waits so long unless it is broken.
pub const LONG: Duration = Duration::from_secs(30);

/// What a future gives, or a failed test that says what did not happen.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LONG, future).await {
        Ok(value) => value,
        Err(_) => panic!("after {LONG:?}: {what} did not happen"),
    }
}

/// Asks again and again until the answer is yes.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut ask: impl FnMut() -> F) {
    within(what, async {
        while !ask().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
