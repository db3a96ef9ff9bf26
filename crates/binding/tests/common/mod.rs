//! What the tests of binding share: a folder of manifests as a string, and what is said of it as short lines.
#![allow(
    dead_code,
    missing_docs,
    reason = "each test binary uses a part of this"
)]

use pointsman_binding::status::StatusBody;
use pointsman_binding::{Binder, Change};
use pointsman_resources::read::Reader;
use pointsman_resources::{Kind, ObjectKey, Resource};

/// What most tests stand on: our class, a Gateway `edge` in `infra` for all namespaces, Services with endpoints.
pub const BASE: &str = r#"
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: pointsman}
spec: {controllerName: pointsman.io/controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: infra}
spec:
  gatewayClassName: pointsman
  listeners:
  - {name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: web-v2, namespace: shop}
spec: {clusterIP: 10.0.0.2, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: other, namespace: team}
spec: {clusterIP: 10.0.0.3, ports: [{name: http, port: 80}]}
"#;

pub fn read(yaml: &str) -> Vec<Resource> {
    let mut reader = Reader::new();
    reader.read("test.yaml", yaml.as_bytes());
    let input = reader.finish();
    let errors: Vec<String> = input
        .findings
        .iter()
        .filter(|f| f.severity == pointsman_resources::Severity::Error)
        .map(ToString::to_string)
        .collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    input.documents.into_iter().map(|d| d.resource).collect()
}

pub fn puts(yaml: &str) -> Vec<Change> {
    read(yaml)
        .into_iter()
        .map(|r| Change::Put(Box::new(r)))
        .collect()
}

pub fn bind(yaml: &str) -> Binder {
    let mut binder = Binder::new();
    binder.apply(puts(yaml));
    binder
}

/// Binds `yaml` on top of [`BASE`].
pub fn bind_on_base(yaml: &str) -> Binder {
    bind(&format!("{BASE}\n---\n{yaml}"))
}

/// `HTTPRoute shop/cart` as a key.
pub fn key(text: &str) -> ObjectKey {
    let (kind, name) = text.split_once(' ').expect("kind and name");
    let kind = Kind::ALL
        .into_iter()
        .find(|k| k.name() == kind)
        .expect("a kind of ours");
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    ObjectKey::new(kind, namespace, name)
}

/// What is said of an object, a line for each condition: `parent Gateway infra/edge: Accepted=True/Accepted`.
pub fn said(binder: &Binder, object: &str) -> Vec<String> {
    let Some(status) = binder.status(&key(object)) else {
        return Vec::new();
    };
    status
        .conditions()
        .into_iter()
        .map(|(place, c)| {
            let status = if c.status { "True" } else { "False" };
            let place = if place.is_empty() {
                place
            } else {
                format!("{place}: ")
            };
            format!("{place}{}={status}/{}", c.kind, c.reason)
        })
        .collect()
}

/// The message of an object's first condition of this type.
pub fn message(binder: &Binder, object: &str, condition: &str) -> String {
    let status = binder.status(&key(object)).expect("a status");
    let found = status
        .conditions()
        .into_iter()
        .find(|(_, c)| c.kind == condition);
    found
        .map(|(_, c)| c.message.to_string())
        .unwrap_or_default()
}

/// `status=reason` of a route's first parent's Accepted and ResolvedRefs.
pub fn verdict(binder: &Binder, route: &str) -> String {
    let said = said(binder, route);
    let conditions: Vec<&str> = said
        .iter()
        .filter_map(|line| line.rsplit(": ").next())
        .collect();
    conditions.join(" ")
}

/// How many routes are attached to each listener: `http=2`.
pub fn attached(binder: &Binder, gateway: &str) -> Vec<String> {
    match binder.status(&key(gateway)).map(|s| &s.body) {
        Some(StatusBody::Gateway { listeners, .. }) => listeners
            .iter()
            .map(|l| format!("{}={}", l.name, l.attached_routes))
            .collect(),
        _ => Vec::new(),
    }
}
