//! Precedence of policies and matches, by zone, role, and origin in other zones.

use pointsman_routing::{Extent, FrontendTable, shadowed};

use crate::{World, fate, policies, query, route};

/// A rule for all requests, or for those with a match, that responds with a status.
fn rule(matched: &str, status: u16) -> String {
    format!(
        "{{matches: [{matched}], default: {{filters: [{{directResponse: {{status: {status}}}}}]}}}}"
    )
}

fn all(status: u16) -> String {
    format!("[{}]", rule("{path: {type: PathPrefix, value: /}}", status))
}

/// "between two MeshGateway refs more tags wins".
#[test]
fn a_target_with_listener_tags_is_more_specific() {
    let edge = |name: &str, tags: &str, status| {
        format!(
            "\n---\n{{type: MeshHTTPRoute, mesh: default, name: {name}, spec: {{targetRef: {{kind: MeshGateway, name: edge-gateway{tags}}}, to: [{{targetRef: {{kind: Mesh}}, rules: {}}}]}}}}",
            all(status)
        )
    };
    // By its name `a` would win.
    let both = edge("a", "", 201) + &edge("b", ", tags: {port: http-8080}", 202);
    let world = World::with(&both);
    assert_eq!(fate(&world.edge("http://x.example:8080/")), "202");
    let more = edge(
        "c",
        ", tags: {port: http-8080, kuma.io/service: edge-gateway}",
        203,
    );
    assert_eq!(
        fate(&World::with(&(both + &more)).edge("http://x.example:8080/")),
        "203"
    );
}

/// "1. path present before absent"; "a match without a path comes after all (on gateways it is prefix `/`)".
#[test]
fn a_match_without_a_path_comes_last() {
    let rules = [
        rule(
            "{method: GET, headers: [{name: x, value: a}, {name: z, value: b}]}",
            201,
        ),
        rule("{path: {type: RegularExpression, value: /r.*}}", 202),
        rule("{path: {type: PathPrefix, value: /p}}", 203),
    ];
    let rules = format!("[{}]", rules.join(", "));
    let with_headers = |mut query: pointsman_routing::explain::Query| {
        for (name, value) in [("x", "a"), ("z", "b")] {
            query.headers.push((name.to_owned(), value.to_owned()));
        }
        query
    };
    let world = World::with(&route("r", "{kind: Mesh}", &rules));
    for (path, wanted) in [
        ("/r1", "202"),
        ("/p", "203"),
        ("/other", "201"),
        ("/", "201"),
    ] {
        let asked = with_headers(query("web-1", &format!("http://backend.mesh{path}")));
        assert_eq!(fate(&world.ask(&asked)), wanted, "{path}");
    }
    let asked = with_headers(query("web-1", "http://backend.mesh/r1"));
    let found = world.ask(&asked);
    let wanted = "path: a match without a path comes after the expression `/r.*`";
    let mut details = found.candidates.iter().map(|lost| lost.detail.as_str());
    assert!(details.any(|detail| detail == wanted), "{found:#?}");
    assert_eq!(
        fate(&world.from("web-1", "http://backend.mesh/other")),
        "404"
    );
    // On a gateway it is the prefix `/`, which comes before expressions.
    let edge = format!(
        "{{type: MeshHTTPRoute, mesh: default, name: edge, spec: {{targetRef: {{kind: MeshGateway, name: edge-gateway}}, to: [{{targetRef: {{kind: Mesh}}, rules: {rules}}}]}}}}"
    );
    let mut asked = with_headers(query("web-1", "http://x.example:8080/r1"));
    asked.dataplane = None;
    asked.gateway = Some((
        pointsman_resources::Name::new("mesh:default", "edge-gateway"),
        None,
    ));
    assert_eq!(fate(&World::with(&edge).ask(&asked)), "201");
}

/// A rule whose requests all go to earlier rules is reported as shadowed.
#[test]
fn a_match_without_a_path_that_gets_no_requests_is_reported() {
    for (before, extent) in [
        ("{path: {type: PathPrefix, value: /}}", Some(Extent::Fully)),
        (
            "{path: {type: RegularExpression, value: /.*}}",
            Some(Extent::Fully),
        ),
        ("{path: {type: PathPrefix, value: /}, method: POST}", None),
        ("{path: {type: PathPrefix, value: /v1}}", None),
        ("{path: {type: Exact, value: /}}", None),
        ("{headers: [{name: x, value: a}]}", None),
    ] {
        let rules = format!("[{}, {}]", rule("{method: GET}", 201), rule(before, 202));
        let world = World::with(&route("r", "{kind: Mesh}", &rules));
        let mut tables = world.tables.frontends();
        let is_backend = |table: &&std::sync::Arc<FrontendTable>| {
            table.frontend().id.parent().name.name.as_ref() == "backend"
        };
        let table = tables.find(is_backend).expect("an outbound");
        let lost = shadowed(table)
            .into_iter()
            .find(|shadow| shadow.rule.index == 0);
        assert_eq!(lost.map(|shadow| shadow.extent), extent, "{before}");
    }
}

