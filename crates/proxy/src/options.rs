//! What an operator says when the data plane is started. It stays the same until it ends.

use std::path::PathBuf;
use std::sync::Arc;

use pointsman_binding::{EndpointPolicy, Network};

use crate::limits::Limits;
use crate::sockets::SocketFactory;

/// Settings of the data plane.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Threads that carry traffic; one per core if none.
    pub workers: Option<usize>,
    /// What is too much.
    pub limits: Limits,
    /// Whose word on `x-forwarded-*` is believed.
    pub trusted_proxies: Vec<Network>,
    /// Creates the sockets of listeners and to endpoints.
    pub sockets: SocketFactory,
    /// Addresses that DNS names of backends may resolve to.
    pub endpoints: Arc<EndpointPolicy>,
    /// Whether and how requests are logged.
    pub access_log: Option<AccessLogOptions>,
}

/// How requests are logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLogOptions {
    /// In which form.
    pub format: AccessLogFormat,
    /// Where to; standard output if none.
    pub file: Option<PathBuf>,
}

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// For people.
    Text,
    /// For tools: an object per line.
    Json,
}
