//! Kuma's policies, from their manifests to requests, by the sentences of MADR 011 and MADR 045.

mod external;
mod gateways;
mod kubernetes;
mod labels;
mod merging;
mod order;
mod rules;
mod warnings;

use pointsman_binding::{Binder, Change};
use pointsman_resources::read::ManifestReader;
use pointsman_resources::{Kind, Name, ObjectKey};
use pointsman_routing::Tables;
use pointsman_routing::explain::{Directory, Explanation, Outcome, Query, ReplyStatus, explain};

/// A mesh with `web` and `other`, which call `backend` (HTTP, v1 and v2) and `db` (TCP), and a gateway `edge`.
const MESH: &str = r#"
{type: Mesh, name: default}
---
{type: Dataplane, mesh: default, name: web-1, networking: {address: 10.0.0.11, inbound: [{port: 8080, tags: {kuma.io/service: frontend, kuma.io/protocol: http, team: a}}], outbound: [{port: 10001, tags: {kuma.io/service: backend}}, {port: 10002, tags: {kuma.io/service: db}}]}}
---
{type: Dataplane, mesh: default, name: other-1, labels: {team: b}, networking: {address: 10.0.0.12, inbound: [{port: 8080, tags: {kuma.io/service: other, kuma.io/protocol: http}}], outbound: [{port: 10001, tags: {kuma.io/service: backend}}]}}
---
{type: Dataplane, mesh: default, name: backend-v1, networking: {address: 10.0.1.1, inbound: [{port: 3001, tags: {kuma.io/service: backend, kuma.io/protocol: http, version: v1}}]}}
---
{type: Dataplane, mesh: default, name: backend-v2, networking: {address: 10.0.1.2, inbound: [{port: 3001, tags: {kuma.io/service: backend, kuma.io/protocol: http, version: v2}}]}}
---
{type: Dataplane, mesh: default, name: db-1, networking: {address: 10.0.2.1, inbound: [{port: 5432, tags: {kuma.io/service: db, kuma.io/protocol: tcp}}]}}
---
{type: Dataplane, mesh: default, name: db-2, networking: {address: 10.0.2.2, inbound: [{port: 5432, tags: {kuma.io/service: db2, kuma.io/protocol: tcp}}]}}
---
{type: Dataplane, mesh: default, name: edge-1, networking: {address: 10.0.0.10, gateway: {type: BUILTIN, tags: {kuma.io/service: edge-gateway}}}}
---
{type: MeshGateway, mesh: default, name: edge-gateway, selectors: [{match: {kuma.io/service: edge-gateway}}], conf: {listeners: [{port: 8080, protocol: HTTP, tags: {port: http-8080}}, {port: 9000, protocol: TCP}]}}
"#;

struct World {
    binder: Binder,
    tables: Tables,
}

fn documents(yaml: &str) -> Vec<Change> {
    let mut reader = ManifestReader::new();
    reader.read("test.yaml", yaml.as_bytes());
    let input = reader.finish();
    let errors: Vec<String> = input.findings.iter().map(ToString::to_string).collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    let documents = input.documents.into_iter();
    documents.map(|d| Change::Put(d.resource)).collect()
}

impl World {
    fn of(yaml: &str) -> World {
        let mut world = World {
            binder: Binder::new(),
            tables: Tables::default(),
        };
        world.apply(documents(yaml));
        world
    }

    /// The mesh above with further documents.
    fn with(yaml: &str) -> World {
        World::of(&format!("{MESH}\n---\n{yaml}"))
    }

    fn apply(&mut self, changes: impl IntoIterator<Item = Change>) {
        let delta = self.binder.apply(changes);
        // A decoded copy behaves exactly as the original.
        let copy = pointsman_wire::decode(&pointsman_wire::encode(&delta)).expect("a message");
        assert!(copy.rejected.is_empty(), "{:?}", copy.rejected);
        self.tables.apply(&copy.delta);
    }

    fn ask(&self, query: &Query) -> Explanation {
        explain(&self.tables, &Directory::default(), query, |_| Vec::new())
    }

    /// Explains a call of a Dataplane in the mesh `default`.
    fn from(&self, dataplane: &str, url: &str) -> Explanation {
        self.ask(&query(dataplane, url))
    }

    /// Explains a request to the gateway.
    fn edge(&self, url: &str) -> Explanation {
        let mut query = Query::new(url).expect("a URL");
        query.gateway = Some((Name::new("mesh:default", "edge-gateway"), None));
        self.ask(&query)
    }

    fn conditions(&self, kind: Kind, name: &str) -> Vec<String> {
        let namespace = if name.contains('/') {
            ""
        } else {
            "mesh:default/"
        };
        let name = format!("{namespace}{name}");
        let (namespace, name) = name.split_once('/').expect("two parts");
        let status = self.binder.status(&ObjectKey::new(kind, namespace, name));
        let status = status.expect("a status");
        let text = |condition: &pointsman_binding::status::Condition| {
            format!(
                "{}={}/{}: {}",
                condition.kind,
                condition.is_true(),
                condition.reason,
                condition.message
            )
        };
        status.conditions().iter().map(|(_, c)| text(c)).collect()
    }
}

fn query(dataplane: &str, url: &str) -> Query {
    let mut query = Query::new(url).expect("a URL");
    query.dataplane = Some(ObjectKey::new(Kind::Dataplane, "mesh:default", dataplane));
    query
}

/// Formats the backends of a request with their shares in percent (`backend[version=v1] 100`), or the local reply.
fn fate(explanation: &Explanation) -> String {
    let shares: Vec<String> = explanation
        .backends
        .iter()
        .map(|backend| {
            let tags: Vec<String> = backend
                .tags
                .iter()
                .map(|(k, v)| format!("{k}={v}"))
                .collect();
            let tags = match tags.is_empty() {
                true => String::new(),
                false => format!("[{}]", tags.join(",")),
            };
            let status = match &backend.status {
                Some(ReplyStatus::Http(status)) => format!(" ({status})"),
                Some(ReplyStatus::Reset) => " (reset)".to_owned(),
                None => String::new(),
            };
            format!(
                "{}{tags} {}{status}",
                backend.name,
                (backend.share * 100.0).round()
            )
        })
        .collect();
    match (explanation.outcome, &explanation.status) {
        (Outcome::Forward, _) => shares.join(", "),
        (_, Some(ReplyStatus::Http(status))) => status.to_string(),
        (outcome, _) => format!("{outcome:?}: {}", explanation.why),
    }
}

fn policies(explanation: &Explanation) -> Vec<String> {
    let rule = explanation.rule.as_ref();
    rule.map(|rule| rule.from.clone()).unwrap_or_default()
}

/// A MeshHTTPRoute for calls to `backend`.
fn route(name: &str, target: &str, rules: &str) -> String {
    format!(
        "\n---\n{{type: MeshHTTPRoute, mesh: default, name: {name}, spec: {{targetRef: {target}, to: [{{targetRef: {{kind: MeshService, name: backend}}, rules: {rules}}}]}}}}"
    )
}
