//! Cross-mesh listeners of MeshGateways (`crossMesh: true`): the certificates that they accept, and their addresses for proxies of other meshes.
//!
//! "crossMesh: plain HTTP protocol in the manifest, served over mesh mTLS; reachable from other meshes (and own); refused from outside any
//! mesh." A Dataplane calls one through an outbound whose tag `kuma.io/mesh` names the gateway's mesh. The certificates of proxies are an input
//! ([`MeshIdentity`](crate::bound::MeshIdentity)); without them, as in `check`, listeners are bound without TLS settings.

use std::net::SocketAddr;
use std::sync::Arc;

use pointsman_resources::gateway::FrontendValidationMode;
use pointsman_resources::kuma::{ListenerProtocol, MESH_LABEL, MeshGatewayListener, SERVICE_TAG};
use pointsman_resources::{Name, ObjectKey, Resource};

use super::gateway::{frontend_id, gateway_for, listener_tags};
use super::proxy::{self, MeshProxy};
use super::selection::has_tags;
use crate::bound::{
    Backend, BackendId, BackendProtocol, BackendTls, BoundEndpoint, ClientValidation, Endpoints,
    Fault, FaultReason, FrontendId, FrontendTls, PeerName, SecretId, Trust,
};
use crate::engine::Reader;

/// Tag of an outbound that names the mesh of the gateway behind it.
pub(super) const MESH_TAG: &str = MESH_LABEL;

/// Server name for handshakes with cross-mesh listeners. Clients verify a URI instead of a name, but TLS requires a server name.
const ANY_SERVER: &str = "gateway.mesh";

/// Returns whether a destination is a cross-mesh listener.
pub(super) fn is_cross_mesh(id: &BackendId) -> bool {
    id.port == 0 && id.tags.iter().any(|(name, _)| name == MESH_TAG)
}

/// Returns whether a mesh enables mutual TLS.
pub(super) fn mesh_has_mtls(reader: &Reader<'_>, mesh: &str) -> bool {
    let found = reader.kuma_mesh(&Name::new("", mesh));
    found.is_some_and(|mesh| mesh.spec.has_mtls())
}

/// Returns the TLS settings of a cross-mesh listener, which accepts proxies of all meshes. `None` if the certificate of its mesh is not known.
pub(super) fn server_tls(
    reader: &Reader<'_>,
    mesh: &str,
) -> Result<Option<Arc<FrontendTls>>, String> {
    if !mesh_has_mtls(reader, mesh) {
        return Err(format!(
            "mTLS must be enabled for crossMesh-enabled MeshGateways; set mtls.enabledBackend in Mesh {mesh}"
        ));
    }
    let all = reader.identities();
    match all.get(mesh) {
        None => return Ok(None),
        Some(Err(why)) => return Err(format!("mesh {mesh} has no usable certificate: {why}")),
        Some(Ok(_)) => {}
    }
    let authorities = all.values().flatten().map(|one| one.authority.clone());
    Ok(Some(Arc::new(FrontendTls {
        certificates: vec![SecretId::Mesh(mesh.into())],
        clients: Some(ClientValidation {
            authorities: authorities.collect(),
            mode: FrontendValidationMode::AllowValidOnly,
        }),
    })))
}

/// Returns the fault of calls to a cross-mesh listener from a mesh without mutual TLS, which that listener rejects.
pub(super) fn caller_fault(reader: &Reader<'_>, mesh: &str, to: &BackendId) -> Option<Fault> {
    let away = is_cross_mesh(to) && !mesh_has_mtls(reader, mesh);
    away.then(|| Fault {
        status: 503,
        reason: FaultReason::NoMutualTls,
        message: format!(
            "{to} accepts only proxies with a mesh certificate, and mesh {mesh} does not enable mTLS; set mtls.enabledBackend in Mesh {mesh}"
        ),
    })
}

/// A cross-mesh listener on one of its gateway's proxies.
struct CrossMeshListener<'a> {
    id: FrontendId,
    proxy: MeshProxy,
    listener: &'a MeshGatewayListener,
}

