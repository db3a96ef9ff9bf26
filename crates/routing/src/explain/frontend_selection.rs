//! Selection of the frontend that receives a request.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use pointsman_binding::bound::{Backend, Endpoints, Fault, Frontend, FrontendId, Protocol, Scope};
use pointsman_resources::{Kind, Name, ObjectKey};

use super::model::{FrontendRef, ReplyStatus};
use super::outbound;
use super::query::{Directory, DirectoryEntry, Query, QueryRequest, Scheme};
use crate::precedence::HostRank;
use crate::table::FrontendTable;
use crate::tables::{ConnectionSecurity, MeshClient, Tables};

/// The frontend that receives a request, with the reason.
pub(crate) enum SelectedFrontend<'t> {
    /// A frontend with routes, or a listener with or without routes.
    Frontend {
        table: &'t Arc<FrontendTable>,
        why: String,
    },
    /// A mesh parent without routes for the port.
    Implicit {
        parent: &'t DirectoryEntry,
        backend: &'t (Backend, Endpoints),
        why: String,
    },
    /// A workload that is called by its own address, to which routes do not apply.
    Workload {
        /// The Pod, or the Service that has it as an endpoint.
        owner: &'t ObjectKey,
        address: SocketAddr,
        why: String,
    },
    /// A listener of this port rejects the request.
    Rejected {
        table: &'t Arc<FrontendTable>,
        fault: &'static Fault,
        why: String,
    },
    /// A listener that can't serve and rejects connections. It still owns its hostname.
    Closed {
        table: &'t Arc<FrontendTable>,
        why: String,
    },
    /// A listener of the port, whose protocol is another.
    WrongProtocol {
        table: &'t Arc<FrontendTable>,
        why: String,
    },
    /// None; with a status if a connection is possible.
    NoFrontend {
        why: String,
        status: Option<ReplyStatus>,
    },
}

/// Selects the frontend: for clients in the mesh first among Services, otherwise first among Gateways.
pub(crate) fn select_frontend<'t>(
    tables: &'t Tables,
    directory: &'t Directory,
    query: &Query,
) -> SelectedFrontend<'t> {
    if query.gateway.is_some() {
        return at_gateway(tables, query);
    }
    if let Some(dataplane) = &query.dataplane {
        // A listener with this name and port takes precedence over a service with the name, which matches any port.
        let found = outbound::across_meshes(tables, query);
        let found = found.or_else(|| outbound::find(tables, query, dataplane));
        return match (found, &query.from) {
            (Some((table, why)), _) => SelectedFrontend::Frontend { table, why },
            (None, Some(_)) => {
                at_service(tables, directory, query).unwrap_or(SelectedFrontend::NoFrontend {
                    why: outbound::explain_missing(tables, directory, query, dataplane),
                    status: None,
                })
            }
            (None, None) => SelectedFrontend::NoFrontend {
                why: outbound::explain_missing(tables, directory, query, dataplane),
                status: None,
            },
        };
    }
    let (first, second) = if query.from.is_some() {
        (at_service(tables, directory, query), None)
    } else {
        (
            Some(at_gateway(tables, query)),
            at_service(tables, directory, query),
        )
    };
    match (first, second) {
        (
            Some(SelectedFrontend::NoFrontend { .. } | SelectedFrontend::WrongProtocol { .. }),
            Some(mesh),
        ) => mesh,
        (Some(first), _) => first,
        (None, _) => at_gateway(tables, query),
    }
}

fn at_service<'t>(
    tables: &'t Tables,
    directory: &'t Directory,
    query: &Query,
) -> Option<SelectedFrontend<'t>> {
    let from = query.from.as_ref().map(|(namespace, _)| namespace.as_str());
    let Some(parent) = directory.find(&query.target.host, from) else {
        return at_workload(directory, query);
    };
    let namespace = from.map(Arc::from);
    let client = MeshClient {
        namespace: namespace.as_ref(),
        pod: query.dataplane.as_ref(),
    };
    let object = &parent.object;
    let transport = query.target.scheme.transport();
    let ports: Vec<u16> = parent.ports(transport).collect();
    let port = match (query.target.port, ports.as_slice()) {
        (Some(port), _) => port,
        (None, [only]) => *only,
        (None, _) => query.target.scheme.default_port().unwrap_or_default(),
    };
    let wanted = |(backend, _): &&(Backend, Endpoints)| {
        (backend.id.port, backend.id.transport) == (port, transport)
    };
    let Some(backend) = parent.backends.iter().find(wanted) else {
        let why = format!("{object} has no {transport} port {port}");
        return Some(SelectedFrontend::NoFrontend { why, status: None });
    };
    let Some(table) = tables.mesh(object, transport, port, client) else {
        let why = format!("no route applies to port {port} of {object}; calls go to its endpoints");
        return Some(SelectedFrontend::Implicit {
            parent,
            backend,
            why,
        });
    };
    let why = match &table.frontend().id {
        FrontendId::Mesh {
            scope: Scope::Namespace(namespace),
            ..
        } => {
            format!("namespace {namespace} has routes of its own for port {port} of {object}")
        }
        FrontendId::Outbound(outbound) => outbound::why(outbound),
        _ => match from {
            // Routes in the Service's own namespace are producer routes.
            Some(from) if from != object.namespace() => format!(
                "port {port} of {object}, for all clients: namespace {from} has no routes of its own for it"
            ),
            _ => format!("port {port} of {object}, for all clients"),
        },
    };
    Some(SelectedFrontend::Frontend { table, why })
}

