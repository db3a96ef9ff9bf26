//! Compares responses with those of Envoy for the same routes and requests, as far as both support the same features. Runs if `ENVOY` names an Envoy binary
//! (`scripts/differential`).

use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::support::backend::{Backend, RecordedRequest};
use crate::support::eventually;
use crate::support::gateway::{Address, Gateway};
use crate::support::generated::{Rng, RuleAction, Route, Rule, request, routes};
use crate::support::http1::Http1;
use crate::support::manifests::*;

/// A running Envoy, which is stopped on drop.
struct Envoy(Child);

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sort key for the Gateway API's order of precedence within a hostname. All routes have the same age.
fn rank(route: &Route, at: usize) -> impl Ord + use<> {
    let rule = &route.rules[at];
    let most = |count: usize| usize::MAX - count;
    (
        !rule.exact,
        most(rule.path.len()),
        rule.method.is_none(),
        most(rule.headers.len()),
        most(rule.query.len()),
        route.name.clone(),
        at,
    )
}

/// Returns the rules of a hostname as Envoy routes, in order of precedence.
fn of_host(routes: &[Route], hostname: Option<&str>) -> Vec<Value> {
    let mut all: Vec<(&Route, usize)> = Vec::new();
    for route in routes.iter().filter(|route| route.hostname == hostname) {
        all.extend((0..route.rules.len()).map(|at| (route, at)));
    }
    all.sort_by_key(|(route, at)| rank(route, *at));
    all.iter()
        .map(|(route, at)| as_envoy(&route.rules[*at], &route.tag(*at)))
        .collect()
}

