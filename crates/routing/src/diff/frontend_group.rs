//! Frontend groups: frontends that share an address to which clients connect. One of them gets the request.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use pointsman_binding::bound::{FrontendId, Outbound, Protocol, Scope, Transport};
use pointsman_resources::{Kind, Name, ObjectKey};

use super::Side;
use super::request::RepresentativeRequest;
use crate::explain::{
    Decision, ParsedUrl, Query, Scheme, at_table, carries_streams, cluster_domain, decide,
};
use crate::path::PathPolicy;
use crate::table::FrontendTable;
use crate::tables::MeshClient;

/// The frontends of one address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FrontendGroup {
    /// A port of a Gateway. The host or SNI selects one of its listeners.
    Port {
        gateway: Name,
        port: u16,
        transport: Transport,
    },
    /// A port of a mesh parent, called from a namespace.
    Mesh {
        parent: ObjectKey,
        port: u16,
        transport: Transport,
        namespace: Arc<str>,
    },
    /// A frontend of its own: an outbound of a Dataplane, or a cross-mesh listener.
    Single(FrontendId),
}

/// The tables of a frontend group on both sides.
pub(super) type GroupTables<'t> = [Vec<&'t Arc<FrontendTable>>; 2];

/// Returns the groups of both sides. A port of a mesh parent is a group if routes apply to it on one side at least.
pub(super) fn frontend_groups<'t>(
    sides: [&Side<'t>; 2],
) -> BTreeMap<FrontendGroup, GroupTables<'t>> {
    let mut frontend_groups: BTreeMap<FrontendGroup, GroupTables<'t>> = BTreeMap::new();
    let mut meshes: BTreeMap<(ObjectKey, u16, Transport), BTreeSet<Arc<str>>> = BTreeMap::new();
    for (index, side) in sides.iter().enumerate() {
        for table in side.tables.frontends() {
            let frontend = table.frontend();
            match &frontend.id {
                FrontendId::Mesh {
                    parent,
                    port,
                    transport,
                    scope,
                } => {
                    let clients = meshes.entry((parent.clone(), *port, *transport));
                    let clients = clients.or_default();
                    clients.insert(parent.name.namespace.as_arc().clone());
                    if let Scope::Namespace(namespace) = scope {
                        clients.insert(namespace.clone());
                    }
                }
                FrontendId::Listener { .. } | FrontendId::Outbound(_) => {
                    let group = FrontendGroup::of(table);
                    frontend_groups.entry(group).or_default()[index].push(table);
                }
            }
        }
    }
    for ((parent, port, transport), clients) in meshes {
        for namespace in clients {
            let client = MeshClient {
                namespace: Some(&namespace),
                pod: None,
            };
            let tables = sides.map(|side| {
                let table = side.tables.mesh(&parent, transport, port, client);
                table.into_iter().collect()
            });
            let (parent, namespace) = (parent.clone(), namespace.clone());
            let group = FrontendGroup::Mesh {
                parent,
                port,
                transport,
                namespace,
            };
            frontend_groups.insert(group, tables);
        }
    }
    frontend_groups
}

/// Returns the schemes in which clients may talk to a frontend group.
pub(super) fn schemes(tables: &GroupTables<'_>) -> Vec<Scheme> {
    let mut schemes = Vec::new();
    for table in tables.iter().flatten() {
        let scheme = scheme(table);
        if !schemes.contains(&scheme) {
            schemes.push(scheme);
        }
    }
    schemes
}

/// Returns the scheme of a frontend's clients.
pub(super) fn scheme(table: &FrontendTable) -> Scheme {
    let frontend = table.frontend();
    match (carries_streams(table), frontend.protocol, frontend.kind) {
        (false, Protocol::Https, _) => Scheme::Https,
        (false, ..) => Scheme::Http,
        (true, Protocol::Tls(_), _) | (true, _, Some(Kind::TLSRoute)) => Scheme::Tls,
        (true, Protocol::Udp, _) | (true, _, Some(Kind::UDPRoute)) => Scheme::Udp,
        (true, ..) => Scheme::Tcp,
    }
}

impl FrontendGroup {
    /// Returns the group of a frontend.
    pub(super) fn of(table: &FrontendTable) -> Self {
        let frontend = table.frontend();
        match &frontend.id {
            FrontendId::Listener { gateway, .. } if !frontend.cross_mesh => FrontendGroup::Port {
                gateway: gateway.clone(),
                port: frontend.port,
                transport: match frontend.protocol {
                    Protocol::Udp => Transport::Udp,
                    _ => Transport::Tcp,
                },
            },
            FrontendId::Mesh {
                parent,
                port,
                transport,
                scope,
            } => FrontendGroup::Mesh {
                parent: parent.clone(),
                port: *port,
                transport: *transport,
                namespace: match scope {
                    Scope::Everyone => parent.name.namespace.as_arc().clone(),
                    Scope::Namespace(namespace) => namespace.clone(),
                },
            },
            id => FrontendGroup::Single(id.clone()),
        }
    }

