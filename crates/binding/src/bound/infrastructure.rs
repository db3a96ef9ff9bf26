//! Objects to generate for a Gateway on Kubernetes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use pointsman_resources::Name;
use pointsman_resources::parameters::GatewayParametersSpec;

use super::Transport;

/// Input for the objects that are generated for a Gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Infrastructure {
    /// The Gateway.
    pub gateway: Name,
    /// Identifier of the Gateway, which owns the objects; `None` if it is not from an API server.
    pub uid: Option<Arc<str>>,
    /// GatewayClass of the Gateway.
    pub class: Arc<str>,
    /// Ports of its listeners, those of ListenerSets included. Without any, for example because the Gateway is not accepted, existing objects stay as
    /// they are and none are created.
    pub ports: BTreeSet<(u16, Transport)>,
    /// Labels of all generated objects.
    pub labels: BTreeMap<String, String>,
    /// Annotations of all generated objects.
    pub annotations: BTreeMap<String, String>,
    /// Requested addresses.
    pub addresses: Vec<IpAddr>,
    /// Parameters of the class and of the Gateway, merged.
    pub parameters: Arc<GatewayParametersSpec>,
}
