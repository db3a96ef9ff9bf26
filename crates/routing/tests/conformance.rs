//! The tables of the conformance suite's matching tests, each with the routes of its manifest.

mod common;

use std::sync::Arc;

use common::*;
use pointsman_binding::bound::*;
use pointsman_resources::{Kind, ObjectKey};
use pointsman_routing::{FrontendTable, MeshClient, Tables};

fn all_go(table: &FrontendTable, wanted: &[(Req, &str)]) {
    for (request, service) in wanted {
        assert_eq!(to(table, request), *service, "{request:?}");
    }
}

#[test]
fn http_route_matching() {
    let table = http(vec![route(
        "matching",
        1,
        &[],
        vec![
            rule(
                vec![prefix("/"), prefix("/").with_header("version", "one")],
                "v1",
            ),
            rule(
                vec![prefix("/v2"), prefix("/").with_header("version", "two")],
                "v2",
            ),
        ],
    )]);
    let wanted = [
        (get("h", "/"), "v1"),
        (get("h", "/example"), "v1"),
        (get("h", "/").header("Version", "one"), "v1"),
        (get("h", "/v2"), "v2"),
        (get("h", "/v2/example"), "v2"),
        (get("h", "/").header("Version", "two"), "v2"),
        (get("h", "/v2/"), "v2"),
        (get("h", "/v2example"), "v1"),
        (get("h", "/foo/v2/example"), "v1"),
    ];
    all_go(&table, &wanted);
}

#[test]
fn http_route_matching_across_routes() {
    let one = vec![prefix("/"), prefix("/").with_header("version", "one")];
    let two = vec![prefix("/v2"), prefix("/").with_header("version", "two")];
    let table = http(vec![
        route(
            "matching-part1",
            1,
            &["example.com", "example.net"],
            vec![rule(one, "v1")],
        ),
        route("matching-part2", 1, &["example.com"], vec![rule(two, "v2")]),
    ]);
    let wanted = [
        (get("example.com", "/"), "v1"),
        (get("example.com", "/example"), "v1"),
        (get("example.net", "/example"), "v1"),
        (
            get("example.com", "/example").header("Version", "one"),
            "v1",
        ),
        (get("example.com", "/v2"), "v2"),
        (get("example.net", "/v2"), "v1"),
        (get("example.com", "/v2/example"), "v2"),
        (get("example.com", "/").header("Version", "two"), "v2"),
    ];
    all_go(&table, &wanted);
}

#[test]
fn http_route_exact_path_matching() {
    let rules = vec![
        rule(vec![exact("/one")], "v1"),
        rule(vec![exact("/two")], "v2"),
    ];
    let table = http(vec![route("exact", 1, &[], rules)]);
    let wanted = [
        (get("h", "/one"), "v1"),
        (get("h", "/two"), "v2"),
        (get("h", "/"), "-"),
        (get("h", "/one/example"), "-"),
        (get("h", "/two/"), "-"),
        (get("h", "/Two"), "-"),
    ];
    all_go(&table, &wanted);
}

#[test]
fn http_route_path_match_order() {
    let rules = vec![
        rule(vec![exact("/match")], "v1"),
        rule(vec![exact("/match/exact")], "v2"),
        rule(vec![exact("/match/exact/one")], "v3"),
        rule(vec![prefix("/match/")], "v3"),
        rule(vec![prefix("/match/prefix/")], "v1"),
        rule(vec![prefix("/match/prefix/one")], "v2"),
    ];
    let table = http(vec![route("order", 1, &[], rules)]);
    let wanted = [
        (get("h", "/match/exact/one"), "v3"),
        (get("h", "/match/exact"), "v2"),
        (get("h", "/match"), "v1"),
        (get("h", "/match/prefix/one/any"), "v2"),
        (get("h", "/match/prefix/any"), "v1"),
        (get("h", "/match/any"), "v3"),
    ];
    all_go(&table, &wanted);
}

