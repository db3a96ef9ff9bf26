//! Listeners of MeshGateways that are for the proxies of all meshes (`crossMesh`): who comes in there, and how the others find them.
//!
//! "crossMesh: plain HTTP protocol in the manifest, served over mesh mTLS; reachable from other meshes (and own); refused from outside any
//! mesh." A Dataplane finds one by an outbound whose tag `kuma.io/mesh` names the gateway's mesh. What proxies show each other comes from
//! outside ([`MeshIdentity`](crate::bound::MeshIdentity)); where nothing does, as in `check`, all else is told.

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
use crate::store::Reader;

/// The tag of an outbound that names the mesh of the gateway behind it.
pub(super) const MESH_TAG: &str = MESH_LABEL;

/// No name is asked for in the handshake, as certificates of a mesh carry a URI; but TLS wants to name some server.
const ANY_SERVER: &str = "gateway.mesh";

/// Whether a destination is a gateway's listener for all meshes.
pub(super) fn is_cross_mesh(id: &BackendId) -> bool {
    id.port == 0 && id.tags.iter().any(|(name, _)| name == MESH_TAG)
}

/// Whether the proxies of a mesh speak mutual TLS.
pub(super) fn mesh_has_mtls(reader: &Reader<'_>, mesh: &str) -> bool {
    let found = reader.kuma_mesh(&Name::new("", mesh));
    found.is_some_and(|mesh| mesh.spec.has_mtls())
}

/// What such a listener shows, and whom it lets in: the proxies of all meshes. None if that is not known here.
pub(super) fn server_tls(
    reader: &Reader<'_>,
    mesh: &str,
) -> Result<Option<Arc<FrontendTls>>, String> {
    if !mesh_has_mtls(reader, mesh) {
        return Err(format!(
            "mTLS must be enabled for crossMesh-enabled MeshGateways, and nothing says that it is in mesh {mesh}"
        ));
    }
    let all = reader.identities();
    match all.get(mesh) {
        None => return Ok(None),
        Some(Err(why)) => return Err(format!("mesh {mesh} has no certificate to show: {why}")),
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

/// Why a proxy of this mesh is not let in at a destination; none if it is.
pub(super) fn caller_fault(reader: &Reader<'_>, mesh: &str, to: &BackendId) -> Option<Fault> {
    let away = is_cross_mesh(to) && !mesh_has_mtls(reader, mesh);
    away.then(|| Fault {
        status: 503,
        reason: FaultReason::NoMutualTls,
        message: format!(
            "{to} lets in who shows a certificate of a mesh, and nothing says that mesh {mesh} has mTLS"
        ),
    })
}

/// A listener that a destination stands for.
struct CrossMeshListener<'a> {
    id: FrontendId,
    proxy: MeshProxy,
    listener: &'a MeshGatewayListener,
}

/// The listeners that a destination stands for: those of its mesh's builtin gateways of that service that have its tags.
fn listeners<'a>(reader: &Reader<'a>, to: &BackendId) -> Vec<CrossMeshListener<'a>> {
    let mesh = to.object.namespace().trim_start_matches("mesh:");
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

/// What is spoken behind the TLS of such a destination; none if there is no listener.
pub(super) fn protocol(reader: &Reader<'_>, to: &BackendId) -> Option<&'static str> {
    let found = listeners(reader, to);
    let is_http = |found: &CrossMeshListener<'_>| found.listener.protocol == ListenerProtocol::Http;
    match (found.is_empty(), found.iter().all(is_http)) {
        (true, _) => None,
        (false, true) => Some("http"),
        (false, false) => Some("tcp"),
    }
}

/// Such a destination as a backend.
pub(super) fn backend(reader: &Reader<'_>, to: &BackendId) -> (Backend, Endpoints) {
    let mut addresses: Vec<BoundEndpoint> = listeners(reader, to)
        .iter()
        .flat_map(|found| listener_addresses(reader, found))
        .map(|address| BoundEndpoint {
            address,
            terminating: false,
        })
        .collect();
    addresses.sort();
    addresses.dedup();
    let mesh = to.object.namespace().trim_start_matches("mesh:");
    let tls = reader.identities().get(mesh).map(|theirs| {
        let theirs = theirs.as_ref().map_err(|why| Fault {
            status: 503,
            reason: FaultReason::NoMutualTls,
            message: format!("mesh {mesh} has no certificate to show: {why}"),
        })?;
        Ok(Arc::new(BackendTls {
            hostname: ANY_SERVER.into(),
            trust: Trust::Authorities(vec![theirs.authority.clone()]),
            names: vec![PeerName::Uri(theirs.uri.to_string())],
            // Each caller shows what its own mesh has.
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

/// Reports whether a data plane has placed all listeners that a destination stands for.
pub(super) fn is_placed(reader: &Reader<'_>, to: &BackendId) -> bool {
    listeners(reader, to).iter().all(|found| match &found.id {
        FrontendId::Listener { gateway, .. } => reader.observation(gateway).is_some(),
        _ => false,
    })
}

/// Where a listener is found: where it was put, or else at its Dataplane's address.
fn listener_addresses(reader: &Reader<'_>, found: &CrossMeshListener<'_>) -> Vec<SocketAddr> {
    let FrontendId::Listener { gateway, .. } = &found.id else {
        return Vec::new();
    };
    if let Some(seen) = reader.observation(gateway) {
        return seen.places.get(&found.id).cloned().unwrap_or_default();
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