    /// Returns the request that a probe describes, sent to this group.
    pub(super) fn query(&self, probe: &RepresentativeRequest, scheme: Scheme) -> Query {
        let is_http = scheme.is_http();
        let scheme = match (probe.grpc, scheme) {
            (true, Scheme::Http | Scheme::Https) => Scheme::Grpc,
            (_, scheme) => scheme,
        };
        let (host, port) = self.address(probe);
        let path = match is_http {
            true => probe.path.clone(),
            false => "/".to_owned(),
        };
        let mut query = Query {
            target: ParsedUrl {
                scheme,
                host,
                port,
                ambiguity: PathPolicy::Strict.normalize(&path).err(),
                path,
                query: Some(probe.query_text()).filter(|text| is_http && !text.is_empty()),
            },
            method: probe.method.clone(),
            headers: match is_http {
                true => probe.headers.clone(),
                false => Vec::new(),
            },
            gateway: None,
            from: None,
            dataplane: None,
            without_identity: false,
            sni: None,
            paths: PathPolicy::Any,
        };
        match self {
            FrontendGroup::Port { gateway, .. } => query.gateway = Some((gateway.clone(), None)),
            FrontendGroup::Mesh { namespace, .. } => {
                query.from = Some((namespace.to_string(), None));
                query.sni = (scheme == Scheme::Tls).then(|| probe.host.clone());
            }
            FrontendGroup::Single(FrontendId::Outbound(outbound)) => {
                query.from = pod(outbound);
                query.dataplane = Some(outbound.dataplane.clone());
            }
            FrontendGroup::Single(_) => {}
        }
        query
    }

    /// Returns host and port of a request's URL.
    fn address(&self, probe: &RepresentativeRequest) -> (String, Option<u16>) {
        match self {
            FrontendGroup::Port { port, .. } => (probe.host.clone(), Some(*port)),
            FrontendGroup::Mesh { parent, port, .. } => (service_host(parent), Some(*port)),
            FrontendGroup::Single(FrontendId::Outbound(outbound)) => {
                let destination = &outbound.destination;
                match outbound.listen {
                    Some(listen) => (listen.ip().to_string(), Some(listen.port())),
                    None if destination.object.namespace().kubernetes().is_some() => {
                        (service_host(&destination.object), Some(destination.port))
                    }
                    None => {
                        let host = format!("{}.mesh", destination.object.name.name);
                        (host, Some(destination.port).filter(|port| *port != 0))
                    }
                }
            }
            FrontendGroup::Single(_) => (probe.host.clone(), None),
        }
    }

    /// Decides on a request to this group.
    pub(super) fn decide<'t>(&self, side: &Side<'t>, query: &Query) -> Decision<'t> {
        let FrontendGroup::Single(id) = self else {
            return decide(side.tables, side.directory, query);
        };
        match (side.tables.frontend(id), id) {
            (Some(table), _) => at_table(side.tables, table, query, String::new()),
            // Without policies of Kuma, calls that are captured follow the routes of the Service.
            (None, FrontendId::Outbound(outbound)) if outbound.listen.is_none() => {
                decide(side.tables, side.directory, query)
            }
            (None, _) => Decision::no_frontend("nothing listens there".to_owned()),
        }
    }
}

fn pod(outbound: &Outbound) -> Option<(String, Option<String>)> {
    let key = &outbound.dataplane;
    let pod = || (key.namespace().to_string(), Some(key.name.name.to_string()));
    (key.kind == Kind::Pod).then(pod)
}

fn service_host(parent: &ObjectKey) -> String {
    let domain = cluster_domain(parent.kind);
    format!("{}.{}.svc.{domain}", parent.name.name, parent.namespace())
}

/// Returns the URL of a query.
pub(super) fn url(query: &Query) -> String {
    let target = &query.target;
    let scheme = target.scheme;
    let host = match target.host.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) => format!("[{ip}]"),
        _ => target.host.clone(),
    };
    let mut url = format!("{}://{host}", scheme.as_str());
    // Port 80 of `grpc://` is written, because the port may be one with TLS.
    let default = scheme.default_port().filter(|_| scheme != Scheme::Grpc);
    if let Some(port) = target.port.filter(|port| Some(*port) != default) {
        url.push_str(&format!(":{port}"));
    }
    if scheme.is_http() {
        url.push_str(&target.path);
    }
    if let Some(query) = &target.query {
        url.extend(["?", query]);
    }
    url
}
