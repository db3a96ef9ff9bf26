//! Which installation this is: several may share a cluster, each with GatewayClasses and status entries of its own.

use std::sync::Arc;

use pointsman_resources::gateway::GatewayClass;
use pointsman_resources::policy::XMesh;

use crate::Binder;
use crate::store::{Input, Query};

/// Name under which GatewayClasses and meshes are served and status entries are signed, unless the operator sets another.
pub const CONTROLLER_NAME: &str = "pointsman.io/controller";

/// Identity of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// `controllerName` of the GatewayClasses and meshes that are served, and of status entries.
    pub name: Arc<str>,
    /// The only GatewayClass that is served, of those with this `controllerName`; all of them if `None`.
    pub class: Option<Arc<str>>,
}

impl Default for Controller {
    fn default() -> Self {
        Controller {
            name: CONTROLLER_NAME.into(),
            class: None,
        }
    }
}

impl Controller {
    /// Reports whether a GatewayClass is one of this installation's.
    pub(crate) fn serves_class(&self, class: &GatewayClass) -> bool {
        let is_chosen = |only: &Arc<str>| *only == class.metadata.name;
        class.spec.controller_name == *self.name && self.class.as_ref().is_none_or(is_chosen)
    }

    /// Reports whether a mesh is one of this installation's.
    pub(crate) fn serves_mesh(&self, mesh: &XMesh) -> bool {
        mesh.spec.controller_name == *self.name
    }
}

impl Binder {
    pub(crate) fn set_controller(&mut self, controller: Arc<Controller>) {
        if self.store.controller == controller {
            return;
        }
        self.store.controller = controller;
        self.tracker.invalidate_readers(&Input::Controller);
        // Each status carries the name.
        for key in self.statuses.keys() {
            self.tracker.invalidate(Query::Status(key.clone()));
        }
    }
}
