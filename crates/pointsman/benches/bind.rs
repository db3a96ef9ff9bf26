//! Cost of binding one Gateway, including its tables: from scratch, for one changed route, and in memory.
//!
//! `cargo bench -p pointsman`

#![allow(missing_docs, reason = "the macros write functions without")]

use std::hint::black_box;
use std::sync::Arc;

use cap::Cap;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use pointsman_binding::{Binder, Change};
use pointsman_resources::{Kind, Resource};
use pointsman_routing::Tables;
use serde_json::{Value, json};

fn resource(kind: Kind, value: Value) -> Resource {
    Resource::from_json(kind, &value).expect("a valid object")
}

fn put(resource: &Resource) -> Change {
    Change::Put(resource.clone())
}

fn route(index: usize, weight: u32) -> Resource {
    resource(
        Kind::HTTPRoute,
        json!({
            "metadata": {"name": format!("route-{index}"), "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "parentRefs": [{"name": "edge", "namespace": "infra"}],
                "hostnames": [format!("host-{index}.example.com")],
                "rules": [{
                    "matches": [{"path": {"type": "PathPrefix", "value": format!("/api/{index}")}}],
                    "backendRefs": [{"name": format!("svc-{index}"), "port": 80, "weight": weight}],
                }],
            },
        }),
    )
}

