//! A reconciler with a sink that records calls, and manifests as strings.
#![allow(
    dead_code,
    missing_docs,
    reason = "each test binary uses a part of this"
)]

use std::sync::{Arc, Mutex, MutexGuard};

use pointsman_binding::bound::{BackendId, Transport};
use pointsman_binding::status::StatusBody;
use pointsman_binding::{Change, Delta, Observation};
use pointsman_control::{Reconciler, Sink, Snapshots, SourceUpdate};
use pointsman_resources::read::ManifestReader;
use pointsman_resources::{Kind, ObjectKey};
use pointsman_routing::Tables;

/// A GatewayClass, a Gateway `edge` and a Service.
pub const BASE: &str = "
{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: pointsman}, spec: {controllerName: pointsman.io/controller}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: edge, namespace: shop}, spec: {gatewayClassName: pointsman, listeners: [{name: http, port: 80, protocol: HTTP}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}]}}
";

/// Returns an HTTPRoute in `shop`.
pub fn route(name: &str, gateway: &str) -> String {
    format!(
        "\n---\n{{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {{name: {name}, namespace: shop}}, spec: {{parentRefs: [{{name: {gateway}}}], rules: [{{backendRefs: [{{name: web, port: 80}}]}}]}}}}"
    )
}

/// Parses a key of the form `Kind namespace/name`.
pub fn key(text: &str) -> ObjectKey {
    let (kind, name) = text.split_once(' ').expect("kind and name");
    let kind = Kind::ALL.iter().find(|known| known.name() == kind);
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    ObjectKey::new(*kind.expect("a kind"), namespace, name)
}

/// Parses documents into an update, as a source reports it.
pub fn update(text: &str) -> SourceUpdate {
    let mut reader = ManifestReader::new();
    reader.read("test.yaml", text.as_bytes());
    let input = reader.finish();
    assert!(input.findings.is_empty(), "{:?}", input.findings);
    let documents = input.documents.into_iter();
    let objects = documents.map(|document| (document.resource.key(), Some(Arc::new(document))));
    SourceUpdate {
        objects: objects.collect(),
        ..SourceUpdate::default()
    }
}

/// Calls of a sink.
#[derive(Default)]
pub struct SinkLog {
    pub events: Vec<&'static str>,
    /// Number of backends in the tables of each commit.
    pub backends_at_commit: Vec<usize>,
    /// True once a commit has reported that the Gateway's port can't be bound.
    has_reported: bool,
}

/// A sink that assigns an address to every Gateway, needs port 80 of every Service, and fails to bind one port.
struct RecordingSink(Arc<Mutex<SinkLog>>);

impl Sink for RecordingSink {
    fn stage(&mut self, delta: &Delta, _: &Tables) -> Vec<Change> {
        let mut log = lock(&self.0);
        log.events.push("stage");
        let gateways = delta.gateways.iter().map(|(gateway, request)| {
            let observation = request.as_ref().map(|_| Observation {
                addresses: vec!["127.0.64.9".parse().expect("an address")],
                ..Observation::default()
            });
            Change::Observe(gateway.clone(), observation)
        });
        let services = delta.services.iter().map(|(service, addresses)| {
            let id = BackendId::new(service.clone(), 80, Transport::Tcp);
            Change::Need(id, addresses.is_some())
        });
        let reports: Vec<Change> = gateways.chain(services).collect();
        if !reports.is_empty() {
            log.events.push("report");
        }
        reports
    }

    fn commit(&mut self, tables: &Tables) -> Vec<Change> {
        let mut log = lock(&self.0);
        log.events.push("commit");
        log.backends_at_commit.push(tables.backends().count());
        if std::mem::replace(&mut log.has_reported, true) {
            return Vec::new();
        }
        log.events.push("report");
        let name = key("Gateway shop/edge").name;
        vec![Change::Observe(
            name,
            Some(Observation {
                addresses: vec!["127.0.64.9".parse().expect("an address")],
                ..Observation::default()
            }),
        )]
    }
}

fn lock(log: &Mutex<SinkLog>) -> MutexGuard<'_, SinkLog> {
    log.lock().expect("not poisoned")
}

pub struct Harness {
    pub reconciler: Reconciler,
    pub snapshots: Arc<Snapshots>,
    log: Arc<Mutex<SinkLog>>,
}

impl Harness {
    pub fn new(text: &str) -> Self {
        let (snapshots, log): (Arc<Snapshots>, Arc<Mutex<SinkLog>>) = Default::default();
        let sink = Box::new(RecordingSink(log.clone()));
        let mut reconciler = Reconciler::new(vec![sink], snapshots.clone());
        reconciler.apply_changes(update(text));
        Harness {
            reconciler,
            snapshots,
            log,
        }
    }

    /// A reconciler without sinks, so that no tables are used.
    pub fn without_sinks(text: &str) -> Self {
        let (snapshots, log): (Arc<Snapshots>, Arc<Mutex<SinkLog>>) = Default::default();
        let mut reconciler = Reconciler::new(Vec::new(), snapshots.clone());
        reconciler.apply_changes(update(text));
        Harness {
            reconciler,
            snapshots,
            log,
        }
    }

    pub fn apply(&mut self, text: &str) {
        self.reconciler.apply_changes(update(text));
    }

    pub fn delete(&mut self, object: &str) {
        let mut update = SourceUpdate::default();
        update.objects.insert(key(object), None);
        self.reconciler.apply_changes(update);
    }

    pub fn log(&self) -> MutexGuard<'_, SinkLog> {
        lock(&self.log)
    }

    /// Returns the number of attached routes in the latest snapshot.
    pub fn attached(&self) -> usize {
        let snapshot = self.snapshots.latest();
        let tables = self.snapshots.tables(&snapshot);
        let frontends = tables.frontends();
        frontends.map(|table| table.routes().count()).sum()
    }

    /// Returns whether a route's first parent accepts it in the latest snapshot.
    pub fn accepted(&self, route: &str) -> Option<bool> {
        let (key, snapshot) = (key(route), self.snapshots.latest());
        let mut entries = snapshot.entries.values();
        let entry = entries.find(|entry| entry.document.resource.key() == key)?;
        match &entry.status.as_ref()?.body {
            StatusBody::Route(parents) => Some(parents.first()?.conditions.first()?.is_true()),
            _ => None,
        }
    }
}
