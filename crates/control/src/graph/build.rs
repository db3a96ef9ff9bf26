//! Builds the graph: refusals come from statuses, routes in effect from tables.

use std::collections::{BTreeMap, BTreeSet};

use pointsman_binding::Binder;
use pointsman_binding::bound::{
    BackendId, BoundRoute, BoundRule, Endpoints, Filter, Frontend, FrontendId, Scope,
    WeightedBackend, policy_names,
};
use pointsman_binding::status::{Condition, Status, StatusBody};
use pointsman_resources::refs::ParentReference;
use pointsman_resources::{ObjectKey, Resource};
use pointsman_routing::Tables;

use super::{Edge, Graph, Layer, Node};

/// Returns the graph of everything that is bound or refused.
pub fn graph(binder: &Binder, tables: &Tables) -> Graph {
    let mut builder = Builder {
        tables,
        nodes: BTreeMap::new(),
        edges: BTreeMap::new(),
    };
    let mut objects: Vec<(ObjectKey, &Resource)> = binder.objects().collect();
    objects.sort_by(|a, b| a.0.cmp(&b.0));
    for (key, _) in &objects {
        if let Some(status) = binder.status(key) {
            builder.add_listeners(key, status);
        }
    }
    for table in tables.frontends() {
        let frontend = builder.add_frontend(table.frontend());
        for route in table.routes() {
            builder.add_route(&frontend, route);
        }
    }
    for (key, resource) in &objects {
        if let Resource::Route(route) = resource {
            let status = binder.status(key);
            builder.add_refusals(key, &route.spec.parent_refs, status.map(AsRef::as_ref));
        }
    }
    builder.finish()
}

struct Builder<'t> {
    tables: &'t Tables,
    nodes: BTreeMap<(Layer, String), Node>,
    edges: BTreeMap<(String, String, Option<String>), BTreeSet<String>>,
}

