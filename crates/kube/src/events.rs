//! Kubernetes Events for problems that statuses report, and for rejected objects. `kubectl describe` shows them.
//!
//! The name of an Event is derived from its content. If another replica sends it again, or the same one after a restart, the existing Event's count increases.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use pointsman_control::{StatusEntry, StatusSink, clock, status_log};
use pointsman_resources::ObjectKey;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use crate::metrics::Metrics;
use crate::rate_limit::TokenBucket;

/// Maximum number of queued Events. Further ones are dropped and counted: if thousands of routes break together, a thousand Events suffice.
const MAX_QUEUED: usize = 1000;
/// Sustained rate of Events per second, and burst.
const RATE: (u32, u32) = (10, 50);
/// Longest note that the API server accepts, in bytes.
const MAX_NOTE_BYTES: usize = 1024;
/// Longest part of an object's name in the name of its Event.
const MAX_NAME_BYTES: usize = 200;
/// Namespace of Events on cluster-scoped objects, which the API server accepts in hardly any other.
const CLUSTER_SCOPED: &str = "default";
/// Delay before sending an Event is retried.
const RETRY: Duration = Duration::from_secs(2);

/// A problem to report to the user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Problem {
    /// Reason, in CamelCase.
    pub reason: &'static str,
    /// Text, with the place in the object.
    pub note: String,
}

/// Source of problems. Those of one source and object are replaced together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProblemSource {
    /// The object's status.
    Status,
    /// Its validation.
    Validation,
}

/// The known problems, and the queue of those to be sent.
#[derive(Default)]
pub struct Events {
    state: Mutex<EventQueue>,
    changed: Notify,
    metrics: Arc<Metrics>,
    /// True if there is no permission to report problems of cluster-scoped objects.
    omits_cluster_scoped: bool,
}

#[derive(Default)]
struct EventQueue {
    known: HashMap<(ProblemSource, ObjectKey), BTreeSet<Problem>>,
    pending: VecDeque<Pending>,
}

struct Pending {
    origin: ProblemSource,
    key: ObjectKey,
    regarding: ObjectReference,
    problem: Problem,
}

/// Receives statuses on behalf of [`Events`].
pub struct EventSink(pub Arc<Events>);

impl StatusSink for EventSink {
    fn record(&mut self, key: &ObjectKey, entry: Option<&Arc<StatusEntry>>) {
        let found = entry.and_then(|entry| Some((entry, entry.status.as_ref()?)));
        let problems = found.iter().flat_map(|(_, status)| {
            let problems = status_log::problems(status).into_iter();
            // A Gateway that is being created has no proxy and no address for a moment.
            let problems = problems
                .filter(|problem| !matches!(problem.reason, "Pending" | "AddressNotAssigned"));
            problems.map(|problem| Problem {
                reason: problem.reason,
                note: problem.text,
            })
        });
        let problems = problems.collect();
        self.0.replace(ProblemSource::Status, key, problems, || {
            let object = entry.map(|entry| entry.document.object());
            reference(key, &object.unwrap_or_default())
        });
    }
}

impl Events {
    /// Creates an empty set. `namespaces` are those that are watched, to which permissions are limited; all if empty.
    pub fn new(metrics: Arc<Metrics>, namespaces: &[String]) -> Self {
        let has_permission = |namespace: &str| {
            namespaces.is_empty() || namespaces.iter().any(|watched| watched == namespace)
        };
        Events {
            metrics,
            omits_cluster_scoped: !has_permission(CLUSTER_SCOPED),
            ..Events::default()
        }
    }

