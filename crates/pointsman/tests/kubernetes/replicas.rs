//! Several replicas of a controller.

use std::time::Duration;

use crate::support::{Lab, Process, backend, condition, eventually, http_get, now, parent};
use crate::traffic::address;

fn leads(controller: &Process) -> bool {
    controller.metric("pointsman_kubernetes_leader") == Some(1.0)
}

// "followers serve proxies too and take over within seconds"
#[test]
#[ignore = "needs a cluster"]
fn a_follower_serves_proxies_and_takes_over_within_seconds() {
    let lab = Lab::new("replicas");
    lab.gateway("edge", 80);
    lab.service("hello", backend("hello"));
    lab.route("hello", "edge", "hello.example");
    let mut first = lab.controller("first");
    eventually("it leads", || leads(&first).then_some(()));
    let mut second = lab.controller("second");
    assert!(!leads(&second));
    // The proxy knows the follower only.
    let token = lab.token(&lab.account("edge"), "pointsman");
    let proxy = lab.proxy("proxy", "edge", &token, &[&second]);
    let address = address(&proxy);
    let answers =
        |host: &str| http_get(address, host, "/").is_some_and(|(status, _)| status == 200);
    eventually("the route answers", || {
        answers("hello.example").then_some(())
    });
    assert_eq!(second.metric("pointsman_xds_proxies"), Some(1.0));
    let accepted = |name: &str| {
        let route = lab.get("httproute", name);
        let own = parent(&route, &lab.controller_name)?;
        (condition(own, "Accepted")? == ("True", "Accepted")).then_some(())
    };
    eventually("the leader writes", || accepted("hello"));
    let written = |controller: &Process| {
        controller.metric("pointsman_kubernetes_status_writes_total{result=\"written\"}")
    };
    assert_eq!(written(&second), Some(0.0));
    first.kill();
    let start = now();
    lab.service("later", backend("later"));
    lab.route("later", "edge", "later.example");
    eventually("the new leader writes", || accepted("later"));
    assert!(
        start.elapsed() < Duration::from_secs(12),
        "{:?}",
        start.elapsed()
    );
    eventually("the new route answers", || {
        answers("later.example").then_some(())
    });
    // A controller that shuts down releases the Lease, so that the others need not wait for its expiry.
    let third = lab.controller("third");
    second.stop();
    let start = now();
    eventually("the last one leads", || leads(&third).then_some(()));
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
    assert!(
        answers("hello.example"),
        "the proxy keeps its configuration"
    );
}

// "True when EVERY connected proxy that serves it runs this generation"
#[test]
#[ignore = "needs a cluster"]
fn proof_of_effect_covers_the_proxies_of_all_replicas() {
    let lab = Lab::new("exchange");
    lab.gateway("edge", 80);
    lab.service("hello", backend("hello"));
    lab.route("hello", "edge", "hello.example");
    let mut first = lab.replica("first");
    eventually("it leads", || leads(&first).then_some(()));
    let second = lab.replica("second");
    // The proxy knows the follower only.
    let token = lab.token(&lab.account("edge"), "pointsman");
    let _proxy = lab.proxy("proxy", "edge", &token, &[&second]);
    let in_effect = || {
        let route = lab.get("httproute", "hello");
        let own = parent(&route, &lab.controller_name)?;
        (condition(own, "pointsman.io/InEffect")? == ("True", "InEffect")).then_some(())
    };
    eventually("the leader writes that it is in effect", in_effect);
    for controller in [&first, &second] {
        let (_, page) = controller.page("/proxies").expect("an answer");
        assert!(page.contains("\"controller\":\"second\""), "{page}");
        let target = format!("/conditions?kind=HTTPRoute&namespace={}", lab.namespace);
        let (status, page) = controller.page(&target).expect("an answer");
        assert_eq!(status, 200);
        assert!(page.contains("pointsman.io/InEffect"), "{page}");
    }
    // The new leader has a proxy of its own, and nothing to wait for.
    first.stop();
    eventually("the follower takes over", || leads(&second).then_some(()));
    in_effect().expect("nothing has changed");
}

// "Several installations coexist: controller name, class name"
#[test]
#[ignore = "needs a cluster"]
fn two_installations_write_their_own_entries_and_then_nothing() {
    let (one, other) = (Lab::new("one"), Lab::new("other"));
    one.gateway("edge", 80);
    let class = &other.namespace;
    one.apply(&format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {{name: theirs}},
          spec: {{gatewayClassName: {class}, listeners: [{{name: http, port: 80, protocol: HTTP}}]}}}}
---
{{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {{name: both}},
  spec: {{parentRefs: [{{name: edge}}, {{name: theirs}}], rules: [{{}}]}}}}"
    ));
    let controllers = [one.controller("one"), other.controller("other")];
    eventually("both have an entry", || {
        let route = one.get("httproute", "both");
        parent(&route, &one.controller_name)?;
        parent(&route, &other.controller_name).map(drop)
    });
    let version = || one.get("httproute", "both")["metadata"]["resourceVersion"].clone();
    let before = version();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(version(), before, "writes have stopped");
    let theirs = one.get("gateway", "theirs");
    assert_ne!(theirs["status"]["listeners"], serde_json::Value::Null);
    drop(controllers);
}
