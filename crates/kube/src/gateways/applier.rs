//! Reconciles the objects of Gateways with the API server: applies the desired objects by server-side apply and deletes obsolete ones. Runs on the leader only.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use pointsman_binding::bound::Infrastructure;
use pointsman_control::clock;
use pointsman_resources::Name;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::InfrastructureSettings;
use super::fingerprint::fingerprint;
use super::objects::{Object, ObjectKind, generate};
use super::observed::ObjectFacts;
use super::owner::{Ownership, ownership};
use super::registry::Registry;
use super::state::{ObservedObject, ObservedObjects};
use crate::rate_limit::TokenBucket;
use crate::status::WriteOutcome;

/// Sustained rate in requests per second, and burst.
const RATE: (u32, u32) = (50, 100);
/// Number of Gateways that are reconciled concurrently.
const CONCURRENCY: usize = 8;
/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of the name of a field manager.
const MAX_MANAGER: usize = 128;

/// Applies generated objects.
pub struct Applier {
    requests: Requests,
    registry: Arc<Registry>,
    authority: watch::Receiver<Arc<str>>,
}

/// Digest of a sent object, and fingerprint of the object that the API server returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Applied {
    digest: u64,
    fingerprint: u64,
}

#[derive(Debug, thiserror::Error)]
enum ApplyError {
    #[error("{kind:?} {name} {why}; delete or rename it")]
    Foreign {
        kind: ObjectKind,
        name: String,
        why: String,
    },
    #[error("{kind:?} {name}: {source}")]
    Request {
        kind: ObjectKind,
        name: String,
        source: Box<kube::Error>,
    },
    #[error("{kind:?} {name}: timed out after {} s", TIMEOUT.as_secs())]
    Timeout { kind: ObjectKind, name: String },
    #[error("{kind:?} {name} belongs to a deleted Gateway of the same name and is being removed")]
    Stale { kind: ObjectKind, name: String },
    #[error("{kind:?} {name} stays until its replacement is ready")]
    Replaced { kind: ObjectKind, name: String },
}

impl ApplyError {
    /// Returns the message for the status of the Gateway if the error requires action by a user.
    fn for_status(&self) -> Option<String> {
        match self {
            ApplyError::Foreign { .. } => Some(self.to_string()),
            ApplyError::Request { kind, name, source } => match &**source {
                kube::Error::Api(status) if is_permanent(status.code) => {
                    Some(format!("{kind:?} {name}: {}", status.message))
                }
                _ => None,
            },
            ApplyError::Timeout { .. } | ApplyError::Stale { .. } | ApplyError::Replaced { .. } => {
                None
            }
        }
    }
}

/// Returns whether a retry can't succeed before a user acts.
fn is_permanent(code: u16) -> bool {
    (400..500).contains(&code) && !matches!(code, 408 | 409 | 429)
}

impl Applier {
    /// Creates an applier. `authority` is the bundle of certificates that proxies trust; nothing is applied while it is empty.
    pub fn new(
        client: Client,
        settings: InfrastructureSettings,
        registry: Arc<Registry>,
        authority: watch::Receiver<Arc<str>>,
    ) -> Self {
        let requests = Requests(Arc::new(RequestState {
            client,
            settings,
            limit: Mutex::new(TokenBucket::new(RATE.0, RATE.1)),
            applied: Mutex::default(),
            replaced: Mutex::default(),
        }));
        Applier {
            requests,
            registry,
            authority,
        }
    }