/// A class, a Gateway, and `size` routes, each with its own Service and EndpointSlice.
fn world(size: usize) -> Vec<Resource> {
    let mut all = vec![
        resource(
            Kind::GatewayClass,
            json!({"metadata": {"name": "pointsman"}, "spec": {"controllerName": "pointsman.io/controller"}}),
        ),
        resource(
            Kind::Gateway,
            json!({
                "metadata": {"name": "edge", "namespace": "infra"},
                "spec": {"gatewayClassName": "pointsman", "listeners": [
                    {"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}},
                ]},
            }),
        ),
    ];
    for index in 0..size {
        let name = format!("svc-{index}");
        all.push(resource(
            Kind::Service,
            json!({"metadata": {"name": name, "namespace": "shop"}, "spec": {"ports": [{"name": "http", "port": 80}]}}),
        ));
        all.push(resource(
            Kind::EndpointSlice,
            json!({
                "metadata": {"name": name, "namespace": "shop", "labels": {"kubernetes.io/service-name": name}},
                "addressType": "IPv4",
                "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}],
                "ports": [{"name": "http", "port": 8080}],
            }),
        ));
        all.push(route(index, 1));
    }
    all
}

/// The bound form and its tables.
#[derive(Default)]
struct Engine {
    binder: Binder,
    tables: Tables,
}

impl Engine {
    fn apply(&mut self, changes: impl IntoIterator<Item = Change>) {
        let delta = self.binder.apply(changes);
        self.tables.apply(&delta);
    }
}

fn bound(size: usize) -> Engine {
    let mut engine = Engine::default();
    engine.apply(world(size).iter().map(put));
    engine
}

/// Counts allocated bytes.
#[global_allocator]
static MEMORY: Cap<std::alloc::System> = Cap::new(std::alloc::System, usize::MAX);

#[allow(clippy::print_stderr, reason = "a benchmark reports")]
fn memory(_: &mut Criterion) {
    const SIZE: usize = 10_000;
    let before = MEMORY.allocated();
    let engine = bound(SIZE);
    let bytes = (MEMORY.allocated() - before) / SIZE;
    eprintln!(
        "memory: {bytes} bytes per route, with its Service, EndpointSlice and tables, at {SIZE} routes"
    );
    drop(black_box(engine));
}

fn from_scratch(c: &mut Criterion) {
    let mut group = c.benchmark_group("from scratch");
    group.sample_size(10);
    for size in [100, 10_000] {
        let world = world(size);
        group.bench_function(format!("{size} routes"), |bencher| {
            bencher.iter_batched(
                || world.iter().map(put).collect::<Vec<_>>(),
                |changes| {
                    let mut engine = Engine::default();
                    engine.apply(changes);
                    engine
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn one_route_changed(c: &mut Criterion) {
    let mut group = c.benchmark_group("one route changed");
    for size in [100, 10_000] {
        let mut engine = bound(size);
        let mut weight = 1;
        group.bench_function(format!("of {size}"), |bencher| {
            bencher.iter_batched(
                || {
                    weight = 3 - weight;
                    put(&route(size / 2, weight))
                },
                |change| engine.apply([change]),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

/// A Kuma policy for calls from one service to another.
fn policy(index: usize, version: &str) -> Resource {
    let service = |at: usize| format!("svc-{}", at % SERVICES);
    resource(
        Kind::MeshHTTPRoute,
        json!({
            "type": "MeshHTTPRoute", "mesh": "default", "name": format!("policy-{index}"),
            "spec": {
                "targetRef": match index % 3 {
                    0 => json!({"kind": "Mesh"}),
                    1 => json!({"kind": "MeshService", "name": service(index / 3)}),
                    _ => json!({"kind": "MeshSubset", "tags": {"team": format!("team-{}", index % 10)}}),
                },
                "to": [{
                    "targetRef": {"kind": "MeshService", "name": service(index)},
                    "rules": [{
                        "matches": [{"path": {"type": "PathPrefix", "value": format!("/api/{}", index % 7)}}],
                        "default": {"backendRefs": [{"kind": "MeshServiceSubset", "name": service(index), "tags": {"version": version}, "weight": 1}]},
                    }],
                }],
            },
        }),
    )
}

/// Services of the mesh; each has a tenth of the Dataplanes as callers.
const SERVICES: usize = 100;

/// `size` Dataplanes, each calling ten services, and as many policies.
fn mesh(size: usize) -> Vec<Resource> {
    let dataplane = |index: usize| {
        let called = (0..10).map(|n| (index * 7 + n * 11) % SERVICES);
        let outbounds: Vec<Value> = called
            .enumerate()
            .map(|(n, service)| json!({"port": 10_000 + n, "tags": {"kuma.io/service": format!("svc-{service}")}}))
            .collect();
        let tags = json!({
            "kuma.io/service": format!("svc-{}", index % SERVICES), "kuma.io/protocol": "http",
            "version": format!("v{}", index % 3), "team": format!("team-{}", index % 10),
        });
        resource(
            Kind::Dataplane,
            json!({
                "type": "Dataplane", "mesh": "default", "name": format!("dp-{index}"),
                "networking": {
                    "address": format!("10.0.{}.{}", index / 250, index % 250),
                    "inbound": [{"port": 8080, "tags": tags}],
                    "outbound": outbounds,
                },
            }),
        )
    };
    let policies = (0..size).map(|index| policy(index, "v1"));
    (0..size).map(dataplane).chain(policies).collect()
}

/// `size` policies for one service, each with its own rule, and as many Dataplanes that call it.
fn crowd(size: usize) -> Vec<Resource> {
    let policies = (0..size).map(|index| crowded(index, "v1"));
    let dataplanes = mesh(size).into_iter().filter_map(|object| match object {
        Resource::Dataplane(mut dataplane) => {
            let outbounds = &mut Arc::make_mut(&mut dataplane).spec.networking.outbound;
            outbounds.truncate(1);
            outbounds[0].tags = [("kuma.io/service".to_owned(), "svc-0".to_owned())].into();
            Some(Resource::Dataplane(dataplane))
        }
        _ => None,
    });
    dataplanes.chain(policies).collect()
}

fn crowded(index: usize, version: &str) -> Resource {
    resource(
        Kind::MeshHTTPRoute,
        json!({
            "type": "MeshHTTPRoute", "mesh": "default", "name": format!("policy-{index}"),
            "spec": {"to": [{
                "targetRef": {"kind": "MeshService", "name": "svc-0"},
                "rules": [{
                    "matches": [{"path": {"type": "PathPrefix", "value": format!("/api/{index}")}}],
                    "default": {"backendRefs": [{"kind": "MeshServiceSubset", "name": "svc-0", "tags": {"version": version}}]},
                }],
            }]},
        }),
    )
}

fn kuma(c: &mut Criterion) {
    spread(c, "kuma", mesh, policy);
    spread(c, "kuma, one service", crowd, crowded);
}

fn spread(
    c: &mut Criterion,
    name: &str,
    world: fn(usize) -> Vec<Resource>,
    policy: fn(usize, &str) -> Resource,
) {
    const SIZE: usize = 1_000;
    let mut group = c.benchmark_group(name);
    group.sample_size(10);
    let world = world(SIZE);
    group.bench_function(
        format!("{SIZE} policies over {SIZE} Dataplanes"),
        |bencher| {
            bencher.iter_batched(
                || world.iter().map(put).collect::<Vec<_>>(),
                |changes| {
                    let mut engine = Engine::default();
                    engine.apply(changes);
                    engine
                },
                BatchSize::PerIteration,
            );
        },
    );
    let mut engine = Engine::default();
    engine.apply(world.iter().map(put));
    let mut version = 1;
    group.bench_function("one policy changed", |bencher| {
        bencher.iter_batched(
            || {
                version = 3 - version;
                put(&policy(SIZE / 2, &format!("v{version}")))
            },
            |change| engine.apply([change]),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, memory, from_scratch, one_route_changed, kuma);
criterion_main!(benches);
