//! The cluster as a source: starts a watch for every served kind, and for other kinds as soon as they are served.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::core::ApiResource;
use pointsman_control::Inbox;
use pointsman_resources::Kind;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::collector::{Collector, WatchScope};
use crate::discovery::{self, ServedKinds};
use crate::events::Events;
use crate::watch::{Fallback, Watch};
use crate::{Metrics, Settings};

/// Interval between log lines about kinds that have not been listed yet.
const WAITING_INTERVAL: Duration = Duration::from_secs(10);

/// A running source. Dropping it ends all watches.
pub struct Source {
    api: watch::Receiver<ServedKinds>,
    collector: Arc<Collector>,
    _tasks: JoinSet<()>,
}

impl Source {
    /// Discovers the served kinds and starts to watch them. Must be called within a tokio runtime.
    pub async fn start(
        client: Client,
        settings: &Settings,
        inbox: Arc<Inbox>,
        events: Arc<Events>,
        metrics: Arc<Metrics>,
    ) -> kube::Result<Source> {
        let resources = discovery::discover(&client).await?;
        let api = ServedKinds {
            resources,
            bundle_version: None,
        };
        let missing: Vec<&str> = api.missing().map(Kind::name).collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            tracing::warn!(
                "the API server does not serve {missing}; watches start once it serves them"
            );
        }
        let scopes: Vec<WatchScope> = Kind::ALL
            .into_iter()
            .flat_map(|kind| scopes(kind, settings))
            .collect();
        let collector = Arc::new(Collector::new(inbox, events, scopes.iter().cloned()));
        collector.put_served_api(api.facts());
        let mut tasks = JoinSet::new();
        let mut served: BTreeMap<Kind, watch::Sender<Option<ApiResource>>> = BTreeMap::new();
        for scope in scopes {
            let resource = || watch::Sender::new(served_as(&api, scope.kind));
            let resource = served.entry(scope.kind).or_insert_with(resource);
            let fallback = fallback(scope.kind, settings);
            let watch = Watch::new(
                scope,
                client.clone(),
                resource.subscribe(),
                collector.clone(),
                fallback,
                metrics.clone(),
            );
            tasks.spawn(watch.run());
        }
        let (sender, api) = watch::channel(api);
        tasks.spawn(discovery::follow(client, sender));
        tasks.spawn(forward_served_kinds(api.clone(), served, collector.clone()));
        tasks.spawn(report_waiting(collector.clone()));
        Ok(Source {
            api,
            collector,
            _tasks: tasks,
        })
    }

    /// Returns a receiver of the served kinds.
    pub fn api(&self) -> watch::Receiver<ServedKinds> {
        self.api.clone()
    }

    /// Returns the watches that have not been listed yet; empty once the reconciler has everything.
    pub fn pending_watches(&self) -> Vec<String> {
        self.collector.pending_watches()
    }
}

/// Watches for a kind: one for each namespace, or one for all.
fn scopes(kind: Kind, settings: &Settings) -> Vec<WatchScope> {
    let namespaces = &settings.watch_namespaces;
    match kind.is_cluster_scoped() || namespaces.is_empty() {
        true => vec![WatchScope {
            kind,
            namespace: None,
        }],
        false => namespaces
            .iter()
            .map(|namespace| WatchScope {
                kind,
                namespace: Some(namespace.clone()),
            })
            .collect(),
    }
}

/// Returns the objects to assume for a kind without permission to list it. Permissions limited to namespaces exclude all cluster-scoped kinds.
///
/// GatewayClasses can be assumed only if the settings name one. Without any, all Gateways would lose their proxies.
fn fallback(kind: Kind, settings: &Settings) -> Option<Fallback> {
    if settings.watch_namespaces.is_empty() || !kind.is_cluster_scoped() {
        return None;
    }
    if kind != Kind::GatewayClass {
        return Some(Fallback::new());
    }
    let (name, controller) = (
        settings.controller.class.as_ref()?,
        &settings.controller.name,
    );
    let class = json!({"metadata": {"name": name}, "spec": {"controllerName": controller}});
    Some(vec![serde_json::from_value(class).ok()?])
}

fn served_as(api: &ServedKinds, kind: Kind) -> Option<ApiResource> {
    api.resources
        .get(&kind)
        .map(|resource| resource.api.clone())
}

/// Passes the served kinds to watches and to the reconciler.
async fn forward_served_kinds(
    mut api: watch::Receiver<ServedKinds>,
    served: BTreeMap<Kind, watch::Sender<Option<ApiResource>>>,
    collector: Arc<Collector>,
) {
    while api.changed().await.is_ok() {
        let api = api.borrow_and_update();
        collector.put_served_api(api.facts());
        for (kind, sender) in &served {
            let resource = served_as(&api, *kind);
            sender.send_if_modified(|known| {
                let is_new = *known != resource;
                *known = resource;
                is_new
            });
        }
    }
}

/// Logs the kinds that have not been listed yet, until all are.
async fn report_waiting(collector: Arc<Collector>) {
    loop {
        tokio::time::sleep(WAITING_INTERVAL).await;
        let pending_watches = collector.pending_watches();
        if pending_watches.is_empty() {
            return;
        }
        tracing::warn!("waiting for {}", pending_watches.join("; "));
    }
}
