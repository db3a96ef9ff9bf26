//! A watch of the objects of a kind, in one or all namespaces. It lists, follows, reconnects and lists again, as long as the process runs.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt, stream};
use kube::core::ApiResource;
use kube::runtime::watcher as watch_objects;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use pointsman_control::clock;
use pointsman_resources::Kind;
use tokio::sync::watch::Receiver;

use crate::Metrics;
use crate::collector::{Collector, WatchScope};
use crate::object::RawObject;
use crate::requests::with_timeout_and_observer;
use crate::watched_objects::WatchedObjects;

/// Longest time for which the API server keeps a watch open, in seconds. It bounds the time to detect a dead connection.
const WATCH_TIMEOUT: u32 = 120;

/// Time for which a list must be forbidden before objects are assumed instead: a starting API server forbids everything for a moment.
const FORBIDDEN_GRACE: Duration = Duration::from_secs(3);

/// Excludes large objects that are not used, and completed Pods.
pub fn field_selector(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Secret => Some("type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token"),
        Kind::Pod => Some("status.phase!=Succeeded,status.phase!=Failed"),
        _ => None,
    }
}

/// Objects to assume where the API server has never permitted a list.
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
    /// Objects to deliver without permission to read the actual ones; `None` once these have been listed.
    fallback: Option<Fallback>,
    /// Time of the first of successive errors that report a missing permission.
    forbidden_since: Option<Instant>,
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
            forbidden_since: None,
            error: String::new(),
        }
    }

    /// Delivers objects until the sender of served kinds is dropped.
    pub async fn run(mut self) {
        loop {
            let resource = self.resource.borrow_and_update().clone();
            let Some(resource) = resource else {
                self.metrics.forget_watch(&self.scope);
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

    /// Follows a resource.
    async fn follow(&mut self, resource: &ApiResource) {
        let (metrics, scope) = (self.metrics.clone(), self.scope.clone());
        let on_success = move || metrics.record_watch_contact(&scope);
        let client = with_timeout_and_observer(self.client.clone(), on_success);
        let api: Api<RawObject> = match &self.scope.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, resource),
            None => Api::all_with(client, resource),
        };
        let config = watcher::Config {
            field_selector: field_selector(self.scope.kind).map(str::to_owned),
            ..watcher::Config::default()
        };
        let events = follow(config, |config| watch_objects(api.clone(), config));
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.deliver(&resource.version, event),
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
                    tracing::info!("{}: the watch has recovered", self.scope);
                }
                // From now on, a missing permission is an error: the listed objects stay in effect.
                self.fallback = None;
                self.forbidden_since = None;
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
                self.collector
                    .forward_changes(self.objects.apply(version, &object));
            }
            Event::Delete(object) => self.collector.forward_changes(self.objects.delete(&object)),
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
        if !is_forbidden(error) {
            self.forbidden_since = None;
            return;
        }
        let since = *self.forbidden_since.get_or_insert_with(clock::instant);
        let is_lasting = clock::instant() >= since + FORBIDDEN_GRACE;
        if let Some(fallback) = self.fallback.take_if(|_| is_lasting) {
            tracing::info!(
                "{}: no permission to list these objects; continuing without them",
                self.scope
            );
            self.metrics.forget_watch(&self.scope);
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

/// Returns whether a permission is missing.
fn is_forbidden(error: &watcher::Error) -> bool {
    status(error).is_some_and(|status| status.code == 403)
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

/// Follows a watch. Lists are streamed unless the API server rejects that, and a delay follows each error. `start` starts a watch with a configuration.
pub fn follow<K, S>(
    config: watcher::Config,
    start: impl Fn(watcher::Config) -> S + Send,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send
where
    K: Send,
    S: Stream<Item = watcher::Result<Event<K>>> + Send,
{
    let config = config.timeout(WATCH_TIMEOUT);
    let following = Following {
        events: Box::pin(start(config.clone().streaming_lists())),
        unstreamed: Some(config),
        backoff: Backoff::default(),
        delay: None,
        start,
    };
    stream::unfold(following, |mut following| async move {
        let event = following.next().await?;
        Some((event, following))
    })
}

/// A watch and its state between events.
struct Following<F, S> {
    events: Pin<Box<S>>,
    start: F,
    /// Configuration without streamed lists; `None` once they have been rejected.
    unstreamed: Option<watcher::Config>,
    backoff: Backoff,
    /// Time to wait before the next attempt.
    delay: Option<Duration>,
}

impl<K, F, S> Following<F, S>
where
    F: Fn(watcher::Config) -> S,
    S: Stream<Item = watcher::Result<Event<K>>>,
{
    async fn next(&mut self) -> Option<watcher::Result<Event<K>>> {
        loop {
            if let Some(delay) = self.delay.take() {
                tokio::time::sleep(delay).await;
            }
            let event = self.events.next().await?;
            match &event {
                Err(error) => {
                    if refuses_streaming(error)
                        && let Some(config) = self.unstreamed.take()
                    {
                        tracing::debug!("lists are not streamed: {error}");
                        self.events = Box::pin((self.start)(config));
                        continue;
                    }
                    self.delay = Some(self.backoff.delay(is_forbidden(error)));
                }
                // They precede a list that may fail.
                Ok(Event::Init | Event::InitApply(_)) => {}
                Ok(_) => self.backoff = Backoff::default(),
            }
            return Some(event);
        }
    }
}

/// Delays between attempts, so that an API server that comes back is used within seconds.
#[derive(Debug, Default)]
struct Backoff {
    attempts: u32,
}

impl Backoff {
    /// Returns the delay before the next attempt. A missing permission is retried less often if it stays missing.
    fn delay(&mut self, is_forbidden: bool) -> Duration {
        const SHORTEST: Duration = Duration::from_millis(200);
        const LONGEST: Duration = Duration::from_secs(5);
        const LONGEST_FORBIDDEN: Duration = Duration::from_secs(60);
        let delay = SHORTEST.saturating_mul(2_u32.saturating_pow(self.attempts));
        self.attempts = self.attempts.saturating_add(1);
        delay.min(match is_forbidden {
            true => LONGEST_FORBIDDEN,
            false => LONGEST,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_api_server_is_tried_again_within_seconds() {
        let mut backoff = Backoff::default();
        let delays = [(); 7].map(|()| backoff.delay(false).as_millis());
        assert_eq!(delays, [200, 400, 800, 1600, 3200, 5000, 5000]);
        let mut backoff = Backoff::default();
        let delays = [(); 10].map(|()| backoff.delay(true).as_secs());
        assert_eq!(delays, [0, 0, 0, 1, 3, 6, 12, 25, 51, 60]);
    }

    fn error(code: u16) -> kube::Error {
        let status = kube::core::Status {
            code,
            ..kube::core::Status::default()
        };
        kube::Error::Api(Box::new(status))
    }

    // kube reports the start of a list before it requests the list.
    #[tokio::test]
    async fn a_list_that_fails_is_retried_with_growing_delays_until_one_succeeds() {
        let failing = || {
            [
                Ok(Event::Init),
                Err(watcher::Error::InitialListFailed(error(403))),
            ]
        };
        let done = || [Ok(Event::Init), Ok(Event::InitDone)];
        let events = || {
            stream::iter(
                failing()
                    .into_iter()
                    .chain(failing())
                    .chain(failing())
                    .chain(done()),
            )
        };
        let start = move |_| {
            events()
                .chain(stream::iter(failing()))
                .chain(stream::iter([Ok(Event::Init)]))
        };
        let mut events = std::pin::pin!(follow::<(), _>(watcher::Config::default(), start));
        let started = clock::instant();
        while !matches!(events.next().await, Some(Ok(Event::InitDone))) {}
        let first = started.elapsed();
        assert!(first >= Duration::from_millis(1400), "{first:?}");
        while events.next().await.is_some() {}
        let second = started.elapsed() - first;
        assert!(second < Duration::from_millis(700), "{second:?}");
    }

    #[tokio::test]
    async fn lists_are_not_streamed_after_the_api_server_has_rejected_it() {
        let start = |config: watcher::Config| {
            let rejected = Err(watcher::Error::WatchStartFailed(error(422)));
            stream::iter([match config.initial_list_strategy {
                watcher::InitialListStrategy::StreamingList => rejected,
                watcher::InitialListStrategy::ListWatch => Ok(Event::InitDone),
            }])
        };
        let mut events = std::pin::pin!(follow::<(), _>(watcher::Config::default(), start));
        assert!(matches!(events.next().await, Some(Ok(Event::InitDone))));
    }

    #[test]
    fn only_a_refused_request_ends_streaming() {
        let start = |code| refuses_streaming(&watcher::Error::WatchStartFailed(error(code)));
        assert!(start(400) && start(422));
        assert!(!start(403) && !start(429) && !start(500));
        assert!(!refuses_streaming(&watcher::Error::WatchFailed(error(422))));
    }
}
