//! All tables of one version, and their selection for connections and requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;
use pointsman_binding::Delta;
use pointsman_binding::bound::{
    Backend, BackendId, BoundRoute, BoundRule, CertifiedKey, Endpoints, Fault, FrontendId,
    Outbound, Protocol, RouteBinding, RouteId, RouteMeta, Scope, SecretId, Transport,
};
use pointsman_resources::{Name, ObjectKey};

use crate::action::{closed, misdirected, no_listener};
use crate::hosts::HostMap;
use crate::route::CompiledRoute;
use crate::table::FrontendTable;
use crate::{Map, Set};

/// One version of all tables. A clone is a cheap, immutable snapshot.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    frontends: OrdMap<FrontendId, Arc<FrontendTable>>,
    ports: Map<PortKey, Arc<PortTable>>,
    mesh: Map<MeshKey, Arc<MeshPort>>,
    routes: Map<RouteId, Arc<RouteState>>,
    /// Routes attached to frontends that do not exist (yet). A frontend may be added without a change of its routes.
    waiting: Map<FrontendId, Set<RouteId>>,
    backends: Map<BackendId, Arc<Backend>>,
    endpoints: EndpointMap,
    /// DNS names of the backends that have one.
    names: Map<BackendId, Arc<str>>,
    secrets: Map<SecretId, Arc<CertifiedKey>>,
}

/// A route, its rules, and the frontends that it is attached to.
#[derive(Clone, Debug, Default)]
struct RouteState {
    meta: Option<Arc<RouteMeta>>,
    /// Ordered by index and part.
    rules: Vec<Arc<BoundRule>>,
    /// Sorted.
    frontends: Vec<FrontendId>,
    /// `None` until `meta` is known.
    compiled: Option<Arc<CompiledRoute>>,
}

impl RouteState {
    fn compile(&mut self) {
        self.compiled = self.meta.clone().map(|meta| {
            let rules = self.rules.clone();
            let bound = Arc::new(BoundRoute { meta, rules });
            Arc::new(CompiledRoute::new(bound, self.compiled.as_deref()))
        });
    }

    fn is_empty(&self) -> bool {
        self.meta.is_none() && self.rules.is_empty() && self.frontends.is_empty()
    }
}

/// A route that a delta changes.
#[derive(Default)]
struct RouteEdit {
    /// The route after the change.
    state: RouteState,
    /// The route or one of its rules has changed, not only its attachments.
    recompile: bool,
    attached: BTreeSet<FrontendId>,
    detached: Vec<FrontendId>,
}

/// Tables that a delta changes; `None` for frontends that do not exist.
type ChangedTables = BTreeMap<FrontendId, Option<FrontendTable>>;

/// Endpoints by backend. A clone is a snapshot.
pub type EndpointMap = Map<BackendId, Arc<Endpoints>>;

/// A port of a Gateway. The same number may be used for TCP and for UDP.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PortKey {
    gateway: Name,
    port: u16,
    datagrams: bool,
}

/// Transport security of a client's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionSecurity {
    /// Plain text.
    Plaintext,
    /// The mutual TLS of a mesh: the client is a proxy.
    MeshMtls,
    /// TLS terminated by the listener that the SNI selected.
    Tls(FrontendId),
}

/// The listeners of one port of a Gateway.
#[derive(Clone, Debug, Default)]
pub struct PortTable {
    /// Listeners by hostname. The binder accepts one for each hostname; if there are several, the first by name is used.
    listeners: HostMap<OrdMap<FrontendId, Arc<FrontendTable>>>,
}

impl PortTable {
    /// Returns one of the listeners. All of them have the same protocol: the binder accepts only distinguishable listeners on a port.
    pub fn any(&self) -> Option<&Arc<FrontendTable>> {
        let (_, table) = self.listeners.values().next()?.get_min()?;
        Some(table)
    }

    /// Returns the listener with the most specific hostname for a host or SNI (in lower case, without port). If it has no matching rule, no other listener is
    /// tried.
    pub fn listener(&self, host: Option<&str>) -> Option<&Arc<FrontendTable>> {
        self.listeners.find(host.unwrap_or(""), |listeners| {
            listeners.get_min().map(|(_, table)| table)
        })
    }