/// Returns the listeners behind a destination: those of the builtin gateways of its mesh and service that have all of its tags.
fn listeners<'a>(reader: &Reader<'a>, to: &BackendId) -> Vec<CrossMeshListener<'a>> {
    let mesh = to.object.namespace().mesh().unwrap_or_default();
    let mut found = Vec::new();
    if !mesh_has_mtls(reader, mesh) {
        return found;
    }
    let wanted = to.tags.iter().filter(|(name, _)| *name != MESH_TAG);
    let wanted = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let wanted = wanted.chain([(SERVICE_TAG.to_owned(), to.object.name.name.to_string())]);
    let wanted = wanted.collect();
    for key in reader.gateway_proxies(mesh) {
        let Some(proxy) = proxy::resolve_proxy(reader, &key) else {
            continue;
        };
        let Some(gateway) = gateway_for(reader, &proxy) else {
            continue;
        };
        let all = gateway.spec.conf.listeners.iter();
        for listener in all.filter(|listener| listener.cross_mesh) {
            if has_tags(&listener_tags(&proxy, gateway, listener), &wanted) {
                found.push(CrossMeshListener {
                    id: frontend_id(gateway, &proxy, listener),
                    proxy: proxy.clone(),
                    listener,
                });
            }
        }
    }
    found
}

/// Returns the protocol inside the TLS of a cross-mesh destination, or `None` if it has no listener.
pub(super) fn protocol(reader: &Reader<'_>, to: &BackendId) -> Option<&'static str> {
    let found = listeners(reader, to);
    let is_http = |found: &CrossMeshListener<'_>| found.listener.protocol == ListenerProtocol::Http;
    match (found.is_empty(), found.iter().all(is_http)) {
        (true, _) => None,
        (false, true) => Some("http"),
        (false, false) => Some("tcp"),
    }
}

/// Resolves a cross-mesh destination to a backend.
pub(super) fn backend(reader: &Reader<'_>, to: &BackendId) -> (Backend, Endpoints) {
    let mut addresses: Vec<BoundEndpoint> = listeners(reader, to)
        .iter()
        .flat_map(|found| listener_addresses(reader, found))
        .map(BoundEndpoint::ready)
        .collect();
    addresses.sort();
    addresses.dedup();
    let mesh = to.object.namespace().mesh().unwrap_or_default();
    let tls = reader.identities().get(mesh).map(|theirs| {
        let theirs = theirs.as_ref().map_err(|why| Fault {
            status: 503,
            reason: FaultReason::NoMutualTls,
            message: format!("mesh {mesh} has no usable certificate: {why}"),
        })?;
        Ok(Arc::new(BackendTls {
            hostname: ANY_SERVER.into(),
            trust: Trust::Authorities(vec![theirs.authority.clone()]),
            names: vec![PeerName::Uri(theirs.uri.to_string())],
            // Each caller presents the certificate of its own mesh.
            client_certificate: None,
            of_mesh: true,
        }))
    });
    let backend = Backend {
        id: to.clone(),
        protocol: match protocol(reader, to) {
            Some("tcp") => BackendProtocol::Tcp,
            _ => BackendProtocol::Unspecified,
        },
        tls,
        retry_budget: None,
    };
    (backend, Endpoints::Addresses(addresses))
}

/// Returns whether a data plane has bound all listeners behind a destination.
pub(super) fn is_placed(reader: &Reader<'_>, to: &BackendId) -> bool {
    listeners(reader, to).iter().all(|found| match &found.id {
        FrontendId::Listener { gateway, .. } => reader.observation(gateway).is_some(),
        _ => false,
    })
}

/// Returns the addresses of a listener: those that a data plane reported, or else its Dataplane's address.
fn listener_addresses(reader: &Reader<'_>, found: &CrossMeshListener<'_>) -> Vec<SocketAddr> {
    let FrontendId::Listener { gateway, .. } = &found.id else {
        return Vec::new();
    };
    if let Some(seen) = reader.observation(gateway) {
        return seen
            .cross_mesh_addresses
            .get(&found.id)
            .cloned()
            .unwrap_or_default();
    }
    let address = written_address(reader, &found.proxy.key);
    let address = address.map(|address| SocketAddr::new(address, found.listener.port));
    address.into_iter().collect()
}

fn written_address(reader: &Reader<'_>, proxy: &ObjectKey) -> Option<std::net::IpAddr> {
    match reader.object(proxy)? {
        Resource::Dataplane(dataplane) => dataplane.reachable_address().parse().ok(),
        _ => None,
    }
}
