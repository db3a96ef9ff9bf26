//! Permissions that the operator gives to authors of manifests.

use std::sync::Arc;

use pointsman_binding::EndpointPolicy;

use crate::ContentAccess;

/// Files, variables and addresses that manifests may use. The default allows no files or variables but all addresses, which is suitable for manifests that the
/// operator has written.
#[derive(Clone, Debug, Default)]
pub struct ManifestPermissions {
    /// Files and environment variables that manifests may read.
    pub content: ContentAccess,
    /// Addresses that endpoints may have.
    pub endpoints: Arc<EndpointPolicy>,
}
