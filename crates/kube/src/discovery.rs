//! Discovery of the kinds and versions that the API server serves, which changes with CustomResourceDefinitions while the controller runs.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::Client;
use kube::api::DynamicObject;
use kube::core::discovery::v2::{APIGroupDiscovery, APIVersionDiscovery};
use kube::core::{ApiResource, GroupVersionKind, PartialObjectMeta};
use kube::runtime::{WatchStreamExt, watcher};
use pointsman_binding::ServedApi;
use pointsman_resources::Kind;
use tokio::sync::watch::Sender;
use tokio::time::Instant;

use crate::watch;

/// Annotation of the Gateway API's CustomResourceDefinitions with the release that they are from.
pub const BUNDLE_VERSION: &str = "gateway.networking.k8s.io/bundle-version";

/// Interval between discoveries right after a CustomResourceDefinition has changed. It doubles up to [`LONGEST_INTERVAL`]: an API server serves a kind
/// some time after its definition was stored.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(250);
/// Interval between discoveries when nothing changes, and where CustomResourceDefinitions may not be watched.
const LONGEST_INTERVAL: Duration = Duration::from_secs(60);
/// Time for which a kind must be missing before it is considered as not served: a starting API server serves some kinds later than others.
const REMOVAL_GRACE: Duration = Duration::from_secs(30);

/// The kinds used here that an API server serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedKinds {
    /// Each kind with its resource, in the newest version that both sides support.
    pub resources: BTreeMap<Kind, ServedResource>,
    /// Release of the Gateway API that the CustomResourceDefinitions are from, such as `v1.7.0`.
    pub bundle_version: Option<String>,
}

/// The API of a kind that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedResource {
    /// Group, version and plural.
    pub api: ApiResource,
    /// The status is a subresource.
    pub has_status: bool,
}

impl ServedKinds {
    /// Kinds that are not served.
    pub fn missing(&self) -> impl Iterator<Item = Kind> {
        let all = Kind::ALL.into_iter();
        all.filter(|kind| !self.resources.contains_key(kind))
    }

    /// Returns the facts that statuses depend on.
    pub fn facts(&self) -> ServedApi {
        ServedApi {
            missing: self.missing().collect(),
            bundle_version: self.bundle_version.as_deref().map(Into::into),
        }
    }
}

/// Discovers the served kinds once.
pub async fn discover(client: &Client) -> kube::Result<BTreeMap<Kind, ServedResource>> {
    let (core, groups) = futures::future::try_join(
        client.list_core_api_versions_aggregated(),
        client.list_api_groups_aggregated(),
    )
    .await?;
    let groups: Vec<APIGroupDiscovery> = core.items.into_iter().chain(groups.items).collect();
    let all = Kind::ALL.into_iter();
    Ok(all
        .filter_map(|kind| Some((kind, find(kind, &groups)?)))
        .collect())
}

/// Finds the newest version of a kind that both sides support.
fn find(kind: Kind, groups: &[APIGroupDiscovery]) -> Option<ServedResource> {
    let name = |group: &APIGroupDiscovery| group.metadata.clone()?.name;
    let group = groups
        .iter()
        .find(|group| name(group).unwrap_or_default() == kind.group())?;
    let mut versions = kind.versions().iter();
    versions.find_map(|&version| {
        let served = group.versions.iter();
        let served = served.filter(|served| served.version.as_deref() == Some(version));
        served
            .into_iter()
            .find_map(|served| resource(kind, version, served))
    })
}

fn resource(kind: Kind, version: &str, served: &APIVersionDiscovery) -> Option<ServedResource> {
    let mut resources = served.resources.iter();
    let resource = resources.find(|resource| {
        let served = resource.response_kind.as_ref();
        served.and_then(|served| served.kind.as_deref()) == Some(kind.name())
    })?;
    let gvk = GroupVersionKind::gvk(kind.group(), version, kind.name());
    let mut subresources = resource.subresources.iter();
    Some(ServedResource {
        api: ApiResource::from_gvk_with_plural(&gvk, resource.resource.as_deref()?),
        has_status: subresources.any(|one| one.subresource.as_deref() == Some("status")),
    })
}

