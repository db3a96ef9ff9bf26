//! Tests of counting, rendering, and the life of series.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pointsman_binding::Delta;
use pointsman_binding::bound::*;
use pointsman_resources::{Age, Name};

use super::*;

fn listener(owner: ObjectKey, name: &str) -> FrontendId {
    FrontendId::Listener {
        gateway: Name::new("infra", "edge"),
        owner,
        listener: name.into(),
    }
}

fn edge() -> FrontendId {
    listener(ObjectKey::new(Kind::Gateway, "infra", "edge"), "http")
}

fn shop() -> ObjectKey {
    ObjectKey::new(Kind::HTTPRoute, "shop", "shop")
}

fn cart() -> BackendId {
    BackendId::new(
        ObjectKey::new(Kind::Service, "shop", "cart"),
        8080,
        Transport::Tcp,
    )
}

fn backend(id: &BackendId) -> Arc<Backend> {
    Arc::new(Backend {
        id: id.clone(),
        protocol: BackendProtocol::Unspecified,
        tls: None,
        retry_budget: None,
    })
}

fn frontend(id: &FrontendId) -> Arc<Frontend> {
    Arc::new(Frontend::new(id.clone(), Protocol::Http, 80))
}

/// Returns the change that creates and attaches a route with these rules.
fn route(rules: &[&str]) -> Delta {
    let rule = |(index, name): (usize, &&str)| {
        Arc::new(BoundRule {
            index,
            part: 0,
            name: Some(*name).filter(|name| !name.is_empty()).map(Arc::from),
            matches: vec![],
            filters: vec![],
            backends: vec![],
            fault: None,
            request_timeout: None,
            backend_timeout: None,
            retry: None,
            from: vec![],
        })
    };
    let id = RouteId {
        route: shop(),
        binding: RouteBinding::Gateway,
    };
    let meta = RouteMeta {
        id: id.clone(),
        age: Age::At(0),
        generation: 1,
        dialect: Default::default(),
        hostnames: vec![],
    };
    let rule_id = |index| RuleId {
        route: id.clone(),
        index,
        part: 0,
    };
    let all = rules.iter().enumerate().map(rule);
    let gone = (rules.len()..3).map(|index| (rule_id(index), None));
    Delta {
        rules: all
            .map(|rule| (rule_id(rule.index), Some(rule)))
            .chain(gone)
            .collect(),
        attachments: vec![(Attachment::new(&edge(), &id), true)],
        routes: vec![(id.clone(), Some(Arc::new(meta)))],
        ..Delta::default()
    }
}

/// Returns tables with a listener, a route of two rules, and a backend.
fn tables() -> Tables {
    let mut tables = Tables::default();
    tables.apply(&Delta {
        frontends: vec![(edge(), Some(frontend(&edge())))],
        backends: vec![(cart(), Some(backend(&cart())))],
        ..route(&["", "the \"b\\eta\""])
    });
    tables
}

fn render(registry: &Registry, tables: &Tables) -> String {
    registry.render(tables)
}

/// Returns the samples of a metric.
fn samples<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    let of = |line: &&str| line.split(['{', ' ']).next() == Some(name);
    text.lines().filter(of).collect()
}

#[test]
fn everything_is_rendered_in_prometheus_text_format() {
    let registry = Registry::default();
    let worker = registry.worker(0);
    let seen = worker.listener(&edge());
    seen.connections.increment();
    seen.open.increment();
    seen.handshakes.increment();
    seen.requests.increment(200);
    seen.requests.increment(404);
    seen.requests.increment(0);
    seen.latency.observe(Duration::from_micros(500));
    seen.latency.observe(Duration::from_millis(7));
    seen.latency.observe(Duration::from_secs(11));
    seen.request_bytes.add(3);
    seen.response_bytes.add(4096);
    worker.route(&shop(), 0).requests.increment(200);
    worker.route(&shop(), 1).requests.increment(503);
    let to = worker.backend(&cart());
    to.requests.increment(101);
    to.latency.observe(Duration::from_millis(1));
    to.connects.add(2);
    to.failed_connects.increment();
    to.retries.increment();
    to.ejections.increment();
    to.timeouts.increment();
    worker.count_local_reply("NoRoute");
    worker.count_local_reply("NoRoute");
    worker.count_local_reply("BackendNotFound");
    worker.count_refused_connection("TooManyConnections");
    worker.worker_series().mirrors.increment();
    worker.worker_series().accept_errors.increment();
    let text = render(&registry, &tables());
    let (head, rest) = text.split_once("# HELP pointsman_accept_errors").unwrap();
    for name in [
        "pointsman_workers 1",
        "process_open_fds",
        "process_resident_memory_bytes",
    ] {
        assert!(head.contains(name), "{name} in {head}");
    }
    assert!(head.contains(concat!(
        "\npointsman_build_info{version=\"",
        env!("CARGO_PKG_VERSION"),
        "\"} 1\n"
    )));
    let rest = format!("# HELP pointsman_accept_errors{rest}");
    let golden = include_str!("tests/golden.txt");
    assert_eq!(rest, golden, "if this is what it should be:\n{rest}");
}

