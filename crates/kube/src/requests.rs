//! Limits the time that requests may take. Watches and lists that the API server starts to answer are not limited here: a watch ends by itself when nothing
//! arrives for longer than it was requested for.

use std::time::Duration;

use kube::Client;
use kube::client::Body;

/// Time within which the API server has to begin its response.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The API server has not responded.
#[derive(Debug, thiserror::Error)]
#[error("no response within {} s", TIMEOUT.as_secs())]
struct Timeout;

/// Returns a client whose requests fail if there is no response.
pub fn with_timeout(client: Client) -> Client {
    with_timeout_and_observer(client, || {})
}

/// Returns a client whose requests fail if there is no response, and that calls `on_success` for successful responses.
///
/// Must be called within a tokio runtime.
pub fn with_timeout_and_observer(
    client: Client,
    on_success: impl Fn() + Clone + Send + 'static,
) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (client, on_success) = (client.clone(), on_success.clone());
        async move {
            let response = tokio::time::timeout(TIMEOUT, client.send(request)).await;
            let response = response.map_err(|_| kube::Error::Service(Box::new(Timeout)))??;
            if response.status().is_success() {
                on_success();
            }
            Ok::<_, kube::Error>(response)
        }
    });
    Client::new(service, namespace)
}
