//! All tables of one version, and which of them a connection or request belongs to.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdMap;
use pointsman_binding::Delta;
use pointsman_binding::bound::{
    Backend, BackendId, BoundRoute, Endpoints, FrontendId, Outbound, Protocol, Scope, Transport,
};
use pointsman_resources::{Name, ObjectKey};

use crate::Map;
use crate::hosts::Hosts;
use crate::table::{Alike, FrontendTable};

/// One version of all tables. A clone is a snapshot: it costs a few pointers and never changes.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    frontends: OrdMap<FrontendId, Arc<FrontendTable>>,
    ports: Map<PortKey, Arc<PortTable>>,
    mesh: Map<MeshKey, Arc<MeshPort>>,
    backends: Map<BackendId, Arc<Backend>>,
    /// The DNS names of those that have one.
    names: Map<BackendId, Arc<str>>,
    /// Routes of frontends that do not serve: they may come, or come back, without their routes being told again.
    waiting: Map<FrontendId, Map<ObjectKey, Arc<BoundRoute>>>,
}

/// A port of a Gateway. The same number may be used once for streams and once for datagrams.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PortKey {
    gateway: Name,
    port: u16,
    datagrams: bool,
}

/// The listeners of one port of a Gateway.
#[derive(Clone, Debug, Default)]
pub struct PortTable {
    /// One for each hostname, as the binder sees to; were there two, the first by name.
    listeners: Hosts<OrdMap<FrontendId, Arc<FrontendTable>>>,
}

impl PortTable {
    /// One of its listeners. What it speaks all of them do: the binder lets only those share a port that can be told apart.
    pub fn any(&self) -> Option<&Arc<FrontendTable>> {
        let (_, table) = self.listeners.values().next()?.get_min()?;
        Some(table)
    }

    /// The listener of the most specific hostname for a host or SNI (lower case, no port). Once chosen it is not left.
    pub fn listener(&self, host: Option<&str>) -> Option<&Arc<FrontendTable>> {
        self.listeners.find(host.unwrap_or(""), |listeners| {
            listeners.get_min().map(|(_, table)| table)
        })
    }
}

/// Which port of which mesh parent.
type MeshKey = (ObjectKey, Transport, u16);

/// A port of a mesh parent.
#[derive(Clone, Debug, Default)]
struct MeshPort {
    scopes: OrdMap<Scope, Arc<FrontendTable>>,
    /// As Pods see it whose calls Kuma's policies govern.
    pods: Map<ObjectKey, Arc<FrontendTable>>,
}

/// Who calls in the mesh, as far as that is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Client<'c> {
    /// The namespace of its Pod.
    pub namespace: Option<&'c Arc<str>>,
    /// The Pod.
    pub pod: Option<&'c ObjectKey>,
}

impl<'c> Client<'c> {
    /// A Pod.
    pub fn of_pod(pod: &'c ObjectKey) -> Self {
        Client {
            namespace: Some(&pod.name.namespace),
            pod: Some(pod),
        }
    }
}

impl Tables {
    /// Makes the next version of a change in the bound form.
    ///
    /// What a delta says of a frontend is done before its attachments, in whatever order it lists them.
    pub fn apply(&mut self, delta: &Delta) {
        // What is changed is worked on apart and shared again at the end, so that a node is copied once for a whole delta.
        let mut changed: BTreeMap<&FrontendId, Option<FrontendTable>> = BTreeMap::new();
        for (id, frontend) in &delta.frontends {
            let old = self.frontends.get(id);
            if let Some(old) = old {
                self.unlist(&old.clone());
            }
            let old = self.frontends.get(id);
            if let (Some(old), None) = (old, frontend) {
                let routes = old
                    .routes()
                    .map(|route| (route.route.clone(), route.clone()));
                self.waiting.insert(id.clone(), routes.collect());
            }
            let table = frontend.as_ref().map(|frontend| match old {
                None => {
                    let mut table = FrontendTable::new(frontend.clone());
                    for (key, route) in self.waiting.remove(id).unwrap_or_default() {
                        table.set_route(&key, Some(route));
                    }
                    table
                }
                Some(old) => {
                    let mut table = (**old).clone();
                    table.set_frontend(frontend.clone());
                    table
                }
            });
            changed.insert(id, table);
        }
        let mut alike = Alike::default();
        for ((id, route), bound) in &delta.attachments {
            let table = changed
                .entry(id)
                .or_insert_with(|| self.frontends.get(id).map(|table| (**table).clone()));
            match (table, id) {
                // A policy of Kuma's may be for the calls of a thousand proxies.
                (Some(table), FrontendId::Outbound(_)) => {
                    table.set_route_like(route, bound.clone(), &mut alike);
                }
                (Some(table), _) => table.set_route(route, bound.clone()),
                (None, _) => self.wait(id, route, bound.clone()),
            }
        }
        for (id, table) in changed {
            match table {
                None => drop(self.frontends.remove(id)),
                Some(table) => {
                    let table = Arc::new(table);
                    self.list(&table);
                    self.frontends.insert(id.clone(), table);
                }
            }
        }
        for (id, backend) in &delta.backends {
            match backend.as_ref().map(|backend| &backend.endpoints) {
                Some(Endpoints::Dns(name, _)) => drop(self.names.insert(id.clone(), name.clone())),
                _ => drop(self.names.remove(id)),
            }
            match backend {
                Some(backend) => drop(self.backends.insert(id.clone(), backend.clone())),
                None => drop(self.backends.remove(id)),
            }
        }
    }

