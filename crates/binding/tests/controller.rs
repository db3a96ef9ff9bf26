//! Several installations in one cluster, each with its own GatewayClasses and status entries.

mod common;

use std::sync::Arc;

use common::{doc, puts};
use pointsman_binding::status::StatusBody;
use pointsman_binding::{Binder, Change, Controller};
use pointsman_resources::{Kind, ObjectKey};

fn manifests() -> String {
    let class = |name: &str, controller: &str| {
        format!(
            "{{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {{name: {name}}}, spec: {{controllerName: {controller}}}}}\n---\n"
        )
    };
    let gateway = |name: &str, class: &str| {
        let spec = format!(
            "{{gatewayClassName: {class}, listeners: [{{name: http, port: 80, protocol: HTTP}}]}}"
        );
        doc("Gateway", &format!("shop/{name}"), &spec)
    };
    [
        class("first", "example.com/one"),
        class("second", "example.com/one"),
        class("other", "example.com/other"),
        gateway("a", "first"),
        gateway("b", "second"),
        gateway("c", "other"),
        doc(
            "HTTPRoute",
            "shop/r",
            "{parentRefs: [{name: a}, {name: c}], rules: [{}]}",
        ),
    ]
    .concat()
}

/// Returns the Gateways that have a status, and the number of parents in the status of the route.
fn served(binder: &Binder) -> (Vec<&'static str>, usize) {
    let status = |kind, namespace: &str, name: &str| {
        let status = binder.status(&ObjectKey::new(kind, namespace, name));
        status.cloned()
    };
    let gateways = ["a", "b", "c"]
        .into_iter()
        .filter(|name| status(Kind::Gateway, "shop", name).is_some());
    let route = status(Kind::HTTPRoute, "shop", "r").expect("a status");
    let StatusBody::Route(parents) = &route.body else {
        panic!("it is a route");
    };
    (gateways.collect(), parents.len())
}

fn controller(name: &str, class: Option<&str>) -> Change {
    Change::Controller(Arc::new(Controller {
        name: name.into(),
        class: class.map(Into::into),
        generates_proxies: false,
        check_limit: Default::default(),
    }))
}

#[test]
fn an_installation_serves_the_classes_of_its_controller_name() {
    let mut binder = Binder::new();
    binder.apply(puts(&manifests()));
    assert_eq!(served(&binder), (vec![], 0));
    binder.apply([controller("example.com/one", None)]);
    assert_eq!(served(&binder), (vec!["a", "b"], 1));
    binder.apply([controller("example.com/other", None)]);
    assert_eq!(served(&binder), (vec!["c"], 1));
}

#[test]
fn an_installation_can_be_limited_to_one_class() {
    let mut binder = Binder::new();
    binder.apply(puts(&manifests()));
    binder.apply([controller("example.com/one", Some("second"))]);
    assert_eq!(served(&binder), (vec!["b"], 0));
    let class = |name| binder.status(&ObjectKey::new(Kind::GatewayClass, "", name));
    assert!(class("second").is_some() && class("first").is_none());
}

#[test]
fn status_entries_contain_the_controller_name() {
    let mut binder = Binder::new();
    binder.apply([controller("example.com/one", None)]);
    binder.apply(puts(&manifests()));
    let status = binder.status(&ObjectKey::new(Kind::HTTPRoute, "shop", "r"));
    let merged = status.expect("a status").merge("shop", None, "T");
    assert_eq!(merged["parents"][0]["controllerName"], "example.com/one");
}
