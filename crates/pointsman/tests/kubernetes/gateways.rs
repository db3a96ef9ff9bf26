//! Gateways whose proxies run in Pods. The tests need an image of this version on the nodes, whose name is in POINTSMAN_IMAGE; without it they do nothing.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::support::{Lab, backend, condition, eventually, http_get, kubectl};

fn image() -> Option<String> {
    let image = std::env::var("POINTSMAN_IMAGE").ok();
    if image.is_none() {
        let thread = std::thread::current();
        let test = thread.name().unwrap_or_default();
        // The harness does not show what `eprintln` prints in tests that pass.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED {test}: POINTSMAN_IMAGE is not set"
        );
    }
    image
}

/// Address of a Gateway, once it is programmed.
fn address(lab: &Lab, gateway: &str, port: u16) -> SocketAddr {
    eventually("the Gateway is programmed", || {
        let gateway = lab.get("gateway", gateway);
        let status = &gateway["status"];
        let address = status["addresses"][0]["value"].as_str()?.parse().ok()?;
        let is_programmed = condition(status, "Programmed") == Some(("True", "Programmed"));
        is_programmed.then(|| SocketAddr::new(address, port))
    })
}

fn answers(address: SocketAddr, host: &str, expected: &str) {
    eventually("the route answers", || {
        let (status, body) = http_get(address, host, "/")?;
        (status == 200 && body == expected).then_some(())
    });
}

// "Rolling a Gateway's proxies loses no request"
#[test]
#[ignore = "needs a cluster"]
fn rolling_the_proxies_of_a_gateway_loses_no_request() {
    let Some(image) = image() else { return };
    let lab = Lab::new("rolling");
    lab.gateway_alone("edge", 80);
    lab.service("hello", backend("hello"));
    lab.route("hello", "edge", "hello.example");
    let _controller = lab.generating_controller("one", &image);
    let address = address(&lab, "edge", 80);
    answers(address, "hello.example", "hello");
    let (stop, sent, lost) = (
        AtomicBool::new(false),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let answer = http_get(address, "hello.example", "/");
                    sent.fetch_add(1, Ordering::Relaxed);
                    if answer != Some((200, "hello".to_owned())) {
                        lost.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let deployment = format!("deployment/{}", lab.account("edge"));
        let namespace = lab.namespace.as_str();
        kubectl(&["rollout", "restart", &deployment, "-n", namespace], "");
        let status = [
            "rollout",
            "status",
            &deployment,
            "-n",
            namespace,
            "--timeout=120s",
        ];
        kubectl(&status, "");
        // The old ones end.
        eventually("two proxies are left", || {
            let pods = ["get", "pods", "-n", namespace, "--no-headers"];
            (kubectl(&pods, "").lines().count() == 2).then_some(())
        });
        stop.store(true, Ordering::Relaxed);
    });
    let (sent, lost) = (sent.into_inner(), lost.into_inner());
    assert!(sent > 100, "{sent} requests");
    assert_eq!(lost, 0, "of {sent} requests");
}

// "A proxy receives only its own Gateway's resources"
#[test]
#[ignore = "needs a cluster"]
fn two_gateways_have_addresses_and_routes_of_their_own() {
    let Some(image) = image() else { return };
    let lab = Lab::new("isolated");
    for (gateway, route) in [("a", "left"), ("b", "right")] {
        lab.gateway_alone(gateway, 80);
        lab.service(route, backend(route));
        lab.route(route, gateway, &format!("{route}.example"));
    }
    let _controller = lab.generating_controller("one", &image);
    let (a, b) = (address(&lab, "a", 80), address(&lab, "b", 80));
    assert_ne!(a, b);
    answers(a, "left.example", "left");
    answers(b, "right.example", "right");
    let status = |address, host| http_get(address, host, "/").map(|(status, _)| status);
    assert_eq!(status(a, "right.example"), Some(404));
    assert_eq!(status(b, "left.example"), Some(404));
}
