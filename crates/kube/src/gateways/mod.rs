//! The objects that are generated for each Gateway: a workload of proxies, a Service in front of them, and the objects that these need.
//!
//! ```text
//!  Infrastructure (crates/binding) ──► objects ──► Applier ──► API server
//!                                                     ▲            │
//!                                                     └─ watches  ◄┘ ──► InfrastructureState ──► Inbox
//! ```
//!
//! - `objects` is a pure function from a Gateway to its objects; `name` gives them names.
//! - `watch` watches generated objects, `observed` extracts the relevant facts, and `state` derives the state of a Gateway from them, for its status.
//! - `registry` holds the desired and the observed objects of all Gateways.
//! - `applier` applies the desired objects while this process is the leader.
//! - `accounts` finds the Gateways whose proxies have a ServiceAccount.
//! - `owner` decides which objects belong to a Gateway. No other object is ever changed.

mod accounts;
mod applier;
mod fingerprint;
mod name;
pub(crate) mod objects;
mod observed;
mod owner;
mod registry;
mod state;
mod watch;

use std::net::IpAddr;
use std::time::Duration;

pub use accounts::GatewayAccounts;
pub(crate) use applier::Applier;
pub use name::{label_value, object_name};
pub use registry::InfrastructureSink;
pub(crate) use registry::Registry;
pub(crate) use watch::{Watches, scopes as watch_scopes};

/// Default of [`InfrastructureSettings::replacement_deadline`], which is that of a rollout of a Deployment.
pub const REPLACEMENT_DEADLINE: Duration = Duration::from_secs(600);

/// Settings of the installation for generated objects.
#[derive(Clone, Debug)]
pub struct InfrastructureSettings {
    /// Image of the proxies.
    pub image: String,
    /// `imagePullPolicy` of the proxies.
    pub pull_policy: String,
    /// URL at which proxies reach the control plane.
    pub control_plane: String,
    /// Address on which proxies listen for probes: 0.0.0.0, or :: on clusters with IPv6.
    pub probes: IpAddr,
    /// Identity of the installation, which is the field manager of the objects too.
    pub controller_name: String,
    /// Flags of proxies with the addresses that DNS names of backends may resolve to. The addresses of endpoints are checked by the controller.
    pub endpoint_flags: Vec<String>,
    /// Time for which a replaced workload stays while its replacement is not ready.
    pub replacement_deadline: Duration,
}
