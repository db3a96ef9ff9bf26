//! Writes statuses while this process holds the Lease. Followers maintain the queue, too, so that they can take over; objects with an up-to-date status leave
//! it without a request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::core::ApiResource;
use pointsman_control::{StatusEntry, StatusSink, clock};
use pointsman_resources::ObjectKey;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::patch::{is_outdated, patch};
use super::queue::{Queue, Urgency, WriteOutcome};
use crate::discovery;
use crate::metrics::{Metrics, WriteResult};
use crate::object::RawObject;
use crate::rate_limit::TokenBucket;

/// Sustained rate of writes per second, and burst. An API server handles some hundreds per second, and other clients write too.
const RATE: (u32, u32) = (200, 200);
/// Number of concurrent writes.
const CONCURRENCY: usize = 16;
/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A status to write, with the object that it was computed for.
type Job = Arc<StatusEntry>;

/// The queue of statuses to write. Clones share it.
#[derive(Clone)]
pub struct StatusWriter {
    queue: Arc<Mutex<Queue<Job>>>,
    changed: Arc<Notify>,
    /// Last seen generation of each object. It differs once a user has changed the object.
    generations: HashMap<ObjectKey, i64>,
    metrics: Arc<Metrics>,
}

impl StatusSink for StatusWriter {
    fn record(&mut self, key: &ObjectKey, entry: Option<&Arc<StatusEntry>>) {
        let Some(entry) = entry else {
            self.generations.remove(key);
            return self.queue().remove(key);
        };
        let generation = entry.document.resource.meta().generation;
        let before = self.generations.insert(key.clone(), generation);
        let Some(status) = &entry.status else {
            return self.queue().remove(key);
        };
        let existing = entry.document.status();
        let urgency = match is_outdated(existing.as_ref(), &status.controller, generation) {
            true => Urgency::Urgent,
            false => Urgency::Background,
        };
        let mut queue = self.queue();
        queue.put(key, entry.clone(), urgency);
        if before.is_some_and(|before| before != generation) {
            queue.retry_now(key);
        }
        drop(queue);
        self.changed.notify_one();
    }
}

impl StatusWriter {
    /// Creates a writer with an empty queue.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        StatusWriter {
            queue: Arc::default(),
            changed: Arc::default(),
            generations: HashMap::new(),
            metrics,
        }
    }

    /// Writes while `is_leader` is true, until its sender is dropped.
    pub async fn run(
        self,
        client: Client,
        mut is_leader: watch::Receiver<bool>,
        api: watch::Receiver<discovery::ServedKinds>,
    ) {
        let mut limit = TokenBucket::new(RATE.0, RATE.1);
        let mut writes: JoinSet<(ObjectKey, Job, WriteOutcome)> = JoinSet::new();
        loop {
            let mut wait = None;
            while *is_leader.borrow() && writes.len() < CONCURRENCY {
                let Some((key, job)) = self.queue().take(clock::instant()) else {
                    break;
                };
                let resource = api.borrow().resources.get(&key.kind).cloned();
                // Without the subresource, only the resource's own controller may write the status.
                let resource = resource.filter(|resource| resource.has_status);
                let write = resource.and_then(|resource| Write::new(&client, &resource.api, &job));
                let Some(write) = write else {
                    self.finish(&key, job, WriteOutcome::Done);
                    continue;
                };
                // Waits even if the status changes in the meantime: the wait takes a few milliseconds, less than the write.
                while let Err(time) = limit.take(clock::instant()) {
                    tokio::time::sleep(time).await;
                }
                let metrics = self.metrics.clone();
                writes.spawn(async move {
                    let outcome = write.run(&job, &metrics).await;
                    (key, job, outcome)
                });
            }
            // A follower keeps the queue, but writes nothing.
            let waiting = match *is_leader.borrow() {
                true => self.queue().len(),
                false => 0,
            };
            self.metrics.record_status_queue(waiting);
            if *is_leader.borrow() && writes.len() < CONCURRENCY {
                let now = clock::instant();
                let next = self.queue().next_wake();
                wait = next.map(|next| next.saturating_duration_since(now));
            }
            tokio::select! {
                Some(done) = writes.join_next() => {
                    if let Ok((key, job, outcome)) = done {
                        self.finish(&key, job, outcome);
                    }
                }
                () = self.changed.notified() => {}
                changed = is_leader.changed() => if changed.is_err() { return },
                () = sleep(wait) => {}
            }
        }
    }

    fn finish(&self, key: &ObjectKey, job: Job, outcome: WriteOutcome) {
        self.queue().finish(key, job, outcome, clock::instant());
    }

    fn queue(&self) -> MutexGuard<'_, Queue<Job>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn sleep(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => futures::future::pending().await,
    }
}

