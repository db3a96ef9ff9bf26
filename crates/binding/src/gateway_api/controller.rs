//! Identity of an installation. Several may share a cluster, each with its own GatewayClasses and status entries.

use std::fmt;
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
    /// Checks a limit in GatewayParameters.
    pub check_limit: LimitCheck,
}

/// Checks the name and the value of a limit of proxies; an error says what is accepted. Limits are defined where they are enforced, which this crate does not depend on.
#[derive(Clone, Copy)]
pub struct LimitCheck(pub fn(name: &str, value: &str) -> Result<(), String>);

impl Default for LimitCheck {
    /// Accepts everything.
    fn default() -> Self {
        LimitCheck(|_, _| Ok(()))
    }
}

impl fmt::Debug for LimitCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LimitCheck(..)")
    }
}

impl PartialEq for LimitCheck {
    /// A process has one.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for LimitCheck {}

impl Default for Controller {
    fn default() -> Self {
        Controller {
            name: CONTROLLER_NAME.into(),
            class: None,
            generates_proxies: false,
            check_limit: LimitCheck::default(),
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