/// Finds a workload by its own address. Routes attach to Services and do not apply to such calls.
fn at_workload<'t>(directory: &'t Directory, query: &Query) -> Option<SelectedFrontend<'t>> {
    let ip: IpAddr = query.target.host.parse().ok()?;
    let port = query.target.port.or(query.target.scheme.default_port())?;
    let address = SocketAddr::new(ip, port);
    let (owner, what) = match directory.pod_at(ip) {
        Some(pod) => (pod, format!("{ip} is the address of {pod} itself")),
        None => {
            let transport = query.target.scheme.transport();
            let service = directory.owner_of(address, transport)?;
            (
                service,
                format!("{address} is an endpoint of {service}, not its address"),
            )
        }
    };
    Some(SelectedFrontend::Workload {
        owner,
        address,
        why: format!("{what}: routes attach to Services, so this call bypasses them"),
    })
}

/// Returns whether a listener of this protocol accepts the scheme. A TCP listener accepts all streams.
fn fits(scheme: Scheme, protocol: Protocol) -> bool {
    match scheme {
        Scheme::Http => matches!(protocol, Protocol::Http | Protocol::Tcp),
        Scheme::Https => matches!(protocol, Protocol::Https | Protocol::Tls(_) | Protocol::Tcp),
        Scheme::Grpc => !matches!(protocol, Protocol::Udp),
        Scheme::Tls => matches!(protocol, Protocol::Tls(_) | Protocol::Tcp),
        Scheme::Tcp => matches!(protocol, Protocol::Tcp),
        Scheme::Udp => matches!(protocol, Protocol::Udp),
    }
}

/// Selects a listener of a Gateway.
fn at_gateway<'t>(tables: &'t Tables, query: &Query) -> SelectedFrontend<'t> {
    let scheme = query.target.scheme;
    let listeners = match eligible_listeners(tables, query) {
        Ok(listeners) => listeners,
        Err(why) => return SelectedFrontend::NoFrontend { why, status: None },
    };
    let fitting: Vec<&Frontend> = listeners
        .iter()
        .map(|table| &**table.frontend())
        .filter(|frontend| fits(scheme, frontend.protocol))
        .collect();
    let Some(port) = port(query, &fitting) else {
        return without_port(&listeners, query);
    };
    let encrypted = fitting.iter().any(|frontend| {
        frontend.port == port && matches!(frontend.protocol, Protocol::Https | Protocol::Tls(_))
    });
    let host = if encrypted {
        query.sni()
    } else {
        Some(query.host())
    };
    let host = host.as_deref();
    let found = listeners_for_host(tables, query, &fitting, port, host);
    let Some(table) = found.first() else {
        let status = if scheme.is_http() && !encrypted {
            ReplyStatus::Http(404)
        } else {
            ReplyStatus::Reset
        };
        let why = format!(
            "no listener on port {port} serves `{}`",
            host.unwrap_or_default()
        );
        let status = Some(status);
        return SelectedFrontend::NoFrontend { why, status };
    };
    let mut why = why(table, host, found.len() - 1);
    if let Some(asked) = asked_listener(query)
        && section(table.frontend()) != Some(asked)
    {
        why.push_str(&format!(
            "; listener {asked} on that port does not receive the request"
        ));
    }
    at_listener(tables, table, query, why)
}