#[test]
fn http_route_method_matching() {
    let any = || prefix("/");
    let rules = vec![
        rule(vec![any().with_method("POST")], "v1"),
        rule(vec![any().with_method("GET")], "v2"),
        rule(vec![prefix("/path1").with_method("GET")], "v1"),
        rule(
            vec![any().with_header("version", "one").with_method("PUT")],
            "v2",
        ),
        rule(
            vec![
                prefix("/path2")
                    .with_header("version", "two")
                    .with_method("POST"),
            ],
            "v3",
        ),
        rule(
            vec![
                prefix("/path3").with_method("PATCH"),
                prefix("/path4")
                    .with_header("version", "three")
                    .with_method("DELETE"),
            ],
            "v1",
        ),
        rule(vec![prefix("/path5")], "v1"),
        rule(vec![any().with_method("PATCH")], "v2"),
        rule(vec![any().with_header("version", "four")], "v3"),
    ];
    let table = http(vec![route("method", 1, &[], rules)]);
    let send = |method: &str, path: &str| get("h", path).method(method);
    let wanted = [
        (send("POST", "/"), "v1"),
        (send("GET", "/"), "v2"),
        (send("HEAD", "/"), "-"),
        (send("GET", "/path1"), "v1"),
        (send("PUT", "/").header("version", "one"), "v2"),
        (send("POST", "/path2").header("version", "two"), "v3"),
        (send("PATCH", "/path3"), "v1"),
        (send("DELETE", "/path4").header("version", "three"), "v1"),
        (send("PUT", "/"), "-"),
        (send("DELETE", "/path4"), "-"),
        (send("PATCH", "/path5"), "v1"),
        (send("PATCH", "/").header("version", "four"), "v2"),
    ];
    all_go(&table, &wanted);
}

#[test]
fn http_route_query_param_matching() {
    let any = || prefix("/");
    let rules = vec![
        rule(vec![any().with_query("animal", "whale")], "v1"),
        rule(vec![any().with_query("animal", "dolphin")], "v2"),
        rule(
            vec![
                any()
                    .with_query("animal", "dolphin")
                    .with_query("color", "blue"),
                any().with_query("ANIMAL", "Whale"),
            ],
            "v3",
        ),
        rule(vec![prefix("/path1").with_query("animal", "whale")], "v1"),
        rule(
            vec![
                any()
                    .with_header("version", "one")
                    .with_query("animal", "whale"),
            ],
            "v2",
        ),
        rule(
            vec![
                prefix("/path2")
                    .with_header("version", "two")
                    .with_query("animal", "whale"),
            ],
            "v3",
        ),
        rule(
            vec![
                prefix("/path3").with_query("animal", "shark"),
                prefix("/path4")
                    .with_header("version", "three")
                    .with_query("animal", "kraken"),
            ],
            "v1",
        ),
        rule(vec![prefix("/path5")], "v1"),
        rule(vec![any().with_query("animal", "hydra")], "v2"),
        rule(vec![any().with_header("version", "four")], "v3"),
    ];
    let table = http(vec![route("query", 1, &[], rules)]);
    let wanted = [
        (get("h", "/?animal=whale"), "v1"),
        (get("h", "/?animal=dolphin"), "v2"),
        (get("h", "/?animal=dolphin&color=blue"), "v3"),
        (get("h", "/?ANIMAL=Whale"), "v3"),
        (get("h", "/?animal=whale&otherparam=irrelevant"), "v1"),
        (get("h", "/?animal=dolphin&color=yellow"), "v2"),
        (get("h", "/?color=blue"), "-"),
        (get("h", "/?animal=dog"), "-"),
        (get("h", "/?animal=whaledolphin"), "-"),
        (get("h", "/"), "-"),
        (get("h", "/path1?animal=whale"), "v1"),
        (get("h", "/?animal=whale").header("version", "one"), "v2"),
        (
            get("h", "/path2?animal=whale").header("version", "two"),
            "v3",
        ),
        (get("h", "/path3?animal=shark"), "v1"),
        (
            get("h", "/path4?animal=kraken").header("version", "three"),
            "v1",
        ),
        (get("h", "/?animal=shark"), "-"),
        (get("h", "/path4?animal=kraken"), "-"),
        (get("h", "/path5?animal=hydra"), "v1"),
        (get("h", "/?animal=hydra").header("version", "four"), "v3"),
    ];
    all_go(&table, &wanted);
}

/// The four listeners of GatewayHTTPListenerIsolation, each with a route for a separate path.
fn isolated(hostnames: &[&str]) -> Tables {
    let listeners = [
        ("empty-hostname", None),
        ("wildcard-example-com", Some("*.example.com")),
        ("wildcard-foo-example-com", Some("*.foo.example.com")),
        ("abc-foo-example-com", Some("abc.foo.example.com")),
    ];
    tables(listeners.map(|(name, hostname)| {
        let rules = vec![rule(vec![prefix(&format!("/{name}"))], name)];
        added(
            listener(name, 80, Protocol::Http, hostname),
            vec![route(name, 1, hostnames, rules)],
        )
    }))
}

