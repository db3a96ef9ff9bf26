//! `/config`: the routing tables in effect, as JSON. It contains the names of Secrets, but never a key.

use std::sync::Arc;

use pointsman_binding::bound::{
    Backend, BoundEndpoint, BoundMatch, Endpoints, Fault, Filter, Frontend, FrontendId,
    PathPredicate, SecretId, StringPredicate, Tags, Trust, ValuePredicate, WeightedBackend,
    policy_names,
};
use pointsman_proxy::placement::gateway_kind;
use pointsman_proxy::{SocketKey, SocketOwner, Sockets};
use pointsman_resources::ObjectKey;
use pointsman_routing::{FrontendTable, MatchEntry, Tables};
use serde_json::{Map, Value, json};

/// Renders routing tables and the sockets of the data plane.
pub fn render(version: u64, tables: &Tables, sockets: &Sockets) -> Value {
    let frontends = tables.frontends();
    let frontends: Vec<Value> = frontends.map(|table| frontend(table, sockets)).collect();
    let mut backends: Vec<_> = tables.backends().collect();
    backends.sort_by(|a, b| a.id.cmp(&b.id));
    let owners = sockets.owners.iter();
    let sockets: Vec<Value> = owners.map(|entry| socket(entry, sockets)).collect();
    let render_backend = |it: &Arc<Backend>| {
        let endpoints = tables.endpoints(&it.id);
        backend(it, endpoints.map(|endpoints| &**endpoints))
    };
    json!({
        "version": version,
        "sockets": sockets,
        "frontends": frontends,
        "backends": backends.into_iter().map(render_backend).collect::<Vec<_>>(),
    })
}

fn socket((key, owner): (&SocketKey, &SocketOwner), sockets: &Sockets) -> Value {
    let mut value = match owner {
        SocketOwner::Gateway { gateway, port } => json!({
            "kind": gateway_kind(gateway), "namespace": &*gateway.namespace, "name": &*gateway.name, "port": port,
        }),
        SocketOwner::Mesh { parent, port } => {
            let mut value = object(parent);
            value["port"] = json!(port);
            value
        }
        SocketOwner::Outbound(id) => object(id.parent()),
    };
    value["address"] = json!(key.address.to_string());
    value["transport"] = json!(key.transport.name());
    value["bound"] = json!(!sockets.unbound.contains_key(key));
    if let Some(reason) = sockets.unbound.get(key) {
        value["reason"] = json!(reason);
    }
    value
}

fn object(key: &ObjectKey) -> Value {
    json!({ "kind": key.kind.name(), "namespace": &**key.namespace(), "name": &*key.name.name })
}

fn frontend(table: &FrontendTable, sockets: &Sockets) -> Value {
    let frontend: &Frontend = table.frontend();
    let mut value = object(frontend.id.parent());
    match &frontend.id {
        FrontendId::Listener { listener, .. } => value["listener"] = json!(&**listener),
        FrontendId::Mesh { scope, .. } => value["clients"] = json!(scope.to_string()),
        FrontendId::Outbound(outbound) => value["clients"] = json!(outbound.dataplane.to_string()),
    }
    let owner = SocketOwner::of(frontend);
    value["port"] = json!(frontend.port);
    value["protocol"] = json!(frontend.protocol.name());
    let own = sockets.owners.iter().filter(|(_, known)| **known == owner);
    let addresses: Vec<String> = own.map(|(key, _)| key.address.to_string()).collect();
    value["addresses"] = json!(addresses);
    if let Some(hostname) = &frontend.hostname {
        value["hostname"] = json!(hostname.as_str());
    }
    if let Some(reason) = &frontend.closed {
        value["closed"] = json!(reason);
    }
    if let Some(tls) = &frontend.tls {
        let secrets: Vec<String> = tls.certificates.iter().map(secret_name).collect();
        value["certificates"] = json!(secrets);
        value["clientCertificates"] = json!(tls.clients.is_some());
    }
    value["hosts"] = hosts(&table.entries());
    value
}

/// Renders the rules of each hostname, in order of precedence.
fn hosts(entries: &[Arc<MatchEntry>]) -> Value {
    let mut hosts: Vec<(&str, Vec<Value>)> = Vec::new();
    for entry in entries {
        let name = entry.hostname.as_ref().map_or("*", |name| name.as_str());
        let value = rule(entry);
        match hosts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rules)) => rules.push(value),
            None => hosts.push((name, vec![value])),
        }
    }
    let value = |(hostname, rules)| json!({ "hostname": hostname, "rules": rules });
    hosts.into_iter().map(value).collect()
}

