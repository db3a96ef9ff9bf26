//! What the operator permits the authors of manifests.

use std::sync::Arc;

use pointsman_binding::EndpointPolicy;

use crate::ContentAccess;

/// What manifests may reach. The default reads no files for them and lets every address be an endpoint, as is right for manifests that the operator has
/// written.
#[derive(Clone, Debug, Default)]
pub struct Permissions {
    /// Files and environment variables.
    pub content: ContentAccess,
    /// Addresses of endpoints.
    pub endpoints: Arc<EndpointPolicy>,
}
