//! Cost of a lookup and of a changed route, neither of which should grow with the number of routes.
//! A round of lookups uses 10 hosts or paths spread over the table, at every size, so that only the size of the table differs and not the part of it in use.
//! `spread` uses 1,000: most data of a lookup is then not in the nearest cache, so that memory latency is measured as well.

#![allow(missing_docs, reason = "the macros write functions without")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::sync::Arc;

use common::*;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pointsman_binding::Delta;
use pointsman_binding::bound::{BoundRoute, Protocol};
use pointsman_routing::Tables;

const ROUND: usize = 10;
const SPREAD: usize = 1_000;

/// Names without a common prefix, as in a cluster; consecutive numbers would be unrealistically good for the hash.
fn scattered(n: usize) -> String {
    format!("{:08x}", (n as u32).wrapping_mul(0x9E37_79B1))
}

fn by_host(n: usize) -> BoundRoute {
    let host = format!("{}.example.com", scattered(n));
    let rules = vec![
        rule(vec![prefix("/")], "v1"),
        rule(vec![prefix("/api/v2")], "v2"),
    ];
    route(&format!("r{n}"), n as i64, &[&host], rules)
}

fn by_prefix(n: usize) -> BoundRoute {
    let path = format!("/api/{}", scattered(n));
    route(
        &format!("r{n}"),
        n as i64,
        &["one.example.com"],
        vec![rule(vec![prefix(&path)], "v1")],
    )
}

fn table_of(count: usize, make: fn(usize) -> BoundRoute) -> Tables {
    tables([added(
        listener("http", 80, Protocol::Http, None),
        (0..count).map(make).collect(),
    )])
}

fn lookups(c: &mut Criterion) {
    let mut group = c.benchmark_group("lookup");
    let mut measure = |name: &str,
                       round: usize,
                       count: usize,
                       make: fn(usize) -> BoundRoute,
                       request: fn(usize) -> Req| {
        let tables = table_of(count, make);
        let table = tables.listener(&gateway(), 80, None).expect("a listener");
        let requests: Vec<Req> = (0..round).map(|n| request(n * count / round)).collect();
        group.throughput(Throughput::Elements(round as u64));
        assert!(
            requests
                .iter()
                .all(|request| table.lookup(request).is_some())
        );
        group.bench_function(format!("{name}/{count}"), |b| {
            b.iter(|| {
                for request in &requests {
                    black_box(table.lookup(black_box(request)));
                }
            });
        });
    };
    let host = |n| get(&format!("{}.example.com", scattered(n)), "/api/v2/items/42");
    let path = |n| {
        get(
            "one.example.com",
            &format!("/api/{}/items/42", scattered(n)),
        )
    };
    measure("hosts", ROUND, 10, by_host, host);
    measure("hosts", ROUND, 10_000, by_host, host);
    measure("prefixes", ROUND, 10, by_prefix, path);
    measure("prefixes", ROUND, 5_000, by_prefix, path);
    measure("hosts spread", SPREAD, 10_000, by_host, host);
    measure("prefixes spread", SPREAD, 5_000, by_prefix, path);
    group.finish();
}

fn changes(c: &mut Criterion) {
    let mut group = c.benchmark_group("apply");
    let mut measure = |name: &str, count: usize, make: fn(usize) -> BoundRoute| {
        let tables = table_of(count, make);
        let id = listener("http", 80, Protocol::Http, None).id;
        let deltas: Vec<Delta> = (0..ROUND)
            .map(|n| {
                let old = make(n * count / ROUND % count);
                let mut new = old.clone();
                Arc::make_mut(&mut new.meta).generation = 2;
                let mut delta = Delta::default();
                replace(&id, Some(&old), Some(&new), &mut delta);
                delta
            })
            .collect();
        let mut next = deltas.iter().cycle();
        // Each change starts from a table that a snapshot still references, as in a proxy, so nothing can be changed in place.
        group.bench_function(format!("{name}/{count}"), |b| {
            b.iter_batched(
                || (tables.clone(), next.next().expect("without end")),
                |(mut tables, delta)| {
                    tables.apply(delta);
                    tables
                },
                BatchSize::PerIteration,
            );
        });
    };
    measure("hosts", 100, by_host);
    measure("hosts", 10_000, by_host);
    measure("one host", 100, by_prefix);
    measure("one host", 10_000, by_prefix);
    group.finish();
}

criterion_group!(benches, lookups, changes);
criterion_main!(benches);