fn as_envoy(rule: &Rule, tag: &str) -> Value {
    let exact = |name: &str, value: &str| json!({"name": name, "string_match": {"exact": value}});
    let path = match (rule.exact, rule.path) {
        (true, path) => json!({"path": path}),
        (false, "/") => json!({"prefix": "/"}),
        (false, path) => json!({"path_separated_prefix": path}),
    };
    let mut headers: Vec<Value> = rule
        .headers
        .iter()
        .map(|(name, value)| exact(name, value))
        .collect();
    headers.extend(rule.method.map(|method| exact(":method", method)));
    let query: Vec<Value> = rule
        .query
        .iter()
        .map(|(name, value)| exact(name, value))
        .collect();
    let mut matches = path;
    matches["headers"] = headers.into();
    matches["query_parameters"] = query.into();
    let set = |name: &str, value: &str| json!([{"header": {"key": name, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}]);
    let mut made = json!({"match": matches, "response_headers_to_add": set("x-rule", tag)});
    match rule.does {
        RuleAction::Redirect => {
            made["redirect"] = json!({"https_redirect": true, "host_redirect": "moved.example", "response_code": "MOVED_PERMANENTLY"});
        }
        RuleAction::Rewrite => made["route"] = json!({"cluster": "web", "prefix_rewrite": "/new"}),
        RuleAction::Edit => {
            made["route"] = json!({"cluster": "web"});
            made["request_headers_to_add"] = set("x-one", "edited");
            made["request_headers_to_remove"] = json!(["x-two"]);
        }
        RuleAction::Forward => made["route"] = json!({"cluster": "web"}),
    }
    made
}

/// Returns a virtual host for each hostname. It also contains the rules of less specific hostnames, which Envoy would not evaluate otherwise.
fn virtual_hosts(routes: &[Route]) -> Vec<Value> {
    let mut names: Vec<&str> = routes.iter().filter_map(|route| route.hostname).collect();
    names.sort_unstable();
    names.dedup();
    let covers = |wide: &str, narrow: &str| {
        wide.strip_prefix('*').is_some_and(|suffix| {
            wide != narrow && narrow.trim_start_matches('*').ends_with(suffix)
        })
    };
    let mut hosts = Vec::new();
    for name in &names {
        let mut wider: Vec<&str> = names
            .iter()
            .copied()
            .filter(|wide| covers(wide, name))
            .collect();
        wider.sort_by_key(|wide| std::cmp::Reverse(wide.len()));
        let mut all = of_host(routes, Some(name));
        for wide in wider {
            all.extend(of_host(routes, Some(wide)));
        }
        all.extend(of_host(routes, None));
        hosts.push(json!({"name": name, "domains": [name], "routes": all}));
    }
    hosts.push(json!({"name": "any", "domains": ["*"], "routes": of_host(routes, None)}));
    hosts
}

fn config(address: &Address, backend: &Backend, routes: &[Route]) -> Value {
    let at = |address: std::net::SocketAddr| json!({"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}});
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "http", "normalize_path": true, "generate_request_id": false,
        "route_config": {"virtual_hosts": virtual_hosts(routes)},
        "http_filters": [{"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
    });
    json!({"static_resources": {
        "listeners": [{"name": "http", "address": at((address.ip, 8080).into()), "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}]}],
        "clusters": [{"name": "web", "type": "STATIC", "connect_timeout": "5s", "load_assignment": {
            "cluster_name": "web", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": at(backend.address)}}]}]}}],
    }})
}

fn same(ours: &RecordedRequest, theirs: &RecordedRequest, about: &str) {
    let relevant = |saw: &RecordedRequest| {
        let field = |name: &str| saw.header(name).map(str::to_owned);
        (
            saw.method.clone(),
            saw.host.clone(),
            saw.target.clone(),
            field("x-one"),
            field("x-two"),
        )
    };
    assert_eq!(relevant(ours), relevant(theirs), "{about}");
}

#[tokio::test]
async fn differential_envoy_and_pointsman_give_the_same_responses() {
    let Ok(binary) = std::env::var("ENVOY") else {
        println!("ENVOY names no binary: nothing is compared");
        return;
    };
    let backend = Backend::http1("web").await;
    let (mut seen, mut asked) = (0, 0);
    for seed in 100..120 {
        let mut dice = Rng::new(seed);
        let routes = routes(&mut dice, 12);
        let manifests: String = routes.iter().map(Route::manifest).collect();
        let gateway = Gateway::of(&(plain() + &service("web", &[&backend]) + &manifests)).await;
        let address = Address::new();
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("envoy.json");
        std::fs::write(&file, config(&address, &backend, &routes).to_string()).expect("written");
        let mut envoy = Command::new(&binary);
        envoy.arg("-c").arg(&file).args([
            "--concurrency",
            "1",
            "--disable-hot-restart",
            "-l",
            "error",
        ]);
        let _envoy = Envoy(envoy.stdin(Stdio::null()).spawn().expect("Envoy runs"));
        let theirs = (address.ip, 8080).into();
        eventually("Envoy listens", || async {
            Http1::try_connect(theirs).await.is_ok()
        })
        .await;
        let mut clients = [
            Http1::connect(gateway.at(8080)).await,
            Http1::connect(theirs).await,
        ];
        for _ in 0..100 {
            let ask = request(&mut dice);
            let ours = clients[0].ask(&ask).await;
            let theirs = clients[1].ask(&ask).await;
            let about = format!("seed {seed}, {ask:?}\nPointsman {ours:?}\nEnvoy {theirs:?}");
            assert_eq!(ours.status, theirs.status, "{about}");
            assert_eq!(
                ours.header("location"),
                theirs.header("location"),
                "{about}"
            );
            assert_eq!(ours.backend(), theirs.backend(), "{about}");
            asked += 1;
            if ours.backend().is_some() {
                assert_eq!(ours.header("x-rule"), theirs.header("x-rule"), "{about}");
                let saw = backend.saw(seen + 2).await;
                same(&saw[seen], &saw[seen + 1], &about);
                seen += 2;
            }
        }
    }
    println!(
        "{asked} requests, {} of them forwarded: the same answers",
        seen / 2
    );
}
