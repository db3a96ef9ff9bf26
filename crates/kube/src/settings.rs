//! Settings of a controller. Several installations can share a cluster if their controller names differ.

use std::net::SocketAddr;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use pointsman_binding::Controller;

use crate::gateways::InfrastructureSettings;
use crate::identity::authority::AuthoritySettings;

/// Settings of a controller.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Identity of this installation: its controller name, and the only GatewayClass that it serves, if there is one.
    pub controller: Controller,
    /// Namespaces whose objects are watched; all if empty.
    ///
    /// Requires a Role in each of them, and a ClusterRole only for GatewayClasses and TokenReviews. Other cluster-scoped objects are watched as far as permissions
    /// allow. Without permission to read GatewayClasses, the one named by [`controller`](Settings::controller) is assumed to exist; if none is named, the
    /// controller waits for the permission.
    pub watch_namespaces: Vec<String>,
    /// Lease whose holder writes statuses; `None` if this process has no replicas.
    pub lease: Option<LeaseName>,
    /// Name of this process, unique among its replicas, such as the name of its Pod.
    pub instance: Arc<str>,
    /// Owner of the Lease and of the Secret with the authority, so that they are removed with it; `None` outside a Pod.
    pub owner: Option<OwnerReference>,
    /// Address at which this process serves proxies and its replicas, published in the Lease.
    pub address: Option<SocketAddr>,
    /// Certificate authority of the control plane; `None` if proxies are not served with its certificates.
    pub authority: Option<AuthoritySettings>,
    /// Settings of generated proxies; `None` if no proxies are generated for Gateways. Requires an authority.
    pub infrastructure: Option<InfrastructureSettings>,
}

/// Name of a Lease.
#[derive(Clone, Debug)]
pub struct LeaseName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}