#[test]
fn workers_are_summed() {
    let registry = Registry::default();
    let tables = tables();
    for index in 0..3 {
        let worker = registry.worker(index);
        let seen = worker.listener(&edge());
        seen.requests.increment(200);
        seen.open.increment();
        seen.latency.observe(Duration::from_millis(250));
        worker.count_local_reply("NoRoute");
    }
    let text = render(&registry, &tables);
    let of = r#"kind="Gateway",namespace="infra",name="edge",listener="http""#;
    assert_eq!(
        samples(&text, "pointsman_listener_requests_total"),
        [format!(
            "pointsman_listener_requests_total{{{of},code=\"2xx\"}} 3"
        )]
    );
    assert_eq!(
        samples(&text, "pointsman_listener_open_connections"),
        [format!("pointsman_listener_open_connections{{{of}}} 3")]
    );
    assert_eq!(
        samples(&text, "pointsman_listener_request_seconds_sum"),
        [format!(
            "pointsman_listener_request_seconds_sum{{{of}}} 0.75"
        )]
    );
    assert_eq!(
        samples(&text, "pointsman_answers_total"),
        ["pointsman_answers_total{reason=\"NoRoute\"} 3"]
    );
    assert_eq!(samples(&text, "pointsman_workers"), ["pointsman_workers 3"]);
}

#[test]
fn a_second_lookup_returns_the_same_series() {
    let registry = Registry::default();
    let worker = registry.worker(0);
    assert!(Arc::ptr_eq(
        &worker.backend(&cart()),
        &worker.backend(&cart())
    ));
    assert!(!Arc::ptr_eq(
        &worker.backend(&cart()),
        &registry.worker(1).backend(&cart())
    ));
    assert!(Arc::ptr_eq(
        &worker.backend(&cart()),
        &registry.worker(0).backend(&cart())
    ));
}

#[test]
fn a_series_is_looked_up_once_and_then_without_a_lock() {
    let registry = Registry::default();
    let (worker, stores) = (registry.worker(0), registry.worker(0).worker);
    let (listener, route) = (worker.listener(&edge()), worker.route(&shop(), 0));
    let _locked = (lock(&stores.listeners.0), lock(&stores.routes.0));
    let (done, found) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send((worker.listener(&edge()), worker.route(&shop(), 0))));
    let again = found.recv_timeout(std::time::Duration::from_secs(30));
    let again = again.expect("a lookup without waiting for a lock");
    assert!(Arc::ptr_eq(&again.0, &listener) && Arc::ptr_eq(&again.1, &route));
}

#[test]
fn cache_entries_of_freed_series_are_removed() {
    let registry = Registry::default();
    let worker = registry.worker(0);
    for rule in 0..10_000 {
        worker.route(&shop(), rule);
        if rule % 100 == 0 {
            render(&registry, &Tables::default());
        }
    }
    let kept = worker.routes.known.borrow().len();
    assert!(kept <= 400, "{kept}");
}

#[test]
fn series_of_removed_objects_are_freed() {
    let registry = Registry::default();
    let worker = registry.worker(0);
    worker.route(&shop(), 0).requests.increment(200);
    worker.route(&shop(), 1).requests.increment(200);
    worker.backend(&cart()).requests.increment(200);
    worker.listener(&edge()).requests.increment(200);
    let mut tables = tables();
    tables.apply(&Delta {
        backends: vec![(cart(), None)],
        ..route(&["only"])
    });
    let text = render(&registry, &tables);
    let of = r#"kind="HTTPRoute",namespace="shop",name="shop",rule="0",rule_name="only""#;
    assert_eq!(
        samples(&text, "pointsman_route_requests_total"),
        [format!(
            "pointsman_route_requests_total{{{of},code=\"2xx\"}} 1"
        )]
    );
    assert!(!text.contains("pointsman_backend"), "{text}");
    let text = render(&registry, &Tables::default());
    assert!(
        !text.contains("pointsman_route") && !text.contains("pointsman_listener"),
        "{text}"
    );
    assert!(lock(&worker.worker.routes.0).is_empty());
    assert!(lock(&worker.worker.listeners.0).is_empty());
}

#[test]
fn a_removed_object_that_returns_while_a_worker_uses_its_series_continues_counting() {
    let registry = Registry::default();
    let worker = registry.worker(0);
    let series = worker.backend(&cart());
    series.requests.increment(200);
    assert!(!render(&registry, &Tables::default()).contains("pointsman_backend"));
    series.requests.increment(200);
    let text = render(&registry, &tables());
    let found = samples(&text, "pointsman_backend_requests_total");
    assert!(found[0].ends_with("code=\"2xx\"} 2"), "{found:?}");
}