    /// Reconciles Gateways while `is_leader` is true. Returns when its sender is dropped.
    pub async fn run(mut self, mut is_leader: watch::Receiver<bool>) {
        let mut tasks: JoinSet<(Name, Vec<ApplyError>)> = JoinSet::new();
        loop {
            let is_active = *is_leader.borrow() && !self.authority.borrow().is_empty();
            while is_active && tasks.len() < CONCURRENCY {
                let Some(gateway) = self.registry.take(clock::instant()) else {
                    break;
                };
                let requests = self.requests.clone();
                let (desired, observed) = self.registry.get(&gateway);
                let authority = self.authority.borrow().clone();
                tasks.spawn(async move {
                    let errors = requests
                        .reconcile(&gateway, desired.as_deref(), &observed, &authority)
                        .await;
                    (gateway, errors)
                });
            }
            let wait = match is_active && tasks.len() < CONCURRENCY {
                true => self.registry.next_wake(),
                false => None,
            };
            let wait = wait.map(|next| next.saturating_duration_since(clock::instant()));
            tokio::select! {
                Some(done) = tasks.join_next() => {
                    if let Ok((gateway, errors)) = done {
                        self.finish(&gateway, &errors);
                    }
                }
                () = self.registry.changed() => {}
                changed = is_leader.changed() => if changed.is_err() { return },
                changed = self.authority.changed() => match changed {
                    Ok(()) => self.registry.requeue_all(),
                    Err(_) => return,
                },
                () = sleep(wait) => {}
            }
        }
    }

    fn finish(&self, gateway: &Name, errors: &[ApplyError]) {
        for error in errors {
            match error.for_status() {
                // Also reported in the status of the Gateway and as an Event.
                Some(message) => tracing::warn!("Gateway {gateway}: {message}"),
                None => tracing::debug!("Gateway {gateway}: {error}; retrying"),
            }
        }
        let outcome = match errors.is_empty() {
            true => WriteOutcome::Done,
            false => WriteOutcome::Failed,
        };
        let failures: Vec<String> = errors.iter().filter_map(ApplyError::for_status).collect();
        let failure = (!failures.is_empty()).then(|| failures.join("; "));
        self.registry.finish(gateway, outcome, failure);
    }
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

/// Sends requests. Clones share its state.
#[derive(Clone)]
struct Requests(Arc<RequestState>);

struct RequestState {
    client: Client,
    settings: InfrastructureSettings,
    limit: Mutex<TokenBucket>,
    /// Objects that were applied and have not been deleted since.
    applied: Mutex<HashMap<(ObjectKind, Name), Applied>>,
    /// Gateways whose workload is being replaced, with the time at which that began.
    replaced: Mutex<HashMap<Name, Instant>>,
}

impl Requests {
    /// Applies the desired objects of a Gateway and deletes its others. Returns the errors.
    async fn reconcile(
        &self,
        gateway: &Name,
        desired: Option<&Infrastructure>,
        observed: &ObservedObjects,
        authority: &str,
    ) -> Vec<ApplyError> {
        let mut errors = Vec::new();
        let objects = match desired {
            // An invalid Gateway keeps its proxies, so that their traffic is not interrupted.
            Some(desired) if desired.ports.is_empty() || desired.uid.is_none() => return errors,
            Some(desired) => generate(desired, &self.0.settings, authority),
            None => Vec::new(),
        };
        for object in &objects {
            let Some(desired) = desired else { break };
            if let Err(error) = self.ensure(desired, object, observed).await {
                errors.push(error);
            }
        }
        let is_desired = |kind: ObjectKind, name: &str| {
            let mut objects = objects.iter();
            objects.any(|object| object.kind == kind && object.name() == name)
        };
        // Anybody can set the labels by which objects are watched.
        let is_own = |object: &ObservedObject| {
            let mut owners = object.owners.iter();
            owners.any(|owner| owner.name == *gateway.name)
        };
        let obsolete: Vec<(&(ObjectKind, String), &ObservedObject)> = observed
            .iter()
            .filter(|((kind, name), object)| !is_desired(*kind, name) && is_own(object))
            .collect();
        let workload = obsolete.iter().find(|((kind, _), _)| kind.is_workload());
        if let Some(((kind, name), _)) = workload
            && self.awaits_replacement(gateway, &objects, observed)
        {
            let (kind, name) = (*kind, name.clone());
            errors.push(ApplyError::Replaced { kind, name });
            return errors;
        }
        self.replaced().remove(gateway);
        for ((kind, name), object) in obsolete {
            let name = Name::new(gateway.namespace.clone(), name.as_str());
            if let Err(error) = self.delete(*kind, &name, object.uid.as_deref()).await {
                errors.push(error);
            }
        }
        errors
    }

