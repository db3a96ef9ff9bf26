//! Who attaches to whom, what conflicts, what merges, what each reference resolves to.

pub mod bound;

use std::sync::Arc;

use bound::{Backend, BackendId, BoundRoute, Frontend, FrontendId};
use pointsman_resources::ObjectKey;

/// What changed in the bound form. `None` is gone.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    /// Frontends.
    pub frontends: Vec<(FrontendId, Option<Arc<Frontend>>)>,
    /// Which routes govern which frontends.
    pub attachments: Vec<((FrontendId, ObjectKey), Option<Arc<BoundRoute>>)>,
    /// Backends, with their endpoints.
    pub backends: Vec<(BackendId, Option<Arc<Backend>>)>,
}
