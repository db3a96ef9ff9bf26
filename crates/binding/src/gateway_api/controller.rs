//! Identity of an installation. Several may share a cluster, each with its own GatewayClasses and status entries.

use std::sync::Arc;

use pointsman_resources::gateway::GatewayClass;
use pointsman_resources::policy::XMesh;

use crate::Binder;
use crate::engine::{Input, Query};

/// Default controller name, in GatewayClasses, XMeshes and status entries.
pub const CONTROLLER_NAME: &str = "pointsman.io/controller";

/// Identity of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// `controllerName` of the GatewayClasses and XMeshes that it manages, and of status entries.
    pub name: Arc<str>,
    /// The only GatewayClass to serve among those with this `controllerName`; `None` for all of them.
    pub class: Option<Arc<str>>,
    /// True if it generates proxies for Gateways, whose addresses are then those of generated Services.
    pub generates_proxies: bool,
}

impl Default for Controller {
    fn default() -> Self {
        Controller {
            name: CONTROLLER_NAME.into(),
            class: None,
            generates_proxies: false,
        }
    }
}

impl Controller {
    /// Returns whether this installation serves a GatewayClass.
    pub(crate) fn serves_class(&self, class: &GatewayClass) -> bool {
        let is_chosen = |only: &Arc<str>| *only == class.metadata.name;
        class.spec.controller_name == *self.name && self.class.as_ref().is_none_or(is_chosen)
    }

    /// Returns whether this installation manages a mesh.
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
        self.placement.record_gateway_change();
        // Every status contains the name.
        for key in self.statuses.keys() {
            self.tracker.invalidate(Query::Status(key.clone()));
        }
    }
}
