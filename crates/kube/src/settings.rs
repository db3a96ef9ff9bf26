//! What an operator decides about a controller. Several installations share a cluster if their controller names differ.

/// Settings of a controller.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Namespaces whose objects are watched; all if empty. Objects outside namespaces are watched in either case, as far as permissions allow.
    pub watch_namespaces: Vec<String>,
}
