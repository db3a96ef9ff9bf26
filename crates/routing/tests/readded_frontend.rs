//! A frontend that is removed and added again has its routes, although its deltas do not repeat them.

use std::sync::Arc;

use pointsman_binding::{Binder, Change};
use pointsman_resources::read::ManifestReader;
use pointsman_resources::{Kind, Name, ObjectKey};
use pointsman_routing::Tables;

const WORLD: &str = r#"
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
  addresses: [{type: ADDRESS, value: edge.example}]
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r, namespace: infra}
spec: {parentRefs: [{name: edge}]}
"#;

fn changes(yaml: &str) -> Vec<Change> {
    let mut reader = ManifestReader::new();
    reader.read("test", yaml.as_bytes());
    let documents = reader.finish().documents;
    documents
        .into_iter()
        .map(|document| Change::Put(document.resource))
        .collect()
}

#[test]
fn a_listener_that_starts_to_serve_late_has_its_routes() {
    let silent = WORLD.replace("ADDRESS", "Hostname");
    let serving = WORLD.replace(
        "addresses: [{type: ADDRESS, value: edge.example}]",
        "addresses: []",
    );
    let (mut binder, mut tables) = (Binder::new(), Tables::default());
    let edge = Name::new("infra", "edge");
    let routes = |tables: &Tables| {
        let table: Option<&Arc<_>> = tables.listener(&edge, 80, Some("a.example"));
        table.map(|table| table.routes().count())
    };
    tables.apply(&binder.apply(changes(&silent)));
    assert_eq!(routes(&tables), None);
    tables.apply(&binder.apply(changes(&serving)));
    assert_eq!(routes(&tables), Some(1));
    tables.apply(&binder.apply(changes(&silent)));
    assert_eq!(routes(&tables), None);
    tables.apply(&binder.apply([Change::Delete(ObjectKey::new(
        Kind::HTTPRoute,
        "infra",
        "r",
    ))]));
    let gateway: Vec<Change> = changes(&serving).into_iter().take(2).collect();
    tables.apply(&binder.apply(gateway));
    assert_eq!(routes(&tables), Some(0));
}