    /// Keeps a route for a frontend that does not serve.
    fn wait(&mut self, id: &FrontendId, route: &ObjectKey, bound: Option<Arc<BoundRoute>>) {
        let routes = self.waiting.entry(id.clone()).or_default();
        match bound {
            Some(bound) => drop(routes.insert(route.clone(), bound)),
            None => drop(routes.remove(route)),
        }
        if routes.is_empty() {
            self.waiting.remove(id);
        }
    }

    /// Makes a frontend's table findable by port.
    fn list(&mut self, table: &Arc<FrontendTable>) {
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
                port.scopes.insert(scope.clone(), table.clone());
            }
            // One with a socket of its own is found by its name.
            FrontendId::Outbound(outbound) => {
                if let Some(key) = shared_port(outbound) {
                    let port = Arc::make_mut(self.mesh.entry(key).or_default());
                    port.pods.insert(outbound.dataplane.clone(), table.clone());
                }
            }
        }
    }

    /// The opposite of [`list`](Self::list).
    fn unlist(&mut self, table: &FrontendTable) {
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
                self.edit_mesh(&key, |port| drop(port.scopes.remove(scope)));
            }
            FrontendId::Outbound(outbound) => {
                if let Some(key) = shared_port(outbound) {
                    self.edit_mesh(&key, |port| drop(port.pods.remove(&outbound.dataplane)));
                }
            }
        }
    }

    /// Takes something from a port of a mesh parent, and the port away when nothing is left.
    fn edit_mesh(&mut self, key: &MeshKey, edit: impl FnOnce(&mut MeshPort)) {
        let Some(port) = self.mesh.get_mut(key).map(Arc::make_mut) else {
            return;
        };
        edit(port);
        if port.scopes.is_empty() && port.pods.is_empty() {
            self.mesh.remove(key);
        }
    }

    /// The table of a frontend.
    pub fn frontend(&self, id: &FrontendId) -> Option<&Arc<FrontendTable>> {
        self.frontends.get(id)
    }

    /// Every table, ordered by its frontend.
    pub fn frontends(&self) -> impl Iterator<Item = &Arc<FrontendTable>> {
        self.frontends.values()
    }

    /// The listeners of a Gateway's port, for what comes as a stream.
    pub fn port(&self, gateway: &Name, port: u16) -> Option<&Arc<PortTable>> {
        self.ports.get(&PortKey {
            gateway: gateway.clone(),
            port,
            datagrams: false,
        })
    }

    /// The listener of a Gateway's port for a host or SNI: the most specific hostname (GatewayHTTPListenerIsolation).
    pub fn listener(
        &self,
        gateway: &Name,
        port: u16,
        host: Option<&str>,
    ) -> Option<&Arc<FrontendTable>> {
        self.port(gateway, port)?.listener(host)
    }

    /// The listener of a Gateway's port for datagrams.
    pub fn datagrams(&self, gateway: &Name, port: u16) -> Option<&Arc<FrontendTable>> {
        let key = PortKey {
            gateway: gateway.clone(),
            port,
            datagrams: true,
        };
        self.ports.get(&key)?.listener(None)
    }

    /// The table that governs a client's calls to a mesh parent's port: that of Kuma's policies for its Pod, else its namespace's own, else
    /// everyone's.
    ///
    /// None means that nothing does, and the call goes to the parent itself.
    pub fn mesh(
        &self,
        parent: &ObjectKey,
        transport: Transport,
        port: u16,
        client: Client<'_>,
    ) -> Option<&Arc<FrontendTable>> {
        let MeshPort { scopes, pods } = &**self.mesh.get(&(parent.clone(), transport, port))?;
        if let Some(table) = client.pod.and_then(|pod| pods.get(pod)) {
            return Some(table);
        }
        let own = client
            .namespace
            .and_then(|namespace| scopes.get(&Scope::Namespace(namespace.clone())))
            .filter(|table| !table.is_empty());
        own.or_else(|| {
            scopes
                .get(&Scope::Everyone)
                .filter(|table| !table.is_empty())
        })
    }

    /// A backend with its endpoints.
    pub fn backend(&self, id: &BackendId) -> Option<&Arc<Backend>> {
        self.backends.get(id)
    }

    /// The DNS names that backends have for their endpoints, in no order, perhaps more than once.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.names.values()
    }

    /// Every backend, in no order.
    pub fn backends(&self) -> impl Iterator<Item = &Arc<Backend>> {
        self.backends.values()
    }
}

/// The port at which a Pod finds what it calls, where that has no socket for this Pod alone.
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
