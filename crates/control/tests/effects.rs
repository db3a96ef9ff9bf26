//! The condition `pointsman.io/InEffect`: reports of a sink, and the resulting statuses.

mod common;

use std::sync::{Arc, Mutex};
use std::time::Instant;

use common::{BASE, key, route, update};
use pointsman_binding::{Change, Delta, Effect, RouteEffect};
use pointsman_control::{Reconciler, Sink, Snapshots, SourceUpdate, StatusEntry, StatusSink};
use pointsman_resources::ObjectKey;
use pointsman_routing::Tables;
use serde_json::Value;

/// A sink that reports the effect of the route on a retry.
struct ReportingSink(Arc<Mutex<Vec<Effect>>>);

impl ReportingSink {
    fn report(&mut self) -> Vec<Change> {
        let next = self.0.lock().expect("not poisoned").pop();
        let effect = next.map(|effect| Arc::new(RouteEffect::Uniform(effect)));
        let report = effect.map(|effect| Change::Effect(key("HTTPRoute shop/web"), Some(effect)));
        report.into_iter().collect()
    }
}

impl Sink for ReportingSink {
    fn stage(&mut self, _: &Delta, _: &Tables) -> Vec<Change> {
        Vec::new()
    }

    fn commit(&mut self, _: &Tables) -> Vec<Change> {
        self.report()
    }

    fn next_wake(&self) -> Option<Instant> {
        None
    }
}

/// Records the statuses of the route that were passed to it.
struct Writes(Arc<Mutex<Vec<Value>>>);

impl StatusSink for Writes {
    fn record(&mut self, object: &ObjectKey, entry: Option<&Arc<StatusEntry>>) {
        if *object == key("HTTPRoute shop/web") {
            let status = entry.and_then(|entry| entry.status_json());
            let status = status.unwrap_or_default();
            self.0.lock().expect("not poisoned").push(status);
        }
    }
}

struct Harness {
    reconciler: Reconciler,
    snapshots: Arc<Snapshots>,
    effects: Arc<Mutex<Vec<Effect>>>,
    writes: Arc<Mutex<Vec<Value>>>,
}

impl Harness {
    fn new() -> Self {
        let (snapshots, effects, writes): (Arc<Snapshots>, _, _) = Default::default();
        let sink = ReportingSink(Arc::clone(&effects));
        let reconciler = Reconciler::new(vec![Box::new(sink)], snapshots.clone());
        let reconciler = reconciler.with_status_sink(Box::new(Writes(Arc::clone(&writes))));
        Harness {
            reconciler,
            snapshots,
            effects,
            writes,
        }
    }

    /// Applies manifests; the sink reports these effects, one after each commit.
    fn apply(&mut self, text: &str, effect: Effect) {
        self.effects.lock().expect("not poisoned").push(effect);
        self.reconciler.apply_changes(update(text));
    }

    /// The sink reports an effect.
    fn report(&mut self, effect: Effect) {
        self.effects.lock().expect("not poisoned").push(effect);
        let reports = SourceUpdate {
            has_reports: true,
            ..SourceUpdate::default()
        };
        self.reconciler.apply_changes(reports);
    }

    /// Returns the statuses that were passed on since the last call.
    fn writes(&self) -> Vec<Value> {
        std::mem::take(&mut *self.writes.lock().expect("not poisoned"))
    }

    /// The condition, as `/status` shows it.
    fn condition(&self) -> Value {
        let snapshot = self.snapshots.latest();
        let mut entries = snapshot.entries.iter();
        let entry = entries.find(|((_, object), _)| *object == key("HTTPRoute shop/web"));
        let (_, entry) = entry.expect("the route");
        in_effect(&entry.status_json().expect("a status"))
    }
}

fn in_effect(status: &Value) -> Value {
    let conditions = status["parents"][0]["conditions"].as_array().cloned();
    let mut conditions = conditions.unwrap_or_default().into_iter();
    let found = conditions.find(|condition| condition["type"] == "pointsman.io/InEffect");
    found.unwrap_or_default()
}

fn manifests(path: &str) -> String {
    let route = route("web", "edge").replace(
        "rules: [{",
        &format!("rules: [{{matches: [{{path: {{value: {path}}}}}], "),
    );
    format!("{BASE}{route}")
}

// "an ordinary change writes the status once"
#[test]
fn a_status_is_passed_on_once_the_effect_of_a_change_is_known() {
    let mut harness = Harness::new();
    harness.apply(&manifests("/a"), Effect::InEffect);
    assert_eq!(harness.writes().len(), 1);
    let before = harness.condition();
    for path in ["/b", "/c", "/d"] {
        harness.apply(&manifests(path), Effect::Pending);
        let pending = harness.condition();
        assert_eq!(
            (&pending["status"], &pending["reason"]),
            (&"Unknown".into(), &"Pending".into())
        );
        assert!(harness.writes().is_empty(), "it is about to change");
        harness.report(Effect::InEffect);
        let writes = harness.writes();
        assert_eq!(writes.len(), 1);
        // "keeps its transition time"
        assert_eq!(in_effect(&writes[0]), before);
        assert_eq!(harness.condition(), before);
    }
}

#[test]
fn the_effect_of_a_route_stays_while_proxies_are_expected_to_reconnect() {
    let mut harness = Harness::new();
    harness.apply(&manifests("/a"), Effect::InEffect);
    harness.writes();
    harness.report(Effect::Reconnecting);
    assert_eq!(harness.condition()["status"], "Unknown");
    assert!(
        harness.writes().is_empty(),
        "the object keeps the status that it has"
    );
    harness.report(Effect::NoProxy);
    let writes = harness.writes();
    assert_eq!(in_effect(&writes[0])["reason"], "NoProxyConnected");
    // A new object has no previous status to keep.
    let mut harness = Harness::new();
    harness.apply(&manifests("/a"), Effect::Reconnecting);
    let writes = harness.writes();
    assert_eq!(
        in_effect(writes.last().expect("a write"))["status"],
        "Unknown"
    );
}