#[test]
fn gateway_http_listener_isolation() {
    let paths = [
        "empty-hostname",
        "wildcard-example-com",
        "wildcard-foo-example-com",
        "abc-foo-example-com",
    ];
    let own = [
        ("bar.com", 0),
        ("bar.example.com", 1),
        ("bar.foo.example.com", 2),
        ("abc.foo.example.com", 3),
    ];
    for hostnames in [
        &[][..],
        &[
            "bar.com",
            "*.example.com",
            "*.foo.example.com",
            "abc.foo.example.com",
        ],
    ] {
        let tables = isolated(hostnames);
        for (host, listener) in own {
            let table = tables
                .listener(&gateway(), 80, Some(host))
                .expect("a listener");
            for (at, path) in paths.iter().enumerate() {
                let wanted = if at == listener { paths[at] } else { "-" };
                assert_eq!(
                    to(table, &get(host, &format!("/{path}"))),
                    wanted,
                    "{host} {path}"
                );
            }
        }
    }
}

/// The six Gateways of HTTPRouteMultipleRoutesAttachmentSameHostnameIntersection: a listener, an older and a newer route.
#[test]
fn routes_with_the_same_hostname_intersection_are_distinguished_by_their_own_hostnames() {
    let cases = [
        ("abc.example.com", "*.example.com", "abc.example.com"),
        ("*.example.com", "*.com", "*.example.com"),
    ];
    for (served, old, new) in cases {
        let go = |old_match: BoundMatch, new_match: BoundMatch, request: Req| {
            let routes = vec![
                route("older", 1, &[old], vec![rule(vec![old_match], "v1")]),
                route("newer", 2, &[new], vec![rule(vec![new_match], "v2")]),
            ];
            let tables = tables([added(
                listener("l", 80, Protocol::Http, Some(served)),
                routes,
            )]);
            to(
                tables
                    .listener(&gateway(), 80, Some("abc.example.com"))
                    .expect("one"),
                &request,
            )
        };
        let asked = || get("abc.example.com", "/path/prefix/longer");
        assert_eq!(go(prefix("/"), prefix("/"), asked()), "v2");
        assert_eq!(go(prefix("/path/prefix"), prefix("/path"), asked()), "v2");
        let old_match = || prefix("/path/prefix").with_header("header-b", "B");
        let new_match = || prefix("/path").with_header("header-a", "A");
        let both = asked().header("Header-A", "A").header("Header-B", "B");
        assert_eq!(go(old_match(), new_match(), both), "v2");
        assert_eq!(
            go(old_match(), new_match(), asked().header("Header-B", "B")),
            "v1"
        );
    }
}

/// HTTPRouteHostnameIntersection: the hosts that reach a route on a listener.
#[test]
fn http_route_hostname_intersection() {
    type Case = (
        &'static str,
        &'static [&'static str],
        &'static [(&'static str, bool)],
    );
    let cases: [Case; 4] = [
        (
            "very.specific.com",
            &[
                "non.matching.com",
                "*.nonmatchingwildcard.io",
                "very.specific.com",
            ],
            &[("very.specific.com", true), ("other.specific.com", false)],
        ),
        (
            "very.specific.com",
            &["non.matching.com", "*.specific.com"],
            &[("very.specific.com", true), ("foo.specific.com", false)],
        ),
        (
            "*.wildcard.io",
            &["non.matching.com", "*.io", "foo.wildcard.io"],
            &[
                ("foo.wildcard.io", true),
                ("foo.bar.wildcard.io", true),
                ("wildcard.io", false),
            ],
        ),
        (
            "*.anotherwildcard.io",
            &["one.anotherwildcard.io", "*.anotherwildcard.io"],
            &[
                ("one.anotherwildcard.io", true),
                ("a.b.anotherwildcard.io", true),
                ("anotherwildcard.io", false),
            ],
        ),
    ];
    for (served, hostnames, hosts) in cases {
        let routes = vec![route(
            "r",
            1,
            hostnames,
            vec![rule(vec![prefix("/")], "v1")],
        )];
        let tables = tables([added(
            listener("l", 80, Protocol::Http, Some(served)),
            routes,
        )]);
        for (host, wanted) in hosts {
            let reached = tables
                .listener(&gateway(), 80, Some(host))
                .is_some_and(|table| table.lookup(&get(host, "/")).is_some());
            assert_eq!(reached, *wanted, "{served} {host}");
        }
    }
}

