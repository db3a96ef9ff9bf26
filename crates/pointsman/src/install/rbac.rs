//! ServiceAccount, Roles and ClusterRoles, from the table of permissions.

use pointsman_kube::permissions::{self, Permission, Scope};
use serde_json::{Value, json};

use super::{NAME, labels, metadata};
use crate::cli::Install;

/// API group of Roles.
const GROUP: &str = "rbac.authorization.k8s.io";

/// Returns the ServiceAccount and its permissions: a Role in the controller's namespace and a ClusterRole. With watched namespaces, the ClusterRole covers
/// only what can't be granted in a namespace, and each watched namespace gets a Role.
pub fn objects(arguments: &Install) -> Vec<Value> {
    let mut objects = vec![json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(arguments, NAME),
    })];
    // Names outside the own namespace contain the installation that they belong to.
    let elsewhere = format!("{NAME}.{}", arguments.namespace);
    let cluster: &[Scope] = match arguments.watch_namespaces.is_empty() {
        true => &[Scope::Cluster, Scope::Unrestricted, Scope::Watched],
        false => &[Scope::Cluster],
    };
    objects.extend(role(arguments, &elsewhere, None, &rules(cluster)));
    let own = rules(&[Scope::Own]);
    objects.extend(role(arguments, NAME, Some(&arguments.namespace), &own));
    let watched = rules(&[Scope::Watched]);
    for namespace in &arguments.watch_namespaces {
        objects.extend(role(arguments, &elsewhere, Some(namespace), &watched));
    }
    objects
}

/// Returns the rules of some scopes.
pub fn rules(scopes: &[Scope]) -> Vec<&'static Permission> {
    let scopes = scopes.iter().copied();
    scopes.flat_map(permissions::with_scope).collect()
}

/// Returns a Role, or a ClusterRole if there is no namespace, and its binding.
fn role(
    arguments: &Install,
    name: &str,
    namespace: Option<&str>,
    rules: &[&Permission],
) -> [Value; 2] {
    let prefix = if namespace.is_some() { "" } else { "Cluster" };
    let mut metadata = json!({"name": name});
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    metadata["labels"] = labels();
    let api_version = format!("{GROUP}/v1");
    let kind = format!("{prefix}Role");
    [
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "rules": rules}),
        json!({
            "apiVersion": api_version,
            "kind": format!("{prefix}RoleBinding"),
            "metadata": metadata,
            "roleRef": {"apiGroup": GROUP, "kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": arguments.namespace}],
        }),
    ]
}
