//! Test support: binds manifests from strings, and formats the results as short lines.
#![allow(
    dead_code,
    missing_docs,
    unused_imports,
    reason = "each test binary uses a part of this"
)]

pub mod certificates;
pub mod kuma;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pointsman_binding::bound::{
    AddressRequest, Attachment, Backend, BackendId, BoundRoute, BoundRule, CertifiedKey, Endpoints,
    Fault, Frontend, FrontendId, RouteId, RouteMeta, RuleId, Scope, SecretId, ServiceAddresses,
    Workload,
};
use pointsman_binding::status::{Status, StatusBody};
use pointsman_binding::{Binder, Change, Delta};
use pointsman_resources::read::ManifestReader;
use pointsman_resources::{Kind, Name, ObjectKey, Resource};
pub use pointsman_test_support::manifests::{doc, document, service};

/// Base manifests: a managed GatewayClass, a Gateway `infra/edge` that allows routes of all namespaces, and Services.
pub const BASE: &str = concat!(
    pointsman_test_support::edge_gateway!(),
    r#"---
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
"#
);

/// Two Services in `shop` and one in `team`.
pub const MESH_SERVICES: &str = r#"
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.0.0.1, ports: [{name: http, port: 80}, {name: admin, port: 8080}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: web-v2, namespace: shop}, spec: {clusterIP: 10.0.0.2, ports: [{name: http, port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: other, namespace: team}, spec: {clusterIP: 10.0.0.3, ports: [{name: http, port: 80}]}}
"#;

pub fn read(yaml: &str) -> Vec<Resource> {
    let mut reader = ManifestReader::new();
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
    read(yaml).into_iter().map(Change::Put).collect()
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

/// Creates an EndpointSlice for a Service's port.
pub fn slice(service: &str, port: &str, number: u16, address: &str) -> String {
    let (namespace, name) = service.split_once('/').expect("namespace and name");
    format!(
        "\n---\n{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, metadata: {{namespace: {namespace}, name: {name}-{port}-{number}, labels: {{kubernetes.io/service-name: {name}}}}}, ports: [{{name: '{port}', port: {number}}}], endpoints: [{{addresses: [{address}]}}]}}"
    )
}

/// Binds two managed Gateways in `infra`, a route from `edge` to the Service `web`, and one from both to `api`.
pub fn two_gateways(documents: &str) -> Bound {
    let gateway = |name: &str| {
        doc(
            "Gateway",
            name,
            "{gatewayClassName: ours, listeners: [{name: http, port: 80, protocol: HTTP}]}",
        )
    };
    let ports = "{ports: [{name: tls, port: 443}, {name: plain, port: 80}]}";
    Bound::of(&format!(
        "{}{}{}{}{}{}{}{documents}",
        doc(
            "GatewayClass",
            "ours",
            "{controllerName: pointsman.io/controller}"
        ),
        gateway("infra/edge"),
        gateway("infra/inner"),
        service("infra/web", ports),
        service("infra/api", ports),
        doc(
            "HTTPRoute",
            "infra/a",
            "{parentRefs: [{name: edge}], rules: [{backendRefs: [{name: web, port: 443}, {name: web, port: 80}]}]}"
        ),
        doc(
            "HTTPRoute",
            "infra/b",
            "{parentRefs: [{name: edge}, {name: inner}], rules: [{backendRefs: [{name: api, port: 443}]}]}"
        ),
    ))
}

/// A binder with the sum of its deltas, which is the state of a proxy.
#[derive(Default)]
pub struct Bound {
    pub binder: Binder,
    pub frontends: BTreeMap<FrontendId, Arc<Frontend>>,
    pub routes: BTreeMap<RouteId, Arc<RouteMeta>>,
    pub rules: BTreeMap<RuleId, Arc<BoundRule>>,
    pub attached: BTreeSet<Attachment>,
    /// Routes of each frontend, with their rules.
    pub attachments: BTreeMap<(FrontendId, ObjectKey), BoundRoute>,
    pub backends: BTreeMap<BackendId, Arc<Backend>>,
    pub endpoints: BTreeMap<BackendId, Arc<Endpoints>>,
    pub secrets: BTreeMap<SecretId, Arc<CertifiedKey>>,
    pub gateways: BTreeMap<Name, Arc<AddressRequest>>,
    pub services: BTreeMap<ObjectKey, Arc<ServiceAddresses>>,
    pub workloads: BTreeMap<ObjectKey, Arc<Workload>>,
    pub statuses: BTreeMap<ObjectKey, Arc<Status>>,
}

impl std::ops::Deref for Bound {
    type Target = Binder;

    fn deref(&self) -> &Binder {
        &self.binder
    }
}

/// Encodes and decodes a delta. The result must equal the original, so every test of the bound form is also a test of its encoding.
fn decoded_copy(sent: Delta) -> Delta {
    let decoded = pointsman_wire::decode(&pointsman_wire::encode(&sent)).expect("a message");
    assert_eq!(decoded.rejected, []);
    let mut received = decoded.delta;
    // These are not sent.
    received.statuses = sent.statuses.clone();
    received.infrastructures = sent.infrastructures.clone();
    // Removals are sent after updates; a delta's items are independent of each other.
    let sorted = |delta: &Delta| {
        let mut lines: Vec<String> = format!("{delta:#?}").lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&received), sorted(&sent));
    for (id, secret) in &sent.secrets {
        let same = |(other, _): &&(SecretId, _)| other == id;
        let received = received.secrets.iter().find(same).expect("it was received");
        assert!(received.1 == *secret, "{id} differs");
    }
    received
}

impl Bound {
    pub fn of(yaml: &str) -> Bound {
        let mut bound = Bound::default();
        bound.apply(puts(yaml));
        bound
    }

    pub fn apply(&mut self, changes: impl IntoIterator<Item = Change>) -> Delta {
        let delta = decoded_copy(self.binder.apply(changes));
        apply_all(&mut self.frontends, &delta.frontends);
        apply_all(&mut self.routes, &delta.routes);
        apply_all(&mut self.rules, &delta.rules);
        for (attachment, attached) in &delta.attachments {
            match attached {
                true => assert!(self.attached.insert(attachment.clone()), "attached twice"),
                false => assert!(self.attached.remove(attachment), "was not attached"),
            }
        }
        self.assemble();
        apply_all(&mut self.backends, &delta.backends);
        apply_all(&mut self.endpoints, &delta.endpoints);
        apply_all(&mut self.secrets, &delta.secrets);
        apply_all(&mut self.gateways, &delta.gateways);
        apply_all(&mut self.services, &delta.services);
        apply_all(&mut self.workloads, &delta.workloads);
        apply_all(&mut self.statuses, &delta.statuses);
        delta
    }

    /// Updates `attachments` from routes, rules and attachments.
    fn assemble(&mut self) {
        self.attachments.clear();
        for Attachment { frontend, route } in &self.attached {
            let meta = self.routes.get(route).expect("an attached route is known");
            let rules = self.rules.iter().filter(|(id, _)| id.route == *route);
            let bound = BoundRoute {
                meta: meta.clone(),
                rules: rules.map(|(_, rule)| rule.clone()).collect(),
            };
            let key = (frontend.clone(), route.route.clone());
            assert!(self.attachments.insert(key, bound).is_none());
        }
    }

    /// Lists attachments: `shop/web:80 everyone HTTPRoute shop/r`, `infra/edge http HTTPRoute shop/r`.
    pub fn attached_routes(&self) -> Vec<String> {
        self.attachments
            .keys()
            .map(|(id, route)| format!("{} {route}", frontend_text(id)))
            .collect()
    }

    /// Lists the frontends that serve traffic: `shop/web:80 everyone`, `infra/edge http`.
    pub fn frontend_names(&self) -> Vec<String> {
        let serving = self.frontends.values().filter(|one| one.closed.is_none());
        serving
            .map(|frontend| frontend_text(&frontend.id))
            .collect()
    }

    /// Lists the listeners that reserve their hostname without serving traffic, with the reason: `infra/edge http: Secret infra/c does not exist`.
    pub fn closed(&self) -> Vec<String> {
        let closed = self.frontends.values();
        let closed = closed.filter_map(|one| Some((frontend_text(&one.id), one.closed.as_ref()?)));
        closed.map(|(name, why)| format!("{name}: {why}")).collect()
    }

    /// Lists the backends of a route's rules for each frontend: `shop/web:80 everyone #0: shop/web:80=1`.
    pub fn destinations(&self, route: &str) -> Vec<String> {
        let route = key(route);
        let mut lines = Vec::new();
        for ((id, _), bound) in self.attachments.iter().filter(|((_, r), _)| *r == route) {
            for rule in &bound.rules {
                let to: Vec<String> = match &rule.fault {
                    Some(fault) => vec![fault_text(fault)],
                    None => rule
                        .backends
                        .iter()
                        .map(|backend| match &backend.target {
                            Ok(id) => format!("{}:{}={}", id.object.name, id.port, backend.weight),
                            Err(fault) => format!("{}={}", fault_text(fault), backend.weight),
                        })
                        .collect(),
                };
                lines.push(format!(
                    "{} #{}: {}",
                    frontend_text(id),
                    rule.index,
                    to.join(" ")
                ));
            }
        }
        lines
    }

    /// Lists the endpoints of a Service's port.
    pub fn addresses(&self, service: &str, port: u16) -> Vec<String> {
        let (namespace, name) = service.split_once('/').expect("namespace and name");
        let mut all = Vec::new();
        for (id, endpoints) in &self.endpoints {
            let object = &id.object.name;
            if *object.namespace == *namespace && *object.name == *name && id.port == port {
                match &**endpoints {
                    Endpoints::Addresses(list) => {
                        all.extend(list.iter().map(|e| e.address.to_string()));
                    }
                    Endpoints::Dns(name, port) => all.push(format!("{name}:{port}")),
                }
            }
        }
        all
    }
}

fn fault_text(fault: &Fault) -> String {
    format!("{} {}", fault.status, fault.reason)
}

fn frontend_text(id: &FrontendId) -> String {
    match id {
        FrontendId::Listener {
            owner, listener, ..
        } => format!("{} {listener}", owner.name),
        FrontendId::Mesh {
            parent,
            port,
            scope,
            ..
        } => match scope {
            Scope::Everyone => format!("{}:{port} everyone", parent.name),
            Scope::Namespace(namespace) => format!("{}:{port} {namespace}", parent.name),
        },
        FrontendId::Outbound(outbound) => {
            format!("{} -> {}", outbound.dataplane.name, outbound.destination)
        }
    }
}

fn apply_all<K: Ord + Clone, V: Clone>(known: &mut BTreeMap<K, V>, changes: &[(K, Option<V>)]) {
    for (key, value) in changes {
        match value {
            Some(value) => known.insert(key.clone(), value.clone()),
            None => known.remove(key),
        };
    }
}

/// Returns the first Accepted condition of an object, as `True/Accepted`.
pub fn accepted(binder: &Binder, object: &str) -> String {
    condition(binder, object, "Accepted")
}

/// Returns the first condition of a type, as `True/Accepted`.
pub fn condition(binder: &Binder, object: &str, kind: &str) -> String {
    let prefix = format!("{kind}=");
    let conditions = conditions(binder, object);
    let found = conditions.iter().find_map(|line| {
        line.rsplit(": ")
            .next()
            .and_then(|line| line.strip_prefix(&prefix))
    });
    found.unwrap_or("not set").to_owned()
}

/// Parses a key such as `HTTPRoute shop/cart`.
pub fn key(text: &str) -> ObjectKey {
    let (kind, name) = text.split_once(' ').expect("kind and name");
    let kind = Kind::ALL
        .into_iter()
        .find(|k| k.name() == kind)
        .expect("a kind of ours");
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    ObjectKey::new(kind, namespace, name)
}

/// Lists the conditions of an object: `parent Gateway infra/edge: Accepted=True/Accepted`.
pub fn conditions(binder: &Binder, object: &str) -> Vec<String> {
    let Some(status) = binder.status(&key(object)) else {
        return Vec::new();
    };
    status
        .conditions()
        .into_iter()
        .map(|(place, c)| {
            let status = c.status;
            let place = if place.is_empty() {
                place
            } else {
                format!("{place}: ")
            };
            format!("{place}{}={status}/{}", c.kind, c.reason)
        })
        .collect()
}

/// Returns the message of the first condition of a type.
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

/// Joins the conditions of a route with one parent.
pub fn summary(binder: &Binder, route: &str) -> String {
    let conditions = conditions(binder, route);
    let conditions: Vec<&str> = conditions
        .iter()
        .filter_map(|line| line.rsplit(": ").next())
        .collect();
    conditions.join(" ")
}

/// Lists the supported route kinds of each listener: `http=HTTPRoute,GRPCRoute`.
pub fn supported(binder: &Binder, gateway: &str) -> Vec<String> {
    match binder.status(&key(gateway)).map(|s| &s.body) {
        Some(StatusBody::Gateway { listeners, .. }) => listeners
            .iter()
            .map(|l| {
                let kinds: Vec<&str> = l.supported_kinds.iter().map(|k| k.name()).collect();
                format!("{}={}", l.name, kinds.join(","))
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// Lists the conditions of one listener: `Accepted=True/Accepted`.
pub fn listener(binder: &Binder, gateway: &str, name: &str) -> Vec<String> {
    let prefix = format!("listener {name}: ");
    let all = conditions(binder, gateway);
    all.iter()
        .filter_map(|line| line.strip_prefix(&prefix).map(str::to_owned))
        .collect()
}

/// Lists the conditions of an object itself, without those of its listeners, parents or ancestors.
pub fn own_conditions(binder: &Binder, object: &str) -> Vec<String> {
    let all = conditions(binder, object);
    all.into_iter().filter(|l| !l.contains(": ")).collect()
}

/// Lists the number of attached routes of each listener: `http=2`.
pub fn attached(binder: &Binder, gateway: &str) -> Vec<String> {
    match binder.status(&key(gateway)).map(|s| &s.body) {
        Some(StatusBody::Gateway { listeners, .. }) => listeners
            .iter()
            .map(|l| format!("{}={}", l.name, l.attached_routes))
            .collect(),
        _ => Vec::new(),
    }
}

/// Lists the SNI of each port of a Service, or the fault of its TLS settings, or `plain`.
pub fn port_tls(bound: &Bound, name: &str) -> Vec<String> {
    let ours = bound
        .backends
        .values()
        .filter(|b| *b.id.object.name.name == *name);
    ours.map(|backend| match &backend.tls {
        None => format!("{} plain", backend.id.port),
        Some(Ok(tls)) => format!("{} {}", backend.id.port, tls.hostname),
        Some(Err(fault)) => format!("{} {} {}", backend.id.port, fault.status, fault.reason),
    })
    .collect()
}

/// Returns a managed GatewayClass, and a Gateway `infra/g` with these fields.
pub fn gateway_g(fields: &str) -> String {
    let class = doc(
        "GatewayClass",
        "ours",
        "{controllerName: pointsman.io/controller}",
    );
    class
        + &doc(
            "Gateway",
            "infra/g",
            &format!("{{gatewayClassName: ours, {fields}}}"),
        )
}