/// Returns the listeners that may get the request, whatever their protocol: those of the query's Gateway, otherwise those of all Gateways.
fn eligible_listeners<'t>(
    tables: &'t Tables,
    query: &Query,
) -> Result<Vec<&'t Arc<FrontendTable>>, String> {
    let named = |table: &&Arc<FrontendTable>| match (&table.frontend().id, &query.gateway) {
        (FrontendId::Mesh { .. } | FrontendId::Outbound(_), _) => false,
        // A MeshGateway may be named by its own name, which differs from that of its proxies.
        (FrontendId::Listener { gateway, owner, .. }, Some((name, _))) => {
            gateway == name || owner.kind == Kind::MeshGateway && owner.name == *name
        }
        (FrontendId::Listener { .. }, None) => true,
    };
    let (cross_mesh, listeners): (Vec<_>, Vec<&Arc<FrontendTable>>) = tables
        .frontends()
        .filter(named)
        .partition(|table| table.frontend().cross_mesh && query.dataplane.is_none());
    match (&query.gateway, listeners.is_empty()) {
        (Some((name, _)), true) if cross_mesh.is_empty() => {
            Err(format!("Gateway {name} has no usable listener"))
        }
        (Some((name, _)), true) => Err(format!(
            "{name} accepts only proxies of meshes (crossMesh); explain the request of one with --from dataplane/NAME"
        )),
        _ => Ok(listeners),
    }
}

/// Returns the listener that the query names.
fn asked_listener(query: &Query) -> Option<&str> {
    let (_, listener) = query.gateway.as_ref()?;
    listener.as_deref()
}

/// Explains that no listener accepts the query's scheme, on its port or under the name that it specifies.
fn without_port<'t>(listeners: &[&'t Arc<FrontendTable>], query: &Query) -> SelectedFrontend<'t> {
    let scheme = query.target.scheme;
    let port = query.target.port.or(scheme.default_port());
    let asked = asked_listener(query);
    let is_asked = |table: &&&Arc<FrontendTable>| {
        let frontend = table.frontend();
        match asked {
            Some(asked) => section(frontend) == Some(asked),
            None => Some(frontend.port) == port,
        }
    };
    let mut others = listeners.iter().filter(is_asked);
    // Datagrams and streams have separate ports.
    let is_stream = |table: &&&Arc<FrontendTable>| {
        scheme != Scheme::Udp && table.frontend().protocol != Protocol::Udp
    };
    if let Some(table) = others.clone().find(is_stream) {
        let why = why(table, None, 0);
        return SelectedFrontend::WrongProtocol { table, why };
    }
    let scheme = scheme.as_str();
    let why = match (asked, port) {
        (Some(asked), _) if others.next().is_some() => {
            format!("listener {asked} does not accept {scheme}")
        }
        (Some(asked), _) => format!("there is no usable listener {asked}"),
        (None, Some(port)) => format!("no listener accepts {scheme} on port {port}"),
        (None, None) => format!("no listener accepts {scheme} on any port"),
    };
    SelectedFrontend::NoFrontend { why, status: None }
}

/// Returns the listeners of a port that get a connection or request for a host, one for each Gateway. Each Gateway has its own address, which the URL does not
/// specify: the Gateway with the most specific hostname comes first, then one with a matching rule.
fn listeners_for_host<'t>(
    tables: &'t Tables,
    query: &Query,
    fitting: &[&Frontend],
    port: u16,
    host: Option<&str>,
) -> Vec<&'t Arc<FrontendTable>> {
    let scheme = query.target.scheme;
    let gateways: BTreeSet<&Name> = fitting
        .iter()
        .filter(|frontend| frontend.port == port)
        .filter_map(|frontend| match &frontend.id {
            FrontendId::Listener { gateway, .. } => Some(gateway),
            _ => None,
        })
        .collect();
    let mut found: Vec<&Arc<FrontendTable>> = gateways
        .iter()
        .filter_map(|gateway| match scheme {
            Scheme::Udp => tables.datagrams(gateway, port),
            _ => tables.listener(gateway, port, host),
        })
        .filter(|table| fits(scheme, table.frontend().protocol))
        .collect();
    let seen = QueryRequest::new(query);
    found.sort_by_key(|table| {
        let frontend = table.frontend();
        let hit = match frontend.protocol {
            _ if table.closed().is_some() => false,
            Protocol::Http | Protocol::Https => table.lookup(&seen).is_some(),
            _ => table.lookup_stream(host).is_some(),
        };
        (
            HostRank::of(frontend.hostname.as_ref()),
            !hit,
            frontend.id.clone(),
        )
    });
    found
}