    /// Returns the listener that serves a request for a host (in lower case, without port), or the error that the client gets. The security of the connection
    /// is fixed when it is made, even if listeners change afterwards.
    pub fn for_request(
        &self,
        security: &ConnectionSecurity,
        host: &str,
    ) -> Result<&Arc<FrontendTable>, &'static Fault> {
        let table = self.listener(Some(host));
        let of_mesh = match security {
            ConnectionSecurity::Tls(listener) => {
                // 421 makes the client open a new connection. A listener that can't serve rejects that connection during the handshake.
                return table
                    .filter(|table| table.frontend().id == *listener && table.closed().is_none())
                    .ok_or_else(|| misdirected(listener));
            }
            ConnectionSecurity::Plaintext => false,
            ConnectionSecurity::MeshMtls => true,
        };
        let accepts = |table: &&Arc<FrontendTable>| {
            let frontend = table.frontend();
            frontend.protocol == Protocol::Http && frontend.cross_mesh == of_mesh
        };
        let table = table.filter(accepts).ok_or_else(no_listener)?;
        match table.closed() {
            None => Ok(table),
            Some(_) => Err(closed()),
        }
    }
}

/// A port of a mesh parent.
type MeshKey = (ObjectKey, Transport, u16);

/// The tables of a mesh parent's port, by client.
#[derive(Clone, Debug, Default)]
pub struct MeshPort {
    /// Table for all clients.
    everyone: Option<Arc<FrontendTable>>,
    /// Tables for the clients in a namespace.
    namespaces: OrdMap<Arc<str>, Arc<FrontendTable>>,
    /// Tables for single Pods, to whose calls Kuma policies apply.
    pods: Map<ObjectKey, Arc<FrontendTable>>,
}

impl MeshPort {
    /// Returns the table for the calls of a client: that of Kuma policies for its Pod, otherwise that of its namespace, otherwise that of all clients.
    ///
    /// `None` if no routes apply; the call goes to the parent's own endpoints.
    pub fn table(&self, client: MeshClient<'_>) -> Option<&Arc<FrontendTable>> {
        if let Some(table) = client.pod.and_then(|pod| self.pods.get(pod)) {
            return Some(table);
        }
        let has_routes = |table: &&Arc<FrontendTable>| !table.is_empty();
        let own = client.namespace.and_then(|own| self.namespaces.get(&**own));
        let everyone = || self.everyone.as_ref().filter(has_routes);
        own.filter(has_routes).or_else(everyone)
    }

    /// Sets or removes the table of a scope.
    fn set(&mut self, scope: &Scope, table: Option<Arc<FrontendTable>>) {
        match (scope, table) {
            (Scope::Everyone, table) => self.everyone = table,
            (Scope::Namespace(namespace), Some(table)) => {
                self.namespaces.insert(namespace.clone(), table);
            }
            (Scope::Namespace(namespace), None) => drop(self.namespaces.remove(&**namespace)),
        }
    }

    fn is_empty(&self) -> bool {
        self.everyone.is_none() && self.namespaces.is_empty() && self.pods.is_empty()
    }
}

/// The known properties of the client of a mesh connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct MeshClient<'c> {
    /// Namespace of the Pod.
    pub namespace: Option<&'c Arc<str>>,
    /// The Pod.
    pub pod: Option<&'c ObjectKey>,
}

impl<'c> MeshClient<'c> {
    /// Returns the client for a Pod.
    pub fn of_pod(pod: &'c ObjectKey) -> Self {
        MeshClient {
            namespace: Some(pod.name.namespace.as_arc()),
            pod: Some(pod),
        }
    }
}

impl Tables {
    /// Applies changes of the bound form. The order of items in the delta does not matter.
    pub fn apply(&mut self, delta: &Delta) {
        let edits = self.edit_routes(delta);
        // Changed tables are modified separately and shared again at the end, so that each node is copied at most once per delta.
        let mut changed = self.edit_frontends(delta, &edits);
        for (id, edit) in &edits {
            for frontend in &edit.detached {
                match self.changed_table(&mut changed, frontend) {
                    Some(table) => table.set_route(id, None),
                    None => self.forget_waiting(frontend, id),
                }
            }
        }
        for (id, edit) in &edits {
            self.attach(id, edit, &mut changed);
        }
        for (id, table) in changed {
            match table {
                None => drop(self.frontends.remove(&id)),
                Some(table) => {
                    let table = Arc::new(table);
                    self.add_to_port_index(&table);
                    self.frontends.insert(id, table);
                }
            }
        }
        for (id, edit) in edits {
            match edit.state.is_empty() {
                true => self.routes.remove(&id),
                false => self.routes.insert(id, Arc::new(edit.state)),
            };
        }
        for (id, endpoints) in &delta.endpoints {
            match endpoints.as_deref() {
                Some(Endpoints::Dns(name, _)) => drop(self.names.insert(id.clone(), name.clone())),
                // A map from which nothing is removed has to stay the same.
                _ if self.names.contains_key(id) => drop(self.names.remove(id)),
                _ => {}
            }
        }
        replace(&mut self.backends, &delta.backends);
        replace(&mut self.endpoints, &delta.endpoints);
        replace(&mut self.secrets, &delta.secrets);
    }