impl Builder<'_> {
    fn finish(self) -> Graph {
        let edges = self.edges.into_iter();
        let edges = edges.map(|((from, to, problem), labels)| Edge {
            from,
            to,
            label: labels.into_iter().collect::<Vec<_>>().join("; "),
            problem,
        });
        Graph {
            nodes: self.nodes.into_values().collect(),
            edges: edges.collect(),
        }
    }

    fn node(&mut self, layer: Layer, id: String, key: &ObjectKey, title: String) -> &mut Node {
        let node = self.nodes.entry((layer, id.clone()));
        node.or_insert_with(|| Node {
            id,
            layer,
            namespace: key.namespace().to_string(),
            name: key.name.name.to_string(),
            title,
            details: Vec::new(),
            problems: Vec::new(),
        })
    }

    fn edge(&mut self, from: &str, to: &str, label: String, problem: Option<String>) {
        let labels = self.edges.entry((from.to_owned(), to.to_owned(), problem));
        labels
            .or_default()
            .extend(Some(label).filter(|label| !label.is_empty()));
    }

    /// Adds a parent. Its id differs from that of a backend, because a Service may be both.
    fn add_parent(&mut self, key: &ObjectKey) -> String {
        let id = id_of(key);
        self.node(Layer::Parent, id.clone(), key, key.to_string());
        id
    }

    /// Adds a Gateway or ListenerSet with its listeners, also those that do not work.
    fn add_listeners(&mut self, key: &ObjectKey, status: &Status) {
        let StatusBody::Gateway {
            conditions,
            listeners,
            ..
        } = &status.body
        else {
            return;
        };
        let parent = self.add_parent(key);
        let problems = problems(conditions);
        self.node(Layer::Parent, parent.clone(), key, String::new())
            .problems = problems;
        for listener in listeners {
            let id = format!("{parent}/{}", listener.name);
            let title = format!("listener {}", listener.name);
            let node = self.node(Layer::Frontend, id.clone(), key, title);
            node.problems = self::problems(&listener.conditions);
            self.edge(&parent, &id, String::new(), None);
        }
    }

    /// Adds a frontend of the tables with its parent. Returns its id.
    fn add_frontend(&mut self, frontend: &Frontend) -> String {
        let port = frontend.port;
        let (key, suffix, title) = match &frontend.id {
            FrontendId::Listener {
                owner, listener, ..
            } => (owner, listener.to_string(), format!("listener {listener}")),
            FrontendId::Mesh { parent, scope, .. } => match scope {
                Scope::Everyone => (parent, format!("{port}"), format!("port {port}")),
                Scope::Namespace(namespace) => {
                    let title = format!("port {port} for namespace {namespace}");
                    (parent, format!("{port}@{namespace}"), title)
                }
            },
            FrontendId::Outbound(outbound) => {
                let destination = outbound.destination.to_string();
                let suffix = match outbound.listen {
                    Some(listen) => format!("{destination} at {listen}"),
                    None => destination.clone(),
                };
                (
                    &outbound.dataplane,
                    suffix.clone(),
                    format!("outbound {suffix}"),
                )
            }
        };
        let parent = self.add_parent(key);
        let id = format!("{parent}/{suffix}");
        let details = frontend_details(frontend);
        let node = self.node(Layer::Frontend, id.clone(), key, title);
        node.details = details;
        if let Some(reason) = &frontend.closed
            && node.problems.is_empty()
        {
            node.problems
                .push(format!("can't serve: {}", first_line(reason)));
        }
        self.edge(&parent, &id, String::new(), None);
        id
    }

    /// Adds a route that is attached to a frontend, with its backends.
    fn add_route(&mut self, frontend: &str, route: &BoundRoute) {
        for rule in &route.rules {
            if route.is_unrouted() || route.is_implicit(rule) {
                self.add_backends(frontend, "", rule);
                continue;
            }
            let (key, index) = route.source(rule);
            let id = id_of(key);
            let node = self.node(Layer::Route, id.clone(), key, key.to_string());
            for hostname in &route.hostnames {
                let text = format!("host {hostname}");
                if !node.details.contains(&text) {
                    node.details.push(text);
                }
            }
            let name = match &rule.name {
                Some(name) => format!("rule {index} ({name})"),
                None => format!("rule {index}"),
            };
            if let Some(fault) = &rule.fault {
                let (status, message) = (fault.status, first_line(&fault.message));
                let problem = format!("{name}: {status} {message}");
                if !node.problems.contains(&problem) {
                    node.problems.push(problem);
                }
            } else if let Some(reply) = reply(rule) {
                let text = format!("{name}: {reply}");
                if !node.details.contains(&text) {
                    node.details.push(text);
                }
            } else {
                self.add_backends(&id, &name, rule);
            }
            let merged = policy_names(&rule.from);
            let label = match merged.get(1..) {
                Some(others) if !others.is_empty() => format!("merged with {}", others.join(", ")),
                _ => String::new(),
            };
            self.edge(frontend, &id, label, None);
        }
    }

    fn add_backends(&mut self, from: &str, rule: &str, bound: &BoundRule) {
        let sum: u64 = bound.backends.iter().map(|b| u64::from(b.weight)).sum();
        for backend in &bound.backends {
            let share = match (sum, bound.backends.len()) {
                (_, 1) if backend.weight > 0 => String::new(),
                (0, _) => "0%".to_owned(),
                (sum, _) => {
                    let percent = f64::from(backend.weight) * 100.0 / sum as f64;
                    let text = format!("{percent:.1}");
                    format!("{}%", text.strip_suffix(".0").unwrap_or(&text))
                }
            };
            let label = [rule, &share].join(" ").trim().to_owned();
            let (id, problem) = self.add_backend(backend);
            self.edge(from, &id, label, problem);
        }
        for filter in &bound.filters {
            if let Filter::Mirror(mirror) = filter {
                let reference = WeightedBackend {
                    reference: mirror.reference.clone(),
                    weight: 1,
                    target: mirror.target.clone(),
                    filters: Vec::new(),
                };
                let (id, problem) = self.add_backend(&reference);
                self.edge(
                    from,
                    &id,
                    format!("{rule} mirror").trim().to_owned(),
                    problem,
                );
            }
        }
    }

    /// Adds a backend. Returns its id, and the reason if it is unresolved.
    fn add_backend(&mut self, backend: &WeightedBackend) -> (String, Option<String>) {
        let reference = &backend.reference;
        let mut title = format!("{} {}", reference.kind, reference.name);
        if let Some(port) = reference.port.filter(|port| *port != 0) {
            title.push_str(&format!(" port {port}"));
        }
        if !reference.tags.is_empty() {
            title.push_str(&format!(" {}", reference.tags));
        }
        let id = format!("backend {title}");
        let (details, problems, problem) = match &backend.target {
            Ok(target) => match self.endpoints(target) {
                Ok(text) => (vec![text], Vec::new(), None),
                Err(text) => (Vec::new(), vec![text], None),
            },
            Err(fault) => {
                let text = format!("{}: {}", fault.reason, first_line(&fault.message));
                (Vec::new(), Vec::new(), Some(text))
            }
        };
        let node = self.nodes.entry((Layer::Backend, id.clone()));
        let node = node.or_insert_with(|| Node {
            id: id.clone(),
            layer: Layer::Backend,
            namespace: reference.name.namespace.to_string(),
            name: reference.name.name.to_string(),
            title,
            details: Vec::new(),
            problems: Vec::new(),
        });
        // Of several references to it, one may be refused.
        if problem.is_none() {
            (node.details, node.problems) = (details, problems);
        }
        (id, problem)
    }

    /// Describes the endpoints of a backend. `Err` if the backend has no endpoint.
    fn endpoints(&self, id: &BackendId) -> Result<String, String> {
        match self.tables.endpoints(id).map(|endpoints| &**endpoints) {
            Some(Endpoints::Dns(name, port)) => Ok(format!("{name}:{port}")),
            Some(Endpoints::Addresses(all)) if !all.is_empty() => match all.len() {
                1 => Ok("1 endpoint".to_owned()),
                number => Ok(format!("{number} endpoints")),
            },
            _ => Err("no ready endpoint".to_owned()),
        }
    }

    /// Adds the parents of a route that refused it, or that do not exist.
    fn add_refusals(
        &mut self,
        key: &ObjectKey,
        parents: &[ParentReference],
        status: Option<&Status>,
    ) {
        let reported = match status.map(|status| &status.body) {
            Some(StatusBody::Route(reported)) => reported.as_slice(),
            _ => &[],
        };
        let route = id_of(key);
        for parent in parents {
            let entry = reported.iter().find(|entry| *entry.parent == *parent);
            let problem = match entry {
                None => "the parent does not exist or is not managed".to_owned(),
                Some(entry) => {
                    let mut conditions = entry.conditions.iter();
                    match conditions.find(|c| c.kind == "Accepted" && !c.is_true()) {
                        Some(condition) => describe(condition),
                        None => continue,
                    }
                }
            };
            let from = self.parent_node(key, parent);
            self.node(Layer::Route, route.clone(), key, key.to_string());
            self.edge(&from, &route, String::new(), Some(problem));
        }
    }

    /// Returns the node that a parent reference names: a listener if it exists, otherwise the parent itself.
    fn parent_node(&mut self, route: &ObjectKey, parent: &ParentReference) -> String {
        let namespace = match &parent.namespace {
            Some(namespace) => namespace.clone(),
            None => route.namespace().to_string(),
        };
        let id = format!("{}/{namespace}/{}", parent.kind, parent.name);
        let section = parent.section_name.as_ref();
        let listener = section.map(|section| format!("{id}/{section}"));
        if let Some(listener) = listener
            && self
                .nodes
                .contains_key(&(Layer::Frontend, listener.clone()))
        {
            return listener;
        }
        let title = format!("{} {namespace}/{}", parent.kind, parent.name);
        let node = self.nodes.entry((Layer::Parent, id.clone()));
        node.or_insert_with(|| Node {
            id: id.clone(),
            layer: Layer::Parent,
            namespace,
            name: parent.name.clone(),
            title,
            details: Vec::new(),
            problems: Vec::new(),
        });
        id
    }
}

