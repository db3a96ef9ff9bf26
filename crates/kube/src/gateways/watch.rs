//! Watches generated objects, by their labels. Only metadata is fetched of kinds whose status is not needed.

use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind, PartialObjectMeta};
use kube::runtime::watcher as watch_objects;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use pointsman_resources::Name;
use serde_json::Value;
use tokio::task::JoinSet;

use super::fingerprint::fingerprint;
use super::objects::{GATEWAY_NAME, MANAGED_BY, ObjectKind};
use super::observed::{ObjectFacts, PodFacts, ServiceFacts, WorkloadFacts};
use super::owner::{gateway_of, owners};
use super::registry::{Observed, Registry, Watched, WatchedScope};
use super::state::ObservedObject;
use crate::watch;

/// Running watches. They stop when this is dropped.
pub struct Watches {
    _tasks: JoinSet<()>,
}

/// Returns the watches for generated objects: one for each kind, and for each namespace if some are chosen.
pub fn scopes(namespaces: &[String]) -> Vec<WatchedScope> {
    let kinds = ObjectKind::ALL.into_iter().map(Watched::Object);
    let kinds = kinds.chain([Watched::Pod]);
    kinds
        .flat_map(|kind| match namespaces.is_empty() {
            true => vec![(kind, None)],
            false => {
                let each = namespaces.iter();
                each.map(|namespace| (kind, Some(namespace.clone())))
                    .collect()
            }
        })
        .collect()
}

impl Watches {
    /// Starts all watches. Must be called within a tokio runtime.
    pub fn start(
        client: &Client,
        registry: &Arc<Registry>,
        controller_name: &Arc<str>,
        scopes: Vec<WatchedScope>,
    ) -> Self {
        let mut tasks = JoinSet::new();
        for scope in scopes {
            let watch = Watch {
                client: client.clone(),
                registry: registry.clone(),
                controller_name: controller_name.clone(),
                scope,
            };
            tasks.spawn(watch.run());
        }
        Watches { _tasks: tasks }
    }
}

struct Watch {
    client: Client,
    registry: Arc<Registry>,
    controller_name: Arc<str>,
    scope: WatchedScope,
}

/// A complete object, or its metadata.
trait Delivered {
    fn metadata(&self) -> &ObjectMeta;
    fn json(&self) -> &Value;
}

impl Delivered for DynamicObject {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn json(&self) -> &Value {
        &self.data
    }
}

impl Delivered for PartialObjectMeta<DynamicObject> {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn json(&self) -> &Value {
        &Value::Null
    }
}

impl Watch {
    async fn run(self) {
        let resource = match self.scope.0 {
            Watched::Object(kind) => kind.resource(),
            Watched::Pod => ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod")),
        };
        let (label, value) = MANAGED_BY;
        let selector = format!("{GATEWAY_NAME},{label}={value}");
        let config = watcher::Config::default().labels(&selector);
        match self.scope.0 {
            Watched::Object(
                ObjectKind::Service | ObjectKind::Deployment | ObjectKind::DaemonSet,
            )
            | Watched::Pod => {
                let api: Api<DynamicObject> = self.api(&resource);
                let start = |config| watch_objects(api.clone(), config);
                self.follow(watch::follow(config, start)).await;
            }
            Watched::Object(_) => {
                let api: Api<PartialObjectMeta<DynamicObject>> = self.api(&resource);
                let start = |config| watch_objects(api.clone(), config);
                self.follow(watch::follow(config, start)).await;
            }
        }
    }

    fn api<K>(&self, resource: &ApiResource) -> Api<K>
    where
        K: kube::Resource<DynamicType = ApiResource, Scope = kube::core::DynamicResourceScope>,
    {
        match &self.scope.1 {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        }
    }

    async fn follow<K: Delivered + Send>(
        &self,
        events: impl futures::Stream<Item = watcher::Result<Event<K>>> + Send,
    ) {
        let mut events = std::pin::pin!(events);
        let mut last_error = String::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => self.registry.begin_list(&self.scope),
                Ok(Event::InitApply(object)) => self.record(&object, true),
                Ok(Event::InitDone) => {
                    last_error.clear();
                    self.registry.end_list(&self.scope);
                }
                Ok(Event::Apply(object)) => self.record(&object, false),
                Ok(Event::Delete(object)) => {
                    let name = name(object.metadata());
                    self.registry.record(&self.scope, name, None, false);
                }
                Err(error) => {
                    let error = error.to_string();
                    if error != last_error {
                        tracing::warn!("{:?}: {error}; retrying", self.scope.0);
                        last_error = error;
                    }
                }
            }
        }
    }

    fn record(&self, object: &impl Delivered, is_listed: bool) {
        let metadata = object.metadata();
        let name = name(metadata);
        let observed = gateway_of(metadata, &self.controller_name).map(|gateway| {
            let gateway = Name::new(name.namespace.clone(), gateway);
            (gateway, observe(self.scope.0, metadata, object.json()))
        });
        self.registry.record(&self.scope, name, observed, is_listed);
    }
}

fn observe(watched: Watched, metadata: &ObjectMeta, json: &Value) -> Observed {
    let facts = match watched {
        Watched::Pod => {
            let pod = PodFacts::read(json);
            return Observed::Pod(PodFacts {
                is_ending: pod.is_ending || metadata.deletion_timestamp.is_some(),
                ..pod
            });
        }
        Watched::Object(ObjectKind::Service) => ObjectFacts::Service(ServiceFacts::read(json)),
        Watched::Object(ObjectKind::Deployment | ObjectKind::DaemonSet) => {
            ObjectFacts::Workload(WorkloadFacts::read(json))
        }
        Watched::Object(_) => ObjectFacts::None,
    };
    Observed::Object(observed_object(metadata, facts))
}

/// Creates the record of an object.
pub fn observed_object(metadata: &ObjectMeta, facts: ObjectFacts) -> ObservedObject {
    ObservedObject {
        uid: metadata.uid.clone(),
        owners: owners(metadata),
        fingerprint: fingerprint(metadata),
        facts,
    }
}

fn name(metadata: &ObjectMeta) -> Name {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Name::new(text(&metadata.namespace), text(&metadata.name))
}