fn stream_route(name: &str, age: i64, hostnames: &[&str], kind: Kind) -> BoundRoute {
    let mut route = route(
        name,
        age,
        hostnames,
        vec![rule(vec![], name), rule(vec![], "second")],
    );
    Arc::make_mut(&mut route.meta).id.route.kind = kind;
    route
}

fn stream_to(table: &FrontendTable, sni: Option<&str>) -> String {
    match table.lookup_stream(sni) {
        Some(hit) => hit.rule.backends[0].reference.name.name.to_string(),
        None => "-".into(),
    }
}

#[test]
fn tls_is_routed_by_listener_then_most_specific_sni_then_age() {
    let passthrough = Protocol::Tls(TlsModeKey::Passthrough);
    let tables = tables([
        added(
            listener("wide", 443, passthrough, Some("*.example.com")),
            vec![
                stream_route("wildcard", 1, &["*.example.com"], Kind::TLSRoute),
                stream_route("exact", 2, &["a.example.com"], Kind::TLSRoute),
                stream_route("late", 3, &["a.example.com"], Kind::TLSRoute),
            ],
        ),
        added(
            listener("narrow", 443, passthrough, Some("b.example.com")),
            vec![stream_route(
                "narrow",
                1,
                &["b.example.com"],
                Kind::TLSRoute,
            )],
        ),
    ]);
    let go = |sni| match tables.listener(&gateway(), 443, sni) {
        Some(table) => stream_to(table, sni),
        None => "no listener".into(),
    };
    assert_eq!(go(Some("a.example.com")), "exact");
    assert_eq!(go(Some("c.example.com")), "wildcard");
    assert_eq!(go(Some("b.example.com")), "narrow");
    assert_eq!(go(Some("other.org")), "no listener");
    assert_eq!(go(None), "no listener");
}

/// "TLSRoutes are matched by SNI first; the TCPRoute takes the rest."
#[test]
fn a_tcp_route_gets_the_connections_that_no_tls_route_matches() {
    let terminated = Protocol::Tls(TlsModeKey::Terminate);
    let tcp = || stream_route("tcp", 1, &[], Kind::TCPRoute);
    let named = stream_route("named", 2, &["*.example.com"], Kind::TLSRoute);
    let tables = tables([
        added(listener("a", 443, terminated, None), vec![tcp(), named]),
        // Hostnames of a TLSRoute were optional before v1.
        added(
            listener("b", 444, terminated, None),
            vec![tcp(), stream_route("any", 2, &[], Kind::TLSRoute)],
        ),
    ]);
    let go = |port, sni| {
        let table = tables.listener(&gateway(), port, sni);
        stream_to(table.expect("a listener"), sni)
    };
    assert_eq!(go(443, Some("a.example.com")), "named");
    assert_eq!(go(443, Some("other.org")), "tcp");
    assert_eq!(go(443, None), "tcp");
    assert_eq!(go(444, Some("a.example.com")), "any");
    assert_eq!(go(444, None), "any");
}

#[test]
fn tcp_and_udp_go_to_the_oldest_routes_first_rule_and_may_share_a_port_number() {
    let tables = tables([
        added(
            listener("tcp", 53, Protocol::Tcp, None),
            vec![
                stream_route("young", 2, &[], Kind::TCPRoute),
                stream_route("old", 1, &[], Kind::TCPRoute),
            ],
        ),
        added(
            listener("udp", 53, Protocol::Udp, None),
            vec![stream_route("datagrams", 1, &[], Kind::UDPRoute)],
        ),
    ]);
    let tcp = tables.listener(&gateway(), 53, None).expect("tcp");
    assert_eq!(stream_to(tcp, None), "old");
    assert_eq!(stream_to(tcp, Some("any.sni")), "old");
    assert_eq!(
        stream_to(tables.datagrams(&gateway(), 53).expect("udp"), None),
        "datagrams"
    );
}