    /// Returns whether the workload that a Gateway had before has to stay, with the objects that it needs, because the new one does not serve yet.
    fn awaits_replacement(
        &self,
        gateway: &Name,
        objects: &[Object],
        observed: &ObservedObjects,
    ) -> bool {
        let Some(new) = objects.iter().find(|object| object.kind.is_workload()) else {
            return false;
        };
        let new = observed.get(&(new.kind, new.name().to_owned()));
        let is_ready = new.is_some_and(|new| match &new.facts {
            ObjectFacts::Workload(workload) => workload.is_ready,
            _ => false,
        });
        let now = clock::instant();
        let since = *self.replaced().entry(gateway.clone()).or_insert(now);
        !is_ready && now < since + self.0.settings.replacement_deadline
    }

    fn replaced(&self) -> MutexGuard<'_, HashMap<Name, Instant>> {
        let replaced = self.0.replaced.lock();
        replaced.unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies an object unless it is up to date.
    async fn ensure(
        &self,
        gateway: &Infrastructure,
        object: &Object,
        observed: &ObservedObjects,
    ) -> Result<(), ApplyError> {
        let (kind, name) = (object.kind, object.name());
        let full_name = Name::new(gateway.gateway.namespace.clone(), name);
        let digest = digest(object);
        let found = observed.get(&(kind, name.to_owned()));
        let is_own = |found: &&ObservedObject| {
            let uid = gateway.uid.as_deref();
            let mut owners = found.owners.iter();
            owners.any(|owner| Some(&*owner.uid) == uid)
        };
        // Until there is an autoscaler, nobody else sets the number of replicas.
        let autoscaler = (ObjectKind::HorizontalPodAutoscaler, name.to_owned());
        let keeps_replicas = kind == ObjectKind::Deployment
            && object.value["spec"]["replicas"].is_null()
            && !observed.contains_key(&autoscaler);
        if let Some(found) = found.filter(is_own) {
            let fingerprint = found.fingerprint;
            if self.applied(kind, &full_name)
                == Some(Applied {
                    digest,
                    fingerprint,
                })
            {
                return Ok(());
            }
            if keeps_replicas {
                self.keep_replicas(&full_name).await?;
            }
            return self
                .apply(object, &full_name, digest, found.uid.as_deref())
                .await;
        }
        // The watch selects objects by label, so it delivers neither foreign objects nor own objects whose labels were removed.
        let request = self.api(kind, &full_name);
        let existing = self
            .timed(kind, name, request.get_metadata_opt(name))
            .await?;
        let Some(existing) = existing else {
            return self.apply(object, &full_name, digest, None).await;
        };
        let metadata = &existing.metadata;
        match ownership(metadata, gateway) {
            Ownership::Own if metadata.deletion_timestamp.is_none() => {
                if keeps_replicas {
                    self.keep_replicas(&full_name).await?;
                }
                self.apply(object, &full_name, digest, metadata.uid.as_deref())
                    .await
            }
            Ownership::Own | Ownership::Stale => {
                self.delete(kind, &full_name, metadata.uid.as_deref())
                    .await?;
                let name = name.to_owned();
                Err(ApplyError::Stale { kind, name })
            }
            Ownership::Foreign(why) => Err(ApplyError::Foreign {
                kind,
                name: name.to_owned(),
                why,
            }),
        }
    }

