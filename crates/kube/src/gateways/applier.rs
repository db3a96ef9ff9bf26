//! Reconciles the objects of Gateways with the API server: applies the desired objects by server-side apply and deletes obsolete ones. Runs on the leader only.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use pointsman_binding::bound::Infrastructure;
use pointsman_control::clock;
use pointsman_resources::Name;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::InfrastructureSettings;
use super::fingerprint::fingerprint;
use super::objects::{Object, ObjectKind, generate};
use super::owner::{Ownership, ownership};
use super::registry::Registry;
use super::state::{ObservedObject, ObservedObjects};
use crate::limit::Limit;
use crate::status::Outcome;

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
            ApplyError::Timeout { .. } | ApplyError::Stale { .. } => None,
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
            limit: Mutex::new(Limit::new(RATE.0, RATE.1)),
            applied: Mutex::default(),
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
            true => Outcome::Done,
            false => Outcome::Failed,
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
    limit: Mutex<Limit>,
    /// Objects that were applied and have not been deleted since.
    applied: Mutex<HashMap<(ObjectKind, Name), Applied>>,
}

impl Requests {
    /// Applies the desired objects of a Gateway and deletes all others. Returns the errors.
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
        let obsolete = observed
            .iter()
            .filter(|((kind, name), _)| !is_desired(*kind, name));
        for ((kind, name), object) in obsolete {
            let name = Name::new(gateway.namespace.clone(), name.as_str());
            if let Err(error) = self.delete(*kind, &name, object.uid.as_deref()).await {
                errors.push(error);
            }
        }
        errors
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
            found.owners.iter().any(|owner| Some(&**owner) == uid)
        };
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
        let manager = &self.0.settings.controller_name;
        let manager = &manager[..manager.floor_char_boundary(MAX_MANAGER)];
        let params = PatchParams::apply(manager).force();
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
