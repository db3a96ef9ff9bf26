//! A watch of the objects of a kind, in one or all namespaces. It lists, follows, reconnects and lists again, as long as the process runs.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::core::ApiResource;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, utils, watcher as watch_objects};
use kube::{Api, Client};
use pointsman_control::clock;
use pointsman_resources::Kind;
use tokio::sync::watch::Receiver;

use crate::Metrics;
use crate::collector::{Collector, WatchScope};
use crate::object::RawObject;
use crate::watched_objects::WatchedObjects;

/// Longest time for which the API server keeps a watch open, in seconds. It bounds the time to detect a dead connection.
const WATCH_TIMEOUT: u32 = 120;

/// Excludes large objects that are not used, and completed Pods.
pub fn field_selector(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Secret => Some("type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token"),
        Kind::Pod => Some("status.phase!=Succeeded,status.phase!=Failed"),
        _ => None,
    }
}

/// Objects to assume where the API server permits no list.
pub type Fallback = Vec<RawObject>;

/// A watch and the objects that it has delivered.
pub struct Watch {
    scope: WatchScope,
    client: Client,
    /// The resource in the version to watch; `None` while the kind is not served.
    resource: Receiver<Option<ApiResource>>,
    collector: Arc<Collector>,
    metrics: Arc<Metrics>,
    objects: WatchedObjects,
    /// Objects to deliver without permission to read the actual ones.
    fallback: Option<Fallback>,
    /// Lists are streamed, which older API servers reject.
    streams: bool,
    /// Error that was logged last.
    error: String,
}

impl Watch {
    /// Creates a watch that has delivered nothing.
    pub fn new(
        scope: WatchScope,
        client: Client,
        resource: Receiver<Option<ApiResource>>,
        collector: Arc<Collector>,
        fallback: Option<Fallback>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Watch {
            objects: WatchedObjects::new(scope.kind),
            scope,
            client,
            resource,
            collector,
            metrics,
            fallback,
            streams: true,
            error: String::new(),
        }
    }

    /// Delivers objects until the sender of served kinds is dropped.
    pub async fn run(mut self) {
        loop {
            let resource = self.resource.borrow_and_update().clone();
            let Some(resource) = resource else {
                let batch = self.objects.clear();
                self.collector.complete(&self.scope, batch);
                match self.resource.changed().await {
                    Ok(()) => continue,
                    Err(_) => return,
                }
            };
            let mut changes = self.resource.clone();
            tokio::select! {
                () = self.follow(&resource) => {}
                changed = changes.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Follows a resource until it has to be requested differently.
    async fn follow(&mut self, resource: &ApiResource) {
        let client = self.client.clone();
        let api: Api<RawObject> = match &self.scope.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, resource),
            None => Api::all_with(client, resource),
        };
        let config = watcher::Config {
            field_selector: field_selector(self.scope.kind).map(str::to_owned),
            initial_list_strategy: match self.streams {
                true => watcher::InitialListStrategy::StreamingList,
                false => watcher::InitialListStrategy::ListWatch,
            },
            ..watcher::Config::default().timeout(WATCH_TIMEOUT)
        };
        let events = watch_objects(api, config).backoff(Backoff::default());
        let mut events = std::pin::pin!(events.into_stream());
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.deliver(&resource.version, event),
                Err(error) if self.streams && refuses_streaming(&error) => {
                    tracing::debug!("{}: lists are not streamed: {error}", self.scope);
                    self.streams = false;
                    return;
                }
                Err(error) => self.handle_error(&resource.version, &error),
            }
        }
    }

    fn deliver(&mut self, version: &str, event: Event<RawObject>) {
        self.metrics.record_watch_event(&self.scope);
        match event {
            Event::Init => self.objects.begin_list(),
            Event::InitApply(object) => self.objects.list(version, &object),
            Event::InitDone => {
                if !std::mem::take(&mut self.error).is_empty() {
                    tracing::info!("{}: the watch works again", self.scope);
                }
                let batch = self.objects.end_list();
                self.collector.complete(&self.scope, batch);
            }
            Event::Apply(object) => {
                if self.scope.kind == Kind::EndpointSlice
                    && let Some(changed) = object.endpoints_changed_at()
                {
                    let took = clock::unix_micros() - changed.as_microsecond();
                    self.metrics.record_endpoint_change(took.max(0));
                }
                self.collector.put(self.objects.apply(version, &object));
            }
            Event::Delete(object) => self.collector.put(self.objects.delete(&object)),
        }
    }

    /// Logs an error once until it changes. Delivered objects stay in effect.
    fn handle_error(&mut self, version: &str, error: &watcher::Error) {
        self.metrics.record_watch_error(&self.scope);
        let text = match status(error) {
            Some(status) => status.message.clone(),
            None => error.to_string(),
        };
        if text != self.error {
            tracing::warn!("{}: {text}; retrying", self.scope);
            self.error = text;
        }
        self.collector.record_error(&self.scope, &self.error);
        let is_forbidden = status(error).is_some_and(|status| status.code == 403);
        if let Some(fallback) = self.fallback.take_if(|_| is_forbidden) {
            tracing::info!(
                "{}: no permission to list these objects; continuing without them",
                self.scope
            );
            let batch = self.objects.assume(version, &fallback);
            self.collector.complete(&self.scope, batch);
        }
    }
}

/// Returns the API server's status response, if the error contains one.
fn status(error: &watcher::Error) -> Option<&kube::core::Status> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status),
        _ => None,
    }
}

/// Returns whether the API server rejected `sendInitialEvents` because it does not support it.
fn refuses_streaming(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchStartFailed(_) => {
            status(error).is_some_and(|status| matches!(status.code, 400 | 422))
        }
        _ => false,
    }
}

/// Delays between attempts, so that an API server that comes back is used within seconds.
#[derive(Debug, Default)]
pub struct Backoff {
    attempts: u32,
}

impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        const SHORTEST: Duration = Duration::from_millis(200);
        const LONGEST: Duration = Duration::from_secs(5);
        let delay = SHORTEST.saturating_mul(2_u32.saturating_pow(self.attempts));
        self.attempts = self.attempts.saturating_add(1);
        Some(delay.min(LONGEST))
    }
}

impl utils::Backoff for Backoff {
    fn reset(&mut self) {
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_api_server_is_tried_again_within_seconds() {
        let mut backoff = Backoff::default();
        let delays: Vec<u128> = backoff.by_ref().take(7).map(|d| d.as_millis()).collect();
        assert_eq!(delays, [200, 400, 800, 1600, 3200, 5000, 5000]);
        utils::Backoff::reset(&mut backoff);
        assert_eq!(backoff.next(), Some(Duration::from_millis(200)));
    }

    #[test]
    fn only_a_refused_request_ends_streaming() {
        let api = |code: u16| {
            let status = kube::core::Status {
                code,
                ..kube::core::Status::default()
            };
            kube::Error::Api(Box::new(status))
        };
        let start = |code| refuses_streaming(&watcher::Error::WatchStartFailed(api(code)));
        assert!(start(400) && start(422));
        assert!(!start(403) && !start(429) && !start(500));
        assert!(!refuses_streaming(&watcher::Error::WatchFailed(api(422))));
    }
}