const NOT_FOUND: u16 = 404;
const CONFLICT: u16 = 409;

/// Returns whether the API server has answered with a status code.
fn has_code<T>(result: &Result<T, Error>, code: u16) -> bool {
    matches!(result, Err(Error::Request(kube::Error::Api(status))) if status.code == code)
}

/// A failed request. All failures are retried.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Request(#[from] kube::Error),
    #[error("timed out after {} s", TIMEOUT.as_secs())]
    Timeout,
}

async fn timed<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    match tokio::time::timeout(TIMEOUT, request).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(Error::Timeout),
    }
}

/// One status to write.
struct Write {
    api: Api<RawObject>,
    name: String,
    /// Resource version that the patch is based on.
    resource_version: Value,
    patch: Value,
}

impl Write {
    /// Compares the actual status of an object with the desired one; `None` if they are equal.
    fn new(client: &Client, resource: &ApiResource, job: &Job) -> Option<Write> {
        let desired = job.status_json()?;
        let object = job.document.object();
        // Objects without a version are assumed to exist and were not read.
        let resource_version = &object["metadata"]["resourceVersion"];
        let resource_version = resource_version
            .as_str()
            .filter(|version| !version.is_empty())?;
        let patch = patch(object.get("status"), &desired)?;
        let meta = job.document.resource.meta();
        let api = match &*meta.namespace {
            "" => Api::all_with(client.clone(), resource),
            namespace => Api::namespaced_with(client.clone(), namespace, resource),
        };
        Some(Write {
            api,
            name: meta.name.to_string(),
            resource_version: resource_version.into(),
            patch,
        })
    }

    /// Writes the status. After a conflict, reads the object and tries once more.
    async fn run(mut self, job: &Job, metrics: &Metrics) -> WriteOutcome {
        let mut result = self.send(metrics).await;
        if has_code(&result, CONFLICT) {
            result = match self.refresh(job).await {
                Ok(true) => self.send(metrics).await,
                Ok(false) => Ok(()),
                Err(error) => Err(error),
            };
        }
        match &result {
            Ok(()) => WriteOutcome::Done,
            // The object was deleted, which the watch will report.
            Err(_) if has_code(&result, NOT_FOUND) => WriteOutcome::Done,
            Err(error) => {
                let key = job.document.resource.key();
                match has_code(&result, CONFLICT) {
                    true => tracing::debug!("status of {key}: {error}; retrying"),
                    false => tracing::warn!("status of {key}: {error}; retrying"),
                }
                WriteOutcome::Failed
            }
        }
    }

    async fn send(&self, metrics: &Metrics) -> Result<(), Error> {
        let body = json!({
            "metadata": {"resourceVersion": self.resource_version},
            "status": self.patch,
        });
        let (params, body) = (PatchParams::default(), Patch::Merge(&body));
        let request = self.api.patch_status(&self.name, &params, &body);
        let result = timed(request).await.map(drop);
        metrics.record_status_write(match &result {
            Ok(()) => WriteResult::Written,
            Err(_) if has_code(&result, CONFLICT) => WriteResult::Conflict,
            Err(_) => WriteResult::Failed,
        });
        result
    }

    /// Reads the object and computes the patch again. Returns false if there is nothing to write: the status is up to date, or the object has changed, so that
    /// another status will follow.
    async fn refresh(&mut self, job: &Job) -> Result<bool, Error> {
        let object = timed(self.api.get(&self.name)).await?;
        let object: Value = serde_json::from_str(object.json()).unwrap_or_default();
        let Some(status) = &job.status else {
            return Ok(false);
        };
        let generation = object["metadata"]["generation"].as_i64();
        if generation.is_some_and(|generation| generation != status.generation) {
            return Ok(false);
        }
        // Another object of the same name, which may have the same generation.
        let read = job.document.object();
        if object["metadata"]["uid"] != read["metadata"]["uid"] {
            return Ok(false);
        }
        let namespace = &job.document.resource.meta().namespace;
        let desired = status.merge(namespace, object.get("status"), &clock::now());
        let Some(patch) = patch(object.get("status"), &desired) else {
            return Ok(false);
        };
        self.patch = patch;
        self.resource_version = object["metadata"]["resourceVersion"].clone();
        Ok(true)
    }
}