#[test]
fn listener_sets_and_mesh_ports_have_distinct_labels() {
    let set = listener(ObjectKey::new(Kind::ListenerSet, "team", "more"), "http");
    let scoped = |scope| FrontendId::Mesh {
        parent: cart().object,
        port: 8080,
        transport: Transport::Tcp,
        scope,
    };
    let consumer = scoped(Scope::Namespace("web".into()));
    let mut tables = tables();
    tables.apply(&Delta {
        frontends: [&set, &consumer]
            .map(|id| (id.clone(), Some(frontend(id))))
            .to_vec(),
        backends: vec![(cart(), Some(backend(&cart())))],
        ..Delta::default()
    });
    let registry = Registry::default();
    let worker = registry.worker(0);
    for id in [&set, &consumer, &scoped(Scope::Everyone)] {
        worker.listener(id).connections.increment();
    }
    // The last one is not in the tables; it is rendered because its Service exists.
    let text = render(&registry, &tables);
    let of = r#"kind="Service",namespace="shop",name="cart",port="8080",transport="TCP""#;
    let name = "pointsman_listener_connections_total";
    let wanted = [
        format!(
            r#"{name}{{kind="ListenerSet",namespace="team",name="more",listener="http",gateway="infra/edge"}} 1"#
        ),
        format!("{name}{{{of}}} 1"),
        format!("{name}{{{of},scope=\"web\"}} 1"),
    ];
    assert_eq!(samples(&text, name), wanted);
}

#[test]
fn metrics_can_be_rendered_while_they_change() {
    let registry = Registry::default();
    let tables = tables();
    let done = AtomicBool::new(false);
    let each = 20_000u64;
    thread::scope(|scope| {
        let count = |index| {
            let worker = registry.worker(index);
            for _ in 0..each {
                let seen = worker.listener(&edge());
                seen.requests.increment(200);
                seen.latency.observe(Duration::from_millis(1));
            }
        };
        let workers: Vec<_> = (0..2)
            .map(|index| scope.spawn(move || count(index)))
            .collect();
        scope.spawn(|| {
            let mut last = 0;
            while !done.load(Ordering::Relaxed) {
                let text = render(&registry, &tables);
                let now = total(&text, "pointsman_listener_requests_total");
                assert!(now >= last, "{now} after {last}");
                last = now;
            }
        });
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
    let text = render(&registry, &tables);
    assert_eq!(total(&text, "pointsman_listener_requests_total"), 2 * each);
    assert_eq!(
        total(&text, "pointsman_listener_request_seconds_count"),
        2 * each
    );
}

fn total(text: &str, name: &str) -> u64 {
    let value = |line: &str| {
        line.rsplit(' ')
            .next()
            .and_then(|value| value.parse::<u64>().ok())
    };
    samples(text, name).into_iter().filter_map(value).sum()
}

#[test]
fn durations_are_counted_in_their_buckets() {
    for (at, (nanoseconds, text)) in primitives::BUCKETS.iter().enumerate() {
        assert_eq!(*nanoseconds as f64 / 1e9, text.parse::<f64>().unwrap());
        let histogram = primitives::Histogram::default();
        histogram.observe(Duration::from_nanos(*nanoseconds));
        histogram.observe(Duration::from_nanos(*nanoseconds + 1));
        let mut observed = primitives::HistogramTotals::default();
        histogram.add_to(&mut observed);
        assert_eq!((observed.buckets[at], observed.buckets[at + 1]), (1, 1));
    }
}

/// Returns the rows of a table of metrics as in the documentation.
fn rows<S: Default>(table: &[series::MetricDef<S>]) -> Vec<String> {
    let of = S::default();
    let row = |(family, value): &series::MetricDef<S>| row(family, exposition::kind(&value(&of)));
    table.iter().map(row).collect()
}

fn row(family: &series::MetricFamily, kind: &str) -> String {
    format!("| `{}` | {kind} | {} |", family.name, family.help)
}

#[test]
fn docs_observing_md_lists_every_metric() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/observing.md");
    let text = std::fs::read_to_string(path).unwrap();
    let of_workers = [
        row(&series::LOCAL_REPLIES, "counter"),
        row(&series::REFUSED_CONNECTIONS, "counter"),
    ];
    let of_process = process::PROCESS
        .iter()
        .map(|(family, kind, _)| row(family, kind));
    let wanted: Vec<String> = rows(series::LISTENER)
        .into_iter()
        .chain(rows(series::ROUTE))
        .chain(rows(series::BACKEND))
        .chain(rows(series::WORKER))
        .chain(of_workers)
        .chain([row(&series::BUILD, "gauge"), row(&series::WORKERS, "gauge")])
        .chain(of_process)
        .collect();
    let is_row = |line: &&str| line.starts_with("| `pointsman_") || line.starts_with("| `process_");
    let found: Vec<&str> = text.lines().filter(is_row).collect();
    assert_eq!(found, wanted, "the rows should be:\n{}", wanted.join("\n"));
}
