//! Time from a source update to the published snapshot, with 5,000 routes on one Gateway and no proxy.
//!
//! `cargo bench -p pointsman-control`

#![allow(missing_docs, reason = "the macros write functions without")]

use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use pointsman_control::{Reconciler, Snapshots, SourceUpdate};
use pointsman_resources::read::ManifestReader;

const ROUTES: usize = 5_000;

const BASE: &str = "
{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: pointsman}, spec: {controllerName: pointsman.io/controller}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: edge, namespace: shop}, spec: {gatewayClassName: pointsman, listeners: [{name: http, port: 80, protocol: HTTP}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}]}}
";

fn route(index: usize, weight: usize) -> String {
    format!(
        "\n---\n{{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {{name: r{index}, namespace: shop}}, spec: {{parentRefs: [{{name: edge}}], rules: [{{matches: [{{path: {{value: /p/{index}}}}}], backendRefs: [{{name: web, port: 80, weight: {weight}}}]}}]}}}}"
    )
}

fn update(text: &str) -> SourceUpdate {
    let mut reader = ManifestReader::new();
    reader.read("bench.yaml", text.as_bytes());
    let documents = reader.finish().documents.into_iter();
    let objects = documents.map(|document| (document.resource.key(), Some(Arc::new(document))));
    SourceUpdate {
        objects: objects.collect(),
        ..SourceUpdate::default()
    }
}

fn reconcile(criterion: &mut Criterion) {
    let snapshots: Arc<Snapshots> = Arc::default();
    let mut reconciler = Reconciler::new(Vec::new(), snapshots.clone());
    let routes: String = (0..ROUTES).map(|index| route(index, 1)).collect();
    reconciler.apply_changes(update(&(BASE.to_owned() + &routes)));
    // Two versions of one route, applied alternately.
    let versions = [update(&route(7, 1)), update(&route(7, 2))];
    let mut turn = 0;
    let mut change = |reconciler: &mut Reconciler| {
        turn += 1;
        reconciler.apply_changes(versions[turn % 2].clone());
    };
    criterion.bench_function("one changed route at 5,000", |bencher| {
        bencher.iter(|| change(&mut reconciler));
    });
    criterion.bench_function(
        "one changed route at 5,000, and a reader's binder",
        |bencher| {
            bencher.iter(|| {
                change(&mut reconciler);
                snapshots.with_binder(&snapshots.latest(), |_| ());
            });
        },
    );
}

criterion_group!(benches, reconcile);
criterion_main!(benches);
