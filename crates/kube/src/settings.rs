//! What an operator decides about a controller. Several installations share a cluster if their controller names differ.

use pointsman_binding::Controller;

/// Settings of a controller.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Identity of this installation: its controller name, and the only GatewayClass that it serves, if there is one.
    pub controller: Controller,
    /// Namespaces whose objects are watched; all if empty.
    ///
    /// A Role in each of them is permission enough. Objects outside namespaces are watched as far as permissions allow; the GatewayClass that
    /// [`controller`](Settings::controller) names is taken to exist where GatewayClasses may not be read.
    pub watch_namespaces: Vec<String>,
}