fn id_of(key: &ObjectKey) -> String {
    format!("{}/{}", key.kind.name(), key.name)
}

fn frontend_details(frontend: &Frontend) -> Vec<String> {
    if !matches!(frontend.id, FrontendId::Listener { .. }) {
        return Vec::new();
    }
    let mut details = vec![format!(
        "{} port {}",
        frontend.protocol.name(),
        frontend.port
    )];
    let hostname = frontend.hostname.as_ref();
    details.extend(hostname.map(|hostname| format!("host {hostname}")));
    details
}

/// Describes a rule that replies without a backend.
fn reply(rule: &BoundRule) -> Option<String> {
    rule.filters.iter().find_map(|filter| match filter {
        Filter::Redirect(redirect) => Some(format!("redirect with {}", redirect.status_code)),
        Filter::DirectResponse(direct) => Some(format!("response {}", direct.status)),
        _ => None,
    })
}

fn problems(conditions: &[Condition]) -> Vec<String> {
    let problems = conditions.iter().filter(|condition| condition.is_problem());
    // Without addresses of a data plane, no Gateway is programmed.
    let problems = problems.filter(|condition| condition.kind != "Programmed");
    problems.map(describe).collect()
}

fn describe(condition: &Condition) -> String {
    let message = first_line(&condition.message);
    match message.is_empty() {
        true => condition.reason.to_owned(),
        false => format!("{}: {message}", condition.reason),
    }
}

/// Returns the first line of a message. Some continue with a manifest that would solve the problem.
fn first_line(message: &str) -> &str {
    let line = message.lines().next().unwrap_or_default();
    let line = line
        .split(" This one would allow it")
        .next()
        .unwrap_or(line);
    line.trim_end()
}