    /// Replaces the problems of an object. New ones are queued, resolved ones are removed from the queue.
    pub fn replace(
        &self,
        origin: ProblemSource,
        key: &ObjectKey,
        problems: BTreeSet<Problem>,
        regarding: impl Fn() -> ObjectReference,
    ) {
        if self.omits_cluster_scoped && key.namespace().is_empty() {
            return;
        }
        let mut state = self.state();
        let EventQueue { known, pending } = &mut *state;
        let id = (origin, key.clone());
        let before = known.remove(&id).unwrap_or_default();
        if before.is_empty() && problems.is_empty() {
            return;
        }
        pending.retain(|one| {
            (one.origin, &one.key) != (origin, key) || problems.contains(&one.problem)
        });
        for problem in problems.difference(&before) {
            if pending.len() == MAX_QUEUED {
                self.metrics.record_dropped_event();
                continue;
            }
            pending.push_back(Pending {
                origin,
                key: key.clone(),
                regarding: regarding(),
                problem: problem.clone(),
            });
        }
        if !problems.is_empty() {
            known.insert(id, problems);
        }
        self.changed.notify_one();
    }

    /// Sends Events while `is_leader` is true, until its sender is dropped. `controller` and `instance` identify the reporter.
    pub async fn run(
        self: Arc<Self>,
        client: Client,
        mut is_leader: watch::Receiver<bool>,
        controller: Arc<str>,
        instance: Arc<str>,
    ) {
        let mut limit = TokenBucket::new(RATE.0, RATE.1);
        loop {
            let next = match *is_leader.borrow() {
                true => self.state().pending.pop_front(),
                false => None,
            };
            let Some(next) = next else {
                tokio::select! {
                    () = self.changed.notified() => {}
                    changed = is_leader.changed() => if changed.is_err() { return },
                }
                continue;
            };
            while let Err(time) = limit.take(clock::instant()) {
                tokio::time::sleep(time).await;
            }
            let event = event(&next, &controller, &instance);
            if let Err(error) = send(&client, &event).await {
                tracing::debug!("Event on {}: {error}", next.key);
                if is_temporary(&error) {
                    self.state().pending.push_front(next);
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, EventQueue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates a reference to an object from its JSON.
pub fn reference(key: &ObjectKey, object: &Value) -> ObjectReference {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    ObjectReference {
        api_version: Some(text(&object["apiVersion"]).unwrap_or_else(|| key.kind.api_version())),
        kind: Some(key.kind.name().to_owned()),
        name: Some(key.name.name.to_string()),
        namespace: (!key.namespace().is_empty()).then(|| key.namespace().to_string()),
        uid: text(&object["metadata"]["uid"]),
        ..ObjectReference::default()
    }
}

fn event(pending: &Pending, controller: &str, instance: &str) -> Event {
    let Pending {
        regarding, problem, ..
    } = pending;
    let mut hasher = DefaultHasher::new();
    (&regarding.uid, problem, controller).hash(&mut hasher);
    let name = truncate(
        regarding.name.as_deref().unwrap_or_default(),
        MAX_NAME_BYTES,
    );
    // Labels of a DNS name end in a letter or digit.
    let name = name.trim_end_matches(['.', '-']);
    let name = format!("{name}.{:016x}", hasher.finish());
    let namespace = regarding.namespace.clone();
    let time = Timestamp::from_microsecond(clock::unix_micros());
    Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(namespace.unwrap_or_else(|| CLUSTER_SCOPED.to_owned())),
            ..ObjectMeta::default()
        },
        action: Some("Reconcile".to_owned()),
        event_time: time.ok().map(MicroTime),
        note: Some(truncate(&problem.note, MAX_NOTE_BYTES).to_owned()),
        reason: Some(problem.reason.to_owned()),
        regarding: Some(regarding.clone()),
        reporting_controller: Some(controller.to_owned()),
        reporting_instance: Some(truncate(instance, 128).to_owned()),
        type_: Some("Warning".to_owned()),
        ..Event::default()
    }
}

/// Truncates a text to a number of bytes.
fn truncate(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// Creates an Event, or increases the count of an existing one.
async fn send(client: &Client, event: &Event) -> kube::Result<()> {
    let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
    let name = event.metadata.name.as_deref().unwrap_or_default();
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    match api.create(&PostParams::default(), event).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        result => return result.map(drop),
    }
    let known = api.get(name).await?;
    let count = known.series.map_or(1, |series| series.count);
    let series = json!({"series": {"count": count + 1, "lastObservedTime": event.event_time}});
    let (params, patch) = (PatchParams::default(), Patch::Merge(series));
    api.patch(name, &params, &patch).await.map(drop)
}

/// Returns whether another attempt may succeed.
fn is_temporary(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use pointsman_resources::Kind;

    use super::*;

    fn problems(notes: &[&str]) -> BTreeSet<Problem> {
        let notes = notes.iter().map(|note| Problem {
            reason: "NoMatchingParent",
            note: (*note).to_owned(),
        });
        notes.collect()
    }

    fn key() -> ObjectKey {
        ObjectKey::new(Kind::HTTPRoute, "shop", "r")
    }

    fn replace(events: &Events, origin: ProblemSource, notes: &[&str]) {
        let object = json!({"metadata": {"uid": "u"}});
        let regarding = || reference(&key(), &object);
        events.replace(origin, &key(), problems(notes), regarding);
    }

    fn pending(events: &Events) -> Vec<String> {
        let state = events.state();
        let pending = state.pending.iter();
        pending.map(|one| one.problem.note.clone()).collect()
    }

    #[test]
    fn a_problem_is_sent_when_it_appears_and_not_while_it_stays() {
        let events = Events::default();
        replace(&events, ProblemSource::Status, &["a"]);
        replace(&events, ProblemSource::Status, &["a", "b"]);
        replace(&events, ProblemSource::Validation, &["c"]);
        assert_eq!(pending(&events), ["a", "b", "c"]);
        replace(&events, ProblemSource::Status, &["b"]);
        assert_eq!(
            pending(&events),
            ["b", "c"],
            "it is gone before it was sent"
        );
        replace(&events, ProblemSource::Status, &["a", "b"]);
        assert_eq!(pending(&events), ["b", "c", "a"]);
    }

    #[test]
    fn the_same_problem_has_one_event_and_another_one_has_another() {
        let named = |note: &str, uid: &str| {
            let pending = Pending {
                origin: ProblemSource::Status,
                key: key(),
                regarding: reference(&key(), &json!({"metadata": {"uid": uid}})),
                problem: Problem {
                    reason: "Invalid",
                    note: note.to_owned(),
                },
            };
            event(&pending, "example.com/c", "pod-1").metadata.name
        };
        assert_eq!(named("a", "1"), named("a", "1"));
        assert_ne!(named("a", "1"), named("b", "1"));
        assert_ne!(
            named("a", "1"),
            named("a", "2"),
            "an object of the same name"
        );
    }

    #[test]
    fn problems_of_cluster_scoped_objects_need_a_permission_in_the_default_namespace() {
        let reports = |namespaces: &[&str]| {
            let namespaces: Vec<String> = namespaces.iter().map(|one| (*one).to_owned()).collect();
            let events = Events::new(Arc::default(), &namespaces);
            let class = ObjectKey::new(Kind::GatewayClass, "", "c");
            let regarding = || reference(&class, &Value::Null);
            events.replace(ProblemSource::Status, &class, problems(&["a"]), regarding);
            replace(&events, ProblemSource::Status, &["b"]);
            pending(&events)
        };
        assert_eq!(reports(&[]), ["a", "b"]);
        assert_eq!(reports(&["shop", "default"]), ["a", "b"]);
        assert_eq!(reports(&["shop"]), ["b"]);
    }

    #[test]
    fn an_event_keeps_to_the_limits_of_the_api() {
        let name = "x".repeat(199) + "." + &"y".repeat(53);
        let key = ObjectKey::new(Kind::GatewayClass, "", name);
        let pending = Pending {
            origin: ProblemSource::Status,
            regarding: reference(&key, &Value::Null),
            key,
            problem: Problem {
                reason: "Invalid",
                note: "ä".repeat(2000),
            },
        };
        let event = event(&pending, "example.com/c", "pod");
        assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
        let name = event.metadata.name.expect("a name");
        assert!(name.len() == 216 && !name.contains(".."), "{name}");
        assert_eq!(event.note.map(|note| note.len()), Some(1024));
        let regarding = event.regarding.expect("an object");
        assert_eq!(
            regarding.api_version.as_deref(),
            Some("gateway.networking.k8s.io/v1")
        );
    }
}