/// Selects the frontend for a request on a connection to a listener, with the proxy's own decision.
fn at_listener<'t>(
    tables: &'t Tables,
    table: &'t Arc<FrontendTable>,
    query: &Query,
    why: String,
) -> SelectedFrontend<'t> {
    let frontend = table.frontend();
    let security = match frontend.protocol {
        Protocol::Http if frontend.cross_mesh => ConnectionSecurity::MeshMtls,
        Protocol::Http => ConnectionSecurity::Plaintext,
        _ if table.closed().is_some() => return SelectedFrontend::Closed { table, why },
        Protocol::Https => ConnectionSecurity::Tls(frontend.id.clone()),
        _ => return SelectedFrontend::Frontend { table, why },
    };
    let FrontendId::Listener { gateway, .. } = &frontend.id else {
        return SelectedFrontend::Frontend { table, why };
    };
    let port = tables.port(gateway, frontend.port);
    match port.map(|port| port.for_request(&security, &query.host())) {
        Some(Err(fault)) => {
            let why = match security {
                ConnectionSecurity::Tls(_) => format!(
                    "{why}; but the host `{}` belongs to another listener",
                    query.host()
                ),
                _ => why,
            };
            SelectedFrontend::Rejected { table, fault, why }
        }
        _ => SelectedFrontend::Frontend { table, why },
    }
}

/// Returns the port: of the named listener, otherwise of the URL, otherwise of the scheme. If only a Gateway is named, or the scheme has no default port,
/// the lowest port whose protocol fits.
fn port(query: &Query, fitting: &[&Frontend]) -> Option<u16> {
    if let Some(wanted) = asked_listener(query) {
        return fitting
            .iter()
            .find(|frontend| section(frontend).is_some_and(|name| name == wanted))
            .map(|frontend| frontend.port);
    }
    let wanted = query.target.port.or(query.target.scheme.default_port());
    if let Some(wanted) = wanted
        && fitting.iter().any(|frontend| frontend.port == wanted)
    {
        return Some(wanted);
    }
    let strict = matches!(query.target.scheme, Scheme::Http | Scheme::Https);
    let free = query.target.port.is_none() && (query.gateway.is_some() || !strict);
    fitting
        .iter()
        .map(|frontend| frontend.port)
        .min()
        .filter(|_| free)
}

fn section(frontend: &Frontend) -> Option<&str> {
    match &frontend.id {
        FrontendId::Listener { listener, .. } => Some(listener),
        _ => None,
    }
}

fn why(table: &FrontendTable, host: Option<&str>, others: usize) -> String {
    let frontend = table.frontend();
    let reference = reference(frontend);
    let listener = reference.section.unwrap_or_default();
    let mut why = format!(
        "listener {listener} of {} {} on port {}",
        reference.kind,
        Name::new(reference.namespace, reference.name),
        frontend.port
    );
    // TCP and UDP traffic names no host.
    let named = !matches!(frontend.protocol, Protocol::Tcp | Protocol::Udp);
    match (&frontend.hostname, host.filter(|_| named)) {
        (Some(hostname), Some(host)) => {
            why.push_str(&format!(
                ": `{hostname}` is the most specific hostname for `{host}`"
            ));
        }
        (None, Some(host)) => why.push_str(&format!(
            ": it serves all hosts, and no listener on the port has a hostname for `{host}`"
        )),
        _ => {}
    }
    match others {
        0 => {}
        1 => why.push_str("; another Gateway would accept it too"),
        others => why.push_str(&format!("; {others} other Gateways would accept it too")),
    }
    why
}

/// Returns the reference to a frontend for output.
pub(crate) fn reference(frontend: &Frontend) -> FrontendRef {
    let parent = frontend.id.parent();
    let (section, gateway, scope) = match &frontend.id {
        FrontendId::Listener {
            gateway,
            owner,
            listener,
        } => {
            let gateway = (owner.kind != Kind::Gateway).then(|| gateway.to_string());
            (Some(listener.to_string()), gateway, None)
        }
        FrontendId::Mesh { scope, .. } => match scope {
            Scope::Everyone => (None, None, None),
            Scope::Namespace(namespace) => (None, None, Some(namespace.to_string())),
        },
        FrontendId::Outbound(outbound) => (None, None, Some(outbound.dataplane.to_string())),
    };
    FrontendRef {
        kind: parent.kind.name(),
        namespace: parent.name.namespace.to_string(),
        name: parent.name.name.to_string(),
        section,
        port: frontend.port,
        gateway,
        scope,
    }
}
