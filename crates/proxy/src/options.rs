//! Settings of the data plane, fixed at startup.

use std::path::PathBuf;
use std::sync::Arc;

use pointsman_binding::{EndpointPolicy, Network};
use pointsman_routing::PathPolicy;

use crate::limits::Limits;
use crate::sockets::SocketFactory;

/// Settings of the data plane.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Number of worker threads; one per core by default.
    pub workers: Option<usize>,
    /// Resource limits.
    pub limits: Limits,
    /// Proxies whose `x-forwarded-*` headers are trusted.
    pub trusted_proxies: Vec<Network>,
    /// Load balancers whose connections begin with a PROXY protocol header.
    pub proxy_protocol: Vec<Network>,
    /// Minimum TLS version of listeners.
    pub min_tls: TlsVersion,
    /// Node and zone of the proxy.
    pub location: Location,
    /// Number that is added to low listener ports behind a load balancer, which clients don't see.
    pub hidden_port_offset: u16,
    /// Paths that are served.
    pub paths: PathPolicy,
    /// Creates listening and upstream sockets.
    pub sockets: SocketFactory,
    /// Addresses that DNS names of backends may resolve to.
    pub endpoints: Arc<EndpointPolicy>,
    /// Access log; `None` disables it.
    pub access_log: Option<AccessLogOptions>,
}

/// Location of a proxy. Endpoints with hints for it are preferred.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Location {
    /// Name of the Kubernetes node.
    pub node: Option<String>,
    /// Zone of the node, the value of its label `topology.kubernetes.io/zone`.
    pub zone: Option<String>,
}

/// Settings of the access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLogOptions {
    /// Format of the entries.
    pub format: AccessLogFormat,
    /// Destination; standard output by default.
    pub file: Option<PathBuf>,
}

/// Format of access log entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// Columns and `name=value` pairs, for people.
    Text,
    /// One JSON object per line, for tools.
    Json,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    V1_2,
    /// TLS 1.3.
    V1_3,
}

impl TlsVersion {
    /// Returns this version and all later ones.
    pub(crate) fn and_later(self) -> &'static [&'static rustls::SupportedProtocolVersion] {
        static V1_3: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];
        match self {
            TlsVersion::V1_2 => rustls::ALL_VERSIONS,
            TlsVersion::V1_3 => V1_3,
        }
    }
}