    /// Returns the routes that a delta changes, in their new state.
    fn edit_routes(&self, delta: &Delta) -> BTreeMap<RouteId, RouteEdit> {
        let mut edits: BTreeMap<RouteId, RouteEdit> = BTreeMap::new();
        fn edit<'e>(
            tables: &Tables,
            edits: &'e mut BTreeMap<RouteId, RouteEdit>,
            id: &RouteId,
        ) -> &'e mut RouteEdit {
            edits.entry(id.clone()).or_insert_with(|| RouteEdit {
                state: tables
                    .routes
                    .get(id)
                    .map(|state| (**state).clone())
                    .unwrap_or_default(),
                ..RouteEdit::default()
            })
        }
        for (id, meta) in &delta.routes {
            let edit = edit(self, &mut edits, id);
            edit.state.meta = meta.clone();
            edit.recompile = true;
        }
        for (id, rule) in &delta.rules {
            let edit = edit(self, &mut edits, &id.route);
            edit.recompile = true;
            let rules = &mut edit.state.rules;
            let index = rules.binary_search_by_key(&(id.index, id.part), |r| (r.index, r.part));
            match (index, rule) {
                (Ok(at), Some(rule)) => rules[at] = rule.clone(),
                (Ok(at), None) => drop(rules.remove(at)),
                (Err(at), Some(rule)) => rules.insert(at, rule.clone()),
                (Err(_), None) => {}
            }
        }
        for (attachment, attached) in &delta.attachments {
            let edit = edit(self, &mut edits, &attachment.route);
            let frontends = &mut edit.state.frontends;
            match (frontends.binary_search(&attachment.frontend), attached) {
                (Err(at), true) => {
                    frontends.insert(at, attachment.frontend.clone());
                    edit.attached.insert(attachment.frontend.clone());
                }
                (Ok(at), false) => {
                    frontends.remove(at);
                    edit.detached.push(attachment.frontend.clone());
                }
                _ => {}
            }
        }
        for edit in edits.values_mut() {
            // Routes are kept for long, and most have one rule and one frontend.
            edit.state.frontends.shrink_to_fit();
            edit.state.rules.shrink_to_fit();
            if edit.recompile {
                edit.state.compile();
            }
        }
        edits
    }

    /// Returns the tables of frontends that a delta changes, without its changes of routes.
    fn edit_frontends(
        &mut self,
        delta: &Delta,
        edits: &BTreeMap<RouteId, RouteEdit>,
    ) -> ChangedTables {
        let mut changed = ChangedTables::new();
        for (id, frontend) in &delta.frontends {
            let old = self.frontends.get(id).cloned();
            if let Some(old) = &old {
                self.remove_from_port_index(old);
            }
            let table = match (&old, frontend) {
                (_, None) => {
                    let routes = old.iter().flat_map(|old| old.routes());
                    let routes: Set<RouteId> = routes.map(|route| route.id.clone()).collect();
                    if !routes.is_empty() {
                        self.waiting.insert(id.clone(), routes);
                    }
                    None
                }
                (Some(old), Some(frontend)) => {
                    let mut table = (**old).clone();
                    table.set_frontend(frontend.clone());
                    Some(table)
                }
                (None, Some(frontend)) => {
                    let mut table = FrontendTable::new(frontend.clone());
                    for route in self.waiting.remove(id).unwrap_or_default() {
                        let edited = edits.get(&route).map(|edit| &edit.state);
                        let state = edited.or(self.routes.get(&route).map(|state| &**state));
                        let compiled = state.and_then(|state| state.compiled.clone());
                        table.set_route(&route, compiled);
                    }
                    Some(table)
                }
            };
            changed.insert(id.clone(), table);
        }
        changed
    }

    /// Returns the table of a frontend for modification; `None` if the frontend does not exist.
    fn changed_table<'c>(
        &self,
        changed: &'c mut ChangedTables,
        id: &FrontendId,
    ) -> Option<&'c mut FrontendTable> {
        let entry = changed.entry(id.clone());
        let table = entry.or_insert_with(|| self.frontends.get(id).map(|table| (**table).clone()));
        table.as_mut()
    }

    /// Updates a changed route in the tables of the frontends that it is attached to.
    fn attach(&mut self, id: &RouteId, edit: &RouteEdit, changed: &mut ChangedTables) {
        // One route of Kuma may apply to the calls of a thousand proxies. Their frontends, which have no other routes, share one table.
        let shares = matches!(id.binding, RouteBinding::Outbound(..));
        let mut shared: Option<FrontendTable> = None;
        if shares && !edit.recompile {
            let mut others = edit.state.frontends.iter();
            let old = others.find(|frontend| !edit.attached.contains(*frontend));
            shared = old.and_then(|old| self.frontends.get(old).map(|table| (**table).clone()));
        }
        for frontend in &edit.state.frontends {
            let is_new = edit.attached.contains(frontend);
            if !is_new && !edit.recompile {
                continue;
            }
            let Some(table) = self.changed_table(changed, frontend) else {
                let waiting = self.waiting.entry(frontend.clone()).or_default();
                waiting.insert(id.clone());
                continue;
            };
            match &shared {
                Some(shared) => table.share_routes(shared),
                None => table.set_route(id, edit.state.compiled.clone()),
            }
            if shares && shared.is_none() {
                shared = Some(table.clone());
            }
        }
    }

    /// Removes the attachment of a route to a frontend that does not exist.
    fn forget_waiting(&mut self, frontend: &FrontendId, route: &RouteId) {
        if let Some(routes) = self.waiting.get_mut(frontend) {
            routes.remove(route);
            if routes.is_empty() {
                self.waiting.remove(frontend);
            }
        }
    }

    /// Adds a frontend's table to the index by port.
    fn add_to_port_index(&mut self, table: &Arc<FrontendTable>) {
        let frontend = table.frontend();
        match &frontend.id {
            FrontendId::Listener { gateway, .. } => {
                let key = port_key(gateway, frontend.port, frontend.protocol);
                let port = Arc::make_mut(self.ports.entry(key).or_default());
                port.listeners
                    .edit(frontend.hostname.as_ref(), |listeners| {
                        listeners.insert(frontend.id.clone(), table.clone());
                        true
                    });
            }
            FrontendId::Mesh {
                parent,
                port,
                transport,
                scope,
            } => {
                let key = (parent.clone(), *transport, *port);
                let port = Arc::make_mut(self.mesh.entry(key).or_default());
                port.set(scope, Some(table.clone()));
            }
            // Outbounds with their own socket are looked up by id.
            FrontendId::Outbound(outbound) => {
                if let Some(key) = shared_port(outbound) {
                    let port = Arc::make_mut(self.mesh.entry(key).or_default());
                    port.pods.insert(outbound.dataplane.clone(), table.clone());
                }
            }
        }
    }

    /// Removes a frontend's table from the index by port.
    fn remove_from_port_index(&mut self, table: &FrontendTable) {
        let frontend = table.frontend();
        match &frontend.id {
            FrontendId::Listener { gateway, .. } => {
                let key = port_key(gateway, frontend.port, frontend.protocol);
                let Some(port) = self.ports.get_mut(&key).map(Arc::make_mut) else {
                    return;
                };
                port.listeners
                    .edit(frontend.hostname.as_ref(), |listeners| {
                        listeners.remove(&frontend.id);
                        !listeners.is_empty()
                    });
                if port.listeners.is_empty() {
                    self.ports.remove(&key);
                }
            }
            FrontendId::Mesh {
                parent,
                port,
                transport,
                scope,
            } => {
                let key = (parent.clone(), *transport, *port);
                self.edit_mesh(&key, |port| port.set(scope, None));
            }
            FrontendId::Outbound(outbound) => {
                if let Some(key) = shared_port(outbound) {
                    self.edit_mesh(&key, |port| drop(port.pods.remove(&outbound.dataplane)));
                }
            }
        }
    }

    /// Changes a port of a mesh parent, and removes the port if it becomes empty.
    fn edit_mesh(&mut self, key: &MeshKey, edit: impl FnOnce(&mut MeshPort)) {
        let Some(port) = self.mesh.get_mut(key).map(Arc::make_mut) else {
            return;
        };
        edit(port);
        if port.is_empty() {
            self.mesh.remove(key);
        }
    }

    /// Returns the table of a frontend.
    pub fn frontend(&self, id: &FrontendId) -> Option<&Arc<FrontendTable>> {
        self.frontends.get(id)
    }

    /// Returns every table, ordered by its frontend.
    pub fn frontends(&self) -> impl Iterator<Item = &Arc<FrontendTable>> {
        self.frontends.values()
    }

    /// Returns the TCP listeners of a Gateway's port.
    pub fn port(&self, gateway: &Name, port: u16) -> Option<&Arc<PortTable>> {
        self.ports.get(&PortKey {
            gateway: gateway.clone(),
            port,
            datagrams: false,
        })
    }

    /// Returns the listener of a Gateway's port for a host or SNI: the most specific hostname (GatewayHTTPListenerIsolation).
    pub fn listener(
        &self,
        gateway: &Name,
        port: u16,
        host: Option<&str>,
    ) -> Option<&Arc<FrontendTable>> {
        self.port(gateway, port)?.listener(host)
    }

    /// Returns the UDP listener of a Gateway's port.
    pub fn datagrams(&self, gateway: &Name, port: u16) -> Option<&Arc<FrontendTable>> {
        let key = PortKey {
            gateway: gateway.clone(),
            port,
            datagrams: true,
        };
        self.ports.get(&key)?.listener(None)
    }

    /// Returns the tables of a mesh parent's port; `None` if no routes apply to it.
    pub fn mesh_port(
        &self,
        parent: &ObjectKey,
        transport: Transport,
        port: u16,
    ) -> Option<&Arc<MeshPort>> {
        self.mesh.get(&(parent.clone(), transport, port))
    }

    /// Returns the table for a client's calls to a port of a mesh parent. See [`MeshPort::table`].
    pub fn mesh(
        &self,
        parent: &ObjectKey,
        transport: Transport,
        port: u16,
        client: MeshClient<'_>,
    ) -> Option<&Arc<FrontendTable>> {
        self.mesh_port(parent, transport, port)?.table(client)
    }

    /// Returns a snapshot of the endpoints of all backends.
    pub fn endpoint_map(&self) -> &EndpointMap {
        &self.endpoints
    }

    /// Returns the backends whose endpoints are resolved from a DNS name. Iterates over all names.
    pub fn backends_named(&self, name: &str) -> impl Iterator<Item = &BackendId> {
        let named = self.names.iter().filter(move |(_, own)| ***own == *name);
        named.map(|(id, _)| id)
    }

    /// Returns the endpoints of a backend.
    pub fn endpoints(&self, id: &BackendId) -> Option<&Arc<Endpoints>> {
        self.endpoints.get(id)
    }

    /// Returns a certificate with its key.
    pub fn secret(&self, id: &SecretId) -> Option<&Arc<CertifiedKey>> {
        self.secrets.get(id)
    }

    /// Returns a backend.
    pub fn backend(&self, id: &BackendId) -> Option<&Arc<Backend>> {
        self.backends.get(id)
    }

    /// Returns whether the DNS names of all backends are those of an earlier version, by a comparison of pointers: false also if an endpoint with a name was
    /// only set again.
    pub fn has_same_names(&self, other: &Tables) -> bool {
        self.names.ptr_eq(&other.names)
    }

    /// Returns the DNS names of backends, in unspecified order and possibly with duplicates.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.names.values()
    }

    /// Returns all backends, in unspecified order.
    pub fn backends(&self) -> impl Iterator<Item = &Arc<Backend>> {
        self.backends.values()
    }
}

/// Applies changes to a map. A value of `None` is a removal.
fn replace<K: Clone + Eq + std::hash::Hash, V: Clone>(
    map: &mut Map<K, V>,
    changes: &[(K, Option<V>)],
) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(map.insert(key.clone(), value.clone())),
            None => drop(map.remove(key)),
        }
    }
}

/// Returns the mesh port of an outbound that has no socket of its own.
fn shared_port(outbound: &Outbound) -> Option<MeshKey> {
    let to = &outbound.destination;
    let key = || (to.object.clone(), to.transport, to.port);
    outbound.listen.is_none().then(key)
}

fn port_key(gateway: &Name, port: u16, protocol: Protocol) -> PortKey {
    PortKey {
        gateway: gateway.clone(),
        port,
        datagrams: protocol == Protocol::Udp,
    }
}