#[test]
fn the_table_of_a_namespace_applies_to_its_calls_and_that_of_all_clients_to_the_rest() {
    let scope = |namespace: &str| Scope::Namespace(namespace.into());
    let one = |name: &str| vec![route(name, 1, &[], vec![rule(vec![prefix("/")], name)])];
    let mut tables = tables([
        added(mesh(80, Scope::Everyone, Kind::HTTPRoute), one("producer")),
        added(mesh(80, scope("team"), Kind::HTTPRoute), one("consumer")),
        added(mesh(80, scope("bare"), Kind::HTTPRoute), vec![]),
        added(mesh(81, scope("team"), Kind::HTTPRoute), one("only")),
    ]);
    let go = |tables: &Tables, port, from: Option<&str>| {
        let namespace = from.map(Arc::from);
        let client = MeshClient {
            namespace: namespace.as_ref(),
            pod: None,
        };
        match tables.mesh(&cart(), Transport::Tcp, port, client) {
            Some(table) => to(table, &get("cart", "/")),
            None => "the Service".into(),
        }
    };
    assert_eq!(go(&tables, 80, Some("team")), "consumer");
    assert_eq!(go(&tables, 80, Some("other")), "producer");
    assert_eq!(go(&tables, 80, Some("bare")), "producer");
    assert_eq!(go(&tables, 80, None), "producer");
    assert_eq!(go(&tables, 81, Some("other")), "the Service");
    assert_eq!(go(&tables, 82, Some("team")), "the Service");
    tables.apply(&pointsman_binding::Delta {
        frontends: vec![(mesh(80, scope("team"), Kind::HTTPRoute).id, None)],
        ..Default::default()
    });
    assert_eq!(go(&tables, 80, Some("team")), "producer");
}

/// "Kuma policy, consumer route and producer route for the same traffic: in this order".
#[test]
fn policies_for_a_pod_apply_to_its_calls_before_routes() {
    let one = |name: &str| vec![route(name, 1, &[], vec![rule(vec![prefix("/")], name)])];
    let consumers = mesh(80, Scope::Namespace("team".into()), Kind::HTTPRoute);
    let pod = |name: &str| ObjectKey::new(Kind::Pod, "team", name);
    let outbound = |name: &str, port| Frontend {
        id: FrontendId::Outbound(Arc::new(Outbound {
            dataplane: pod(name),
            destination: BackendId::new(cart(), port, Transport::Tcp),
            listen: None,
        })),
        ..mesh(port, Scope::Everyone, Kind::HTTPRoute)
    };
    let mut tables = tables([
        added(consumers, one("consumer")),
        added(outbound("till", 80), one("policy")),
        added(outbound("till", 81), one("only")),
    ]);
    let go = |tables: &Tables, port, name: &str| {
        let pod = pod(name);
        let table = tables.mesh(&cart(), Transport::Tcp, port, MeshClient::of_pod(&pod));
        table.map(|table| to(table, &get("cart", "/")))
    };
    assert_eq!(go(&tables, 80, "till").as_deref(), Some("policy"));
    assert_eq!(go(&tables, 80, "other").as_deref(), Some("consumer"));
    assert_eq!(go(&tables, 81, "till").as_deref(), Some("only"));
    assert_eq!(go(&tables, 81, "other"), None);
    tables.apply(&pointsman_binding::Delta {
        frontends: [80, 81]
            .map(|port| (outbound("till", port).id, None))
            .into(),
        ..Default::default()
    });
    assert_eq!(go(&tables, 80, "till").as_deref(), Some("consumer"));
    assert_eq!(go(&tables, 81, "till"), None);
}

#[test]
fn a_listener_that_changes_its_port_or_hostname_is_found_only_at_the_new_one() {
    let routes = vec![route("r", 1, &[], vec![rule(vec![prefix("/")], "v1")])];
    let mut tables = tables([added(
        listener("l", 80, Protocol::Http, Some("a.com")),
        routes,
    )]);
    tables.apply(&added(
        listener("l", 8080, Protocol::Http, Some("b.com")),
        vec![],
    ));
    assert!(tables.listener(&gateway(), 80, Some("a.com")).is_none());
    assert!(tables.listener(&gateway(), 8080, Some("a.com")).is_none());
    let table = tables
        .listener(&gateway(), 8080, Some("b.com"))
        .expect("the listener");
    assert_eq!(to(table, &get("b.com", "/")), "v1");
}