/// "Zone-origin non-producer policies apply only to dataplanes of that zone", and a proxy's zone is its label.
#[test]
fn the_zone_of_a_proxy_is_its_label() {
    let client = |name: &str, label: &str, tag: &str| {
        format!(
            "\n---\n{{type: Dataplane, mesh: default, name: {name}, labels: {{{label}}}, networking: {{address: 10.0.0.20, inbound: [{{port: 80, tags: {{kuma.io/service: {name}{tag}}}}}], outbound: [{{port: 10001, tags: {{kuma.io/service: backend}}}}]}}}}"
        )
    };
    let policy = route("zonal", "{kind: Mesh}", &all(201)).replace(
        "name: zonal,",
        "name: zonal, labels: {kuma.io/origin: zone, kuma.io/zone: east},",
    );
    let world = World::with(
        &(policy
            + &client("in", "kuma.io/zone: east", ", kuma.io/zone: west")
            + &client("out", "kuma.io/zone: west", ", kuma.io/zone: east")
            + &client("unknown", "", ", kuma.io/zone: west")),
    );
    let url = "http://backend.mesh/";
    assert_eq!(fate(&world.from("in", url)), "201");
    assert_eq!(fate(&world.from("out", url)), "backend 100");
    assert_eq!(fate(&world.from("unknown", url)), "201");
}

/// "role: system < producer < consumer < workload-owner", as in a universal document; "`consumer`/`workload-owner` policies apply only to
/// dataplanes of the policy's namespace".
#[test]
fn the_role_of_a_universal_document_is_its_label() {
    let policy = |name: &str, labels: &str, status| {
        route(name, "{kind: Mesh}", &all(status)).replace(
            &format!("name: {name},"),
            &format!("name: {name}, labels: {{{labels}}},"),
        )
    };
    let role = |role: &str| format!("kuma.io/policy-role: {role}");
    let url = "http://backend.mesh/";
    // By their names the weaker would win.
    let order = ["system", "producer", "consumer", "workload-owner"];
    for (weak, strong) in order.iter().zip(&order[1..]) {
        let world =
            World::with(&(policy("a", &role(weak), 201) + &policy("b", &role(strong), 202)));
        assert_eq!(fate(&world.from("web-1", url)), "202", "{weak} {strong}");
    }
    let of_shop = role("consumer") + ", k8s.kuma.io/namespace: shop";
    let client = "\n---\n{type: Dataplane, mesh: default, name: shop-1, labels: {k8s.kuma.io/namespace: shop}, networking: {address: 10.0.0.20, outbound: [{port: 10001, tags: {kuma.io/service: backend}}]}}";
    let world = World::with(&(policy("a", &of_shop, 201) + client));
    assert_eq!(fate(&world.from("shop-1", url)), "201");
    assert_eq!(policies(&world.from("web-1", url)).len(), 0);
}

/// Prefix `/` rewritten to `/a/b`: "gateway handles slashes right (`/` -> `/tail`)".
#[test]
fn the_root_is_rewritten_without_a_slash_at_the_end() {
    let rewrite = "[{matches: [{path: {prefix: /}}], default: {filters: [{urlRewrite: {path: {replacePrefixMatch: /a/b}}}]}}]";
    let world = World::with(&route("r", "{kind: Mesh}", rewrite));
    for (path, wanted) in [("/", "/a/b"), ("/?q=1", "/a/b?q=1"), ("/x", "/a/b/x")] {
        let found = world.from("web-1", &format!("http://backend.mesh{path}"));
        let url = found.request.expect("a request").url;
        assert_eq!(url, format!("http://backend.mesh{wanted}"));
    }
    let redirect = "[{matches: [{path: {prefix: /}}], default: {filters: [{requestRedirect: {path: {replacePrefixMatch: /a/b}}}]}}]";
    let world = World::with(&route("r", "{kind: Mesh}", redirect));
    let found = world.from("web-1", "http://backend.mesh/");
    assert_eq!(
        found.response.expect("a response").headers["location"],
        "http://backend.mesh/a/b"
    );
}