    /// Makes another field manager an owner of the number of replicas of a Deployment. Once the controller no longer applies the field, an unowned field would be
    /// reset to 1; the autoscaler has to start with the current number.
    async fn keep_replicas(&self, name: &Name) -> Result<(), ApplyError> {
        let kind = ObjectKind::Deployment;
        let api = self.api(kind, name);
        let found = self
            .timed(kind, &name.name, api.get_opt(&name.name))
            .await?;
        let Some(found) = found else { return Ok(()) };
        let resource = kind.resource();
        let value = json!({
            "apiVersion": resource.api_version, "kind": resource.kind,
            "metadata": {"name": &*name.name, "uid": found.metadata.uid},
            "spec": {"replicas": found.data["spec"]["replicas"]},
        });
        let params = PatchParams::apply(&self.manager("/replicas"));
        let patch = Patch::Apply(&value);
        let request = api.patch(&name.name, &params, &patch);
        self.timed(kind, &name.name, request).await.map(drop)
    }

    /// Returns the name of a field manager of this installation.
    fn manager(&self, suffix: &str) -> String {
        let name = &self.0.settings.controller_name;
        let name = &name[..name.floor_char_boundary(MAX_MANAGER - suffix.len())];
        format!("{name}{suffix}")
    }

    /// Applies an object. With `uid`, the request fails if the object of that name is another one.
    async fn apply(
        &self,
        object: &Object,
        name: &Name,
        digest: u64,
        uid: Option<&str>,
    ) -> Result<(), ApplyError> {
        let kind = object.kind;
        let mut value = object.value.clone();
        if let Some(uid) = uid {
            value["metadata"]["uid"] = uid.into();
        }
        let params = PatchParams::apply(&self.manager("")).force();
        let (api, patch) = (self.api(kind, name), Patch::Apply(&value));
        let request = api.patch(&name.name, &params, &patch);
        let applied = self.timed(kind, &name.name, request).await?;
        let fingerprint = fingerprint(&applied.metadata);
        let applied = Applied {
            digest,
            fingerprint,
        };
        let mut all = self
            .0
            .applied
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.insert((kind, name.clone()), applied);
        Ok(())
    }

    /// Deletes an object, unless it is gone or the name belongs to a new object.
    async fn delete(
        &self,
        kind: ObjectKind,
        name: &Name,
        uid: Option<&str>,
    ) -> Result<(), ApplyError> {
        self.forget(kind, name);
        let params = DeleteParams::background().preconditions(Preconditions {
            uid: uid.map(str::to_owned),
            resource_version: None,
        });
        let api = self.api(kind, name);
        let request = api.delete(&name.name, &params);
        match self.timed(kind, &name.name, request).await {
            Err(ApplyError::Request { source, .. }) if matches!(&*source, kube::Error::Api(status) if matches!(status.code, 404 | 409)) => {
                Ok(())
            }
            result => result.map(drop),
        }
    }

    fn forget(&self, kind: ObjectKind, name: &Name) {
        let mut all = self
            .0
            .applied
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.remove(&(kind, name.clone()));
    }

    fn applied(&self, kind: ObjectKind, name: &Name) -> Option<Applied> {
        let all = self
            .0
            .applied
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.get(&(kind, name.clone())).copied()
    }

    fn api(&self, kind: ObjectKind, name: &Name) -> Api<DynamicObject> {
        let resource = kind.resource();
        Api::namespaced_with(self.0.client.clone(), &name.namespace, &resource)
    }

    /// Sends a request, subject to the rate limit and the timeout.
    async fn timed<T>(
        &self,
        kind: ObjectKind,
        name: &str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, ApplyError> {
        loop {
            let permit = {
                let mut limit = self.0.limit.lock().unwrap_or_else(PoisonError::into_inner);
                limit.take(clock::instant())
            };
            match permit {
                Ok(()) => break,
                Err(wait) => tokio::time::sleep(wait).await,
            }
        }
        let name = name.to_owned();
        match tokio::time::timeout(TIMEOUT, request).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(ApplyError::Request {
                kind,
                name,
                source: Box::new(error),
            }),
            Err(_) => Err(ApplyError::Timeout { kind, name }),
        }
    }
}

fn digest(object: &Object) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.value.to_string().hash(&mut hasher);
    hasher.finish()
}