/// Repeats discovery until all receivers are dropped. `api` has the result of the first discovery.
pub async fn follow(client: Client, api: Sender<ServedKinds>) {
    let mut definitions = Definitions::new(&client);
    let mut interval = SHORTEST_INTERVAL;
    let mut missing_since: BTreeMap<Kind, Instant> = BTreeMap::new();
    loop {
        tokio::select! {
            () = api.closed() => return,
            bundle_version = definitions.changed() => {
                interval = SHORTEST_INTERVAL;
                if let Some(version) = bundle_version {
                    api.send_if_modified(|api| api.bundle_version.replace(version.clone()) != Some(version));
                }
            }
            () = tokio::time::sleep(interval) => interval = (interval * 2).min(LONGEST_INTERVAL),
        }
        let found = match discover(&client).await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!("discovery failed: {error}");
                continue;
            }
        };
        let now = Instant::now();
        let served = |kind: &Kind| found.contains_key(kind);
        missing_since.retain(|kind, _| !served(kind));
        let before = api.borrow().resources.clone();
        for kind in before.keys().filter(|kind| !served(kind)) {
            missing_since.entry(*kind).or_insert(now);
        }
        let mut resources = found;
        for (kind, resource) in before {
            let since = missing_since.get(&kind);
            if since.is_some_and(|&since| now < since + REMOVAL_GRACE) {
                resources.insert(kind, resource);
            }
        }
        api.send_if_modified(|api| {
            let is_new = api.resources != resources;
            if is_new {
                log_difference(api, &resources);
                api.resources = resources;
            }
            is_new
        });
    }
}

fn log_difference(api: &ServedKinds, resources: &BTreeMap<Kind, ServedResource>) {
    for (kind, resource) in resources {
        if api.resources.get(kind) != Some(resource) {
            tracing::info!(
                "the API server serves {kind} in {}",
                resource.api.api_version
            );
        }
    }
    for kind in api.resources.keys() {
        if !resources.contains_key(kind) {
            tracing::warn!("the API server no longer serves {kind}");
        }
    }
}

/// Changes of CustomResourceDefinitions, of which only metadata is fetched.
struct Definitions<S>(S);

impl Definitions<()> {
    fn new(client: &Client) -> Definitions<impl futures::Stream<Item = Option<String>> + Unpin> {
        let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let resource = ApiResource::from_gvk(&gvk);
        type Metadata = PartialObjectMeta<DynamicObject>;
        let definitions = kube::Api::<Metadata>::all_with(client.clone(), &resource);
        let start = move |config| watcher(definitions.clone(), config);
        let events = watch::follow(watcher::Config::default(), start).touched_objects();
        let changes = events.try_filter_map(|definition| async move {
            let name = definition.metadata.name.unwrap_or_default();
            let group = name.split_once('.').map_or("", |(_, group)| group);
            let is_ours = Kind::ALL.iter().any(|kind| kind.group() == group);
            let annotations = definition.metadata.annotations.unwrap_or_default();
            let version = match &*name {
                "gateways.gateway.networking.k8s.io" => annotations.get(BUNDLE_VERSION).cloned(),
                _ => None,
            };
            Ok(is_ours.then_some(version))
        });
        // Without permission to watch them, changes are discovered at intervals.
        let changes = changes.filter_map(|change| async { change.ok() });
        Definitions(Box::pin(changes))
    }
}

impl<S: futures::Stream<Item = Option<String>> + Unpin> Definitions<S> {
    /// Waits for the next change. Returns the Gateway API's release if the changed definition states it.
    async fn changed(&mut self) -> Option<String> {
        match self.0.next().await {
            Some(version) => version,
            None => futures::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(json: serde_json::Value) -> Vec<APIGroupDiscovery> {
        serde_json::from_value(json).expect("it is a discovery document")
    }

    fn version(name: &str, kinds: &[(&str, &str)]) -> serde_json::Value {
        let resources = kinds.iter().map(|(plural, kind)| {
            serde_json::json!({"resource": plural, "responseKind": {"kind": kind}, "scope": "Namespaced",
                "subresources": [{"subresource": "status"}]})
        });
        serde_json::json!({"version": name, "resources": resources.collect::<Vec<_>>()})
    }

    #[test]
    fn the_newest_supported_version_is_used() {
        let gateway_api = groups(serde_json::json!([{
            "metadata": {"name": "gateway.networking.k8s.io"},
            "versions": [
                version("v2", &[("tcproutes", "TCPRoute")]),
                version("v1alpha2", &[("tcproutes", "TCPRoute"), ("udproutes", "UDPRoute")]),
                version("v1", &[("tcproutes", "TCPRoute")]),
            ],
        }]));
        let found = |kind| find(kind, &gateway_api).map(|found| found.api.version);
        assert_eq!(found(Kind::TCPRoute).as_deref(), Some("v1"));
        assert_eq!(found(Kind::UDPRoute).as_deref(), Some("v1alpha2"));
        assert_eq!(found(Kind::HTTPRoute), None);
        assert_eq!(found(Kind::Pod), None);
    }
}