fn rule(entry: &MatchEntry) -> Value {
    let rule = &entry.rule;
    let (route, index) = entry.route.source(rule);
    let mut value = json!({ "route": object(route), "rule": index });
    if let Some(source) = rule.from.first() {
        value["to"] = json!(source.to);
        value["from"] = json!(policy_names(&rule.from));
    }
    if let Some(name) = &rule.name {
        value["name"] = json!(&**name);
    }
    if let Some(matched) = entry.matched() {
        value["match"] = match_value(matched);
    }
    if !rule.filters.is_empty() {
        value["filters"] = filters(&rule.filters);
    }
    let timeouts = [
        ("request", rule.request_timeout),
        ("backendRequest", rule.backend_timeout),
    ];
    let timeouts: Map<String, Value> = timeouts
        .into_iter()
        .filter_map(|(name, time)| Some((name.to_owned(), json!(format!("{:?}", time?)))))
        .collect();
    if !timeouts.is_empty() {
        value["timeouts"] = Value::Object(timeouts);
    }
    if let Some(retry) = &rule.retry {
        value["retry"] = json!({ "attempts": retry.attempts, "codes": retry.codes });
    }
    if let Some(reason) = &rule.fault {
        value["fault"] = fault(reason);
    }
    value["backends"] = rule.backends.iter().map(weighted).collect();
    value
}

fn match_value<P: AsRef<str>>(matched: &BoundMatch<P>) -> Value {
    let path = match &matched.path {
        PathPredicate::Exact(path) => Some(("Exact", &**path)),
        PathPredicate::Prefix(path) => Some(("PathPrefix", &**path)),
        PathPredicate::Regex(regex) => Some(("RegularExpression", regex.as_ref())),
        PathPredicate::Any => None,
    };
    let mut value = json!({ "index": matched.index });
    if let Some((kind, path)) = path {
        value["path"] = json!({ "type": kind, "value": path });
    }
    if let Some(method) = &matched.method {
        value["method"] = json!(&**method);
    }
    if let Some(grpc) = &matched.grpc {
        let part = |part: &Option<StringPredicate<P>>| part.as_ref().map(|p| p.as_str().to_owned());
        value["grpc"] = json!({ "service": part(&grpc.service), "method": part(&grpc.method) });
    }
    let values = |list: &[ValuePredicate<P>]| -> Value {
        let one = |wanted: &ValuePredicate<P>| {
            let kind = wanted.value.kind();
            json!({ "name": &*wanted.name, "type": kind, "value": wanted.value.as_str() })
        };
        list.iter().map(one).collect()
    };
    if !matched.headers.is_empty() {
        value["headers"] = values(&matched.headers);
    }
    if !matched.query.is_empty() {
        value["queryParams"] = values(&matched.query);
    }
    value
}

fn filters(filters: &[Filter]) -> Value {
    filters.iter().map(Filter::kind).collect()
}

fn fault(fault: &Fault) -> Value {
    json!({ "status": fault.status, "reason": fault.reason.as_str(), "message": fault.message })
}

fn weighted(backend: &WeightedBackend) -> Value {
    let name = &backend.reference;
    let mut value = json!({
        "kind": &*name.kind, "namespace": &*name.name.namespace, "name": &*name.name.name,
        "port": name.port, "weight": backend.weight,
    });
    tags(&mut value, &name.tags);
    if !backend.filters.is_empty() {
        value["filters"] = filters(&backend.filters);
    }
    if let Err(reason) = &backend.target {
        value["fault"] = fault(reason);
    }
    value
}

/// Adds the tags of a Kuma subset.
fn tags(value: &mut Value, tags: &Tags) {
    if !tags.is_empty() {
        let tags: Map<String, Value> = tags
            .iter()
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect();
        value["tags"] = Value::Object(tags);
    }
}

/// Returns the name of the object that contains a certificate.
fn secret_name(id: &SecretId) -> String {
    match id {
        SecretId::Object(name) | SecretId::ExternalService(name) => name.to_string(),
        SecretId::Listener { gateway, .. } => gateway.to_string(),
        SecretId::Mesh(mesh) => format!("of mesh {mesh}"),
    }
}

fn endpoint(endpoint: &BoundEndpoint) -> Value {
    let mut value =
        json!({ "address": endpoint.address.to_string(), "terminating": endpoint.terminating });
    if let Some(hints) = &endpoint.hints {
        value["hints"] = json!({ "nodes": hints.nodes, "zones": hints.zones });
    }
    value
}

fn backend(backend: &Backend, endpoints: Option<&Endpoints>) -> Value {
    let mut value = object(&backend.id.object);
    tags(&mut value, &backend.id.tags);
    value["port"] = json!(backend.id.port);
    value["transport"] = json!(backend.id.transport.name());
    value["protocol"] = json!(format!("{:?}", backend.protocol));
    match endpoints {
        None => {}
        Some(Endpoints::Dns(name, port)) => value["dns"] = json!(format!("{name}:{port}")),
        Some(Endpoints::Addresses(all)) => {
            value["endpoints"] = all.iter().map(endpoint).collect();
        }
    }
    match &backend.tls {
        None => {}
        Some(Err(reason)) => value["fault"] = fault(reason),
        Some(Ok(tls)) => {
            let trust = match &tls.trust {
                Trust::System => json!("System"),
                Trust::Authorities(all) => json!(all.len()),
            };
            value["tls"] = json!({ "hostname": &*tls.hostname, "authorities": trust });
        }
    }
    value
}
