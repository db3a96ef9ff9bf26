//! Requests that a controller makes to the API server, with their purpose. `pointsman install`, the Helm chart and the documentation take their permissions
//! from here.

use pointsman_resources::meta::{
    CERTIFICATES_GROUP, GATEWAY_GROUP, GATEWAY_X_GROUP, KUMA_GROUP, MCS_GROUP, POINTSMAN_GROUP,
};
use serde::Serialize;

use crate::identity::authority::SECRET_NAME;
use crate::lease::LEASE_NAME;

/// Objects that a permission covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Cluster-scoped objects that every controller needs.
    Cluster,
    /// Cluster-scoped objects that a controller restricted to namespaces does not need.
    Unrestricted,
    /// Objects in the watched namespaces, which are all namespaces by default.
    Watched,
    /// Objects in the controller's own namespace.
    Own,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Scope; 4] = [
        Scope::Cluster,
        Scope::Unrestricted,
        Scope::Watched,
        Scope::Own,
    ];

    /// Returns a description for documentation.
    pub fn description(self) -> &'static str {
        match self {
            Scope::Cluster => "cluster",
            Scope::Unrestricted => "cluster, not with `--watch-namespace`",
            Scope::Watched => "watched namespaces",
            Scope::Own => "own namespace",
        }
    }
}

/// A rule of a Role or ClusterRole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Permission {
    /// Objects that it covers.
    #[serde(skip)]
    pub scope: Scope,
    /// API groups; the core group is empty.
    pub api_groups: &'static [&'static str],
    /// Plural names of kinds, and subresources.
    pub resources: &'static [&'static str],
    /// Names of the only objects that it covers; all if empty.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub resource_names: &'static [&'static str],
    /// Kinds of requests.
    pub verbs: &'static [&'static str],
    /// Reason for the requests.
    #[serde(skip)]
    pub purpose: &'static str,
}

const CORE: &str = "";
/// An initial list, and a watch afterwards.
const WATCH: &[&str] = &["list", "watch"];
/// The same, and reading a single object after a conflict.
const WATCH_AND_GET: &[&str] = &["get", "list", "watch"];
/// Writing a part of an object.
const PATCH: &[&str] = &["patch"];

/// Creating, repairing and removing generated objects. An apply request is a patch, and creates objects too.
const GENERATE: &[&str] = &["get", "create", "patch", "delete"];
/// The same, for kinds that are watched only for this purpose.
const GENERATE_AND_WATCH: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];

/// Permissions of a controller. Each has a row in docs/kubernetes.md.
pub const PERMISSIONS: &[Permission] = &[
    Permission {
        scope: Scope::Cluster,
        api_groups: &[GATEWAY_GROUP],
        resources: &["gatewayclasses"],
        resource_names: &[],
        verbs: WATCH_AND_GET,
        purpose: "GatewayClasses with this controller's name",
    },
    Permission {
        scope: Scope::Cluster,
        api_groups: &[GATEWAY_GROUP],
        resources: &["gatewayclasses/status"],
        resource_names: &[],
        verbs: PATCH,
        purpose: "conditions and supported features",
    },
    Permission {
        scope: Scope::Unrestricted,
        api_groups: &["apiextensions.k8s.io"],
        resources: &["customresourcedefinitions"],
        resource_names: &[],
        verbs: WATCH,
        purpose: "metadata only: kinds that become available, and the release of the Gateway API",
    },
    Permission {
        scope: Scope::Unrestricted,
        api_groups: &[CORE],
        resources: &["namespaces"],
        resource_names: &[],
        verbs: WATCH,
        purpose: "labels, for `allowedRoutes.namespaces.from: Selector`",
    },
    Permission {
        scope: Scope::Unrestricted,
        api_groups: &[GATEWAY_X_GROUP],
        resources: &["xmeshes"],
        resource_names: &[],
        verbs: WATCH_AND_GET,
        purpose: "meshes with this controller's name",
    },
    Permission {
        scope: Scope::Unrestricted,
        api_groups: &[GATEWAY_X_GROUP],
        resources: &["xmeshes/status"],
        resource_names: &[],
        verbs: PATCH,
        purpose: "conditions and supported features",
    },
    Permission {
        scope: Scope::Unrestricted,
        api_groups: &[POINTSMAN_GROUP],
        resources: &["meshsettings"],
        resource_names: &[],
        verbs: WATCH,
        purpose: "settings of the mesh",
    },
    Permission {
        scope: Scope::Unrestricted,
        api_groups: &[CERTIFICATES_GROUP],
        resources: &["clustertrustbundles"],
        resource_names: &[],
        verbs: WATCH,
        purpose: "certificate authorities for client certificates and backends",
    },
    Permission {
        scope: Scope::Unrestricted,
        api_groups: &[KUMA_GROUP],
        resources: &["meshes"],
        resource_names: &[],
        verbs: WATCH,
        purpose: "Kuma's meshes, if their CRD is installed",
    },
    Permission {
        scope: Scope::Unrestricted,
        api_groups: &[KUMA_GROUP],
        resources: &["meshgateways"],
        resource_names: &[],
        verbs: WATCH_AND_GET,
        purpose: "Kuma's gateways, if their CRD is installed",
    },
    Permission {
        scope: Scope::Unrestricted,
        api_groups: &[KUMA_GROUP],
        resources: &["meshgateways/status"],
        resource_names: &[],
        verbs: PATCH,
        purpose: "conditions",
    },
    Permission {
        scope: Scope::Watched,
        api_groups: &[GATEWAY_GROUP],
        resources: &[
            "gateways",
            "listenersets",
            "httproutes",
            "grpcroutes",
            "tlsroutes",
            "tcproutes",
            "udproutes",
            "backendtlspolicies",
        ],
        resource_names: &[],
        verbs: WATCH_AND_GET,
        purpose: "configuration",
    },
    Permission {
        scope: Scope::Watched,
        api_groups: &[GATEWAY_GROUP],
        resources: &[
            "gateways/status",
            "listenersets/status",
            "httproutes/status",
            "grpcroutes/status",
            "tlsroutes/status",
            "tcproutes/status",
            "udproutes/status",
            "backendtlspolicies/status",
        ],
        resource_names: &[],
        verbs: PATCH,
        purpose: "conditions, addresses and attached routes",
    },
    Permission {
        scope: Scope::Watched,
        api_groups: &[GATEWAY_GROUP],
        resources: &["referencegrants"],
        resource_names: &[],
        verbs: WATCH,
        purpose: "permission of references to other namespaces",
    },
    Permission {
        scope: Scope::Watched,
        api_groups: &[GATEWAY_X_GROUP],
        resources: &["xbackends", "xbackendtrafficpolicies", "xtelemetrypolicies"],
        resource_names: &[],
        verbs: WATCH_AND_GET,
        purpose: "configuration, in the experimental channel",
    },
    Permission {
        scope: Scope::Watched,
        api_groups: &[GATEWAY_X_GROUP],
        resources: &[
            "xbackends/status",
            "xbackendtrafficpolicies/status",
            "xtelemetrypolicies/status",
        ],
        resource_names: &[],
        verbs: PATCH,
        purpose: "conditions",
    },
    Permission {
        scope: Scope::Watched,
        api_groups: &[KUMA_GROUP],
        resources: &[
            "dataplanes",
            "meshservices",
            "meshmultizoneservices",
            "meshgatewayinstances",
        ],
        resource_names: &[],
        verbs: WATCH,
        purpose: "Kuma's proxies and services, if their CRDs are installed",
    },
    Permission {
        scope: Scope::Watched,
        api_groups: &[KUMA_GROUP],
        resources: &[
            "meshexternalservices",
            "meshhttproutes",
            "meshtcproutes",
            "meshgatewayhttproutes",
        ],
        resource_names: &[],
        verbs: WATCH_AND_GET,
        purpose: "Kuma's policies and external services, if their CRDs are installed",
    },
    Permission {
        scope: Scope::Watched,
        api_groups: &[KUMA_GROUP],
        resources: &[
            "meshexternalservices/status",
            "meshhttproutes/status",
            "meshtcproutes/status",
            "meshgatewayhttproutes/status",
        ],
        resource_names: &[],
        verbs: PATCH,
        purpose: "conditions, where the CRDs have the subresource",
    },
    Permission {
        scope: Scope::Watched,
        api_groups: &[CORE],
        resources: &["services"],
        resource_names: &[],
        verbs: WATCH,
        purpose: "ports and protocols of backends",
    },
    Permission {
        scope: Scope::Watched,
        api_groups: &["discovery.k8s.io"],
        resources: &["endpointslices"],
        resource_names: &[],
        verbs: WATCH,
        purpose: "addresses of backends",
    },
    Permission {
        scope: Scope::Watched,
        api_groups: &[MCS_GROUP],
        resources: &["serviceimports"],
        resource_names: &[],
        verbs: WATCH,
        purpose: "services of other clusters, if their CRD is installed",
    },
    Permission {
        scope: Scope::Watched,
        api_groups: &[CORE],
        resources: &["pods"],
        resource_names: &[],
        verbs: WATCH,
        purpose: "endpoints that XBackends select, and the clients of mesh routes",
    },
    Permission {
        scope: Scope::Watched,
        api_groups: &[CORE],
        resources: &["secrets"],
        resource_names: &[],
        verbs: WATCH,
        purpose: "certificates and keys of listeners. Service account tokens and Helm releases are left out",
    },
    Permission {
        scope: Scope::Watched,
        api_groups: &[CORE],
        resources: &["configmaps"],
        resource_names: &[],
        verbs: WATCH,
        purpose: "certificate authorities; only the key `ca.crt` is kept",
    },
    Permission {
        scope: Scope::Watched,
        api_groups: &["events.k8s.io"],
        resources: &["events"],
        resource_names: &[],
        verbs: &["create", "get", "patch"],
        purpose: "Events on objects with problems",
    },
    Permission {
        scope: Scope::Watched,
        api_groups: &[POINTSMAN_GROUP],
        resources: &["gatewayparameters"],
        resource_names: &[],
        verbs: WATCH,
        purpose: "parameters of generated objects",
    },
    Permission {
        scope: Scope::Watched,
        api_groups: &["apps"],
        resources: &["deployments", "daemonsets"],
        resource_names: &[],
        verbs: GENERATE_AND_WATCH,
        purpose: "proxies of Gateways",
    },
    Permission {
        scope: Scope::Watched,
        api_groups: &[CORE],
        resources: &["serviceaccounts"],
        resource_names: &[],
        verbs: GENERATE_AND_WATCH,
        purpose: "identity of the proxies of a Gateway, without permissions",
    },
    Permission {
        scope: Scope::Watched,
        api_groups: &[CORE],
        resources: &["services", "configmaps"],
        resource_names: &[],
        verbs: GENERATE,
        purpose: "Services of Gateways, and the control plane's certificate authority for their proxies",
    },
    Permission {
        scope: Scope::Watched,
        api_groups: &["policy"],
        resources: &["poddisruptionbudgets"],
        resource_names: &[],
        verbs: GENERATE_AND_WATCH,
        purpose: "limits to the eviction of proxies",
    },
    Permission {
        scope: Scope::Watched,
        api_groups: &["autoscaling"],
        resources: &["horizontalpodautoscalers"],
        resource_names: &[],
        verbs: GENERATE_AND_WATCH,
        purpose: "number of proxies, if GatewayParameters configure autoscaling",
    },
    Permission {
        scope: Scope::Cluster,
        api_groups: &["authentication.k8s.io"],
        resources: &["tokenreviews"],
        resource_names: &[],
        verbs: &["create"],
        purpose: "tokens by which proxies identify themselves",
    },
    Permission {
        scope: Scope::Own,
        api_groups: &[CORE],
        resources: &["secrets"],
        resource_names: &[SECRET_NAME],
        verbs: &["get", "update"],
        purpose: "certificate authority of the control plane",
    },
    Permission {
        scope: Scope::Own,
        api_groups: &["coordination.k8s.io"],
        resources: &["leases"],
        resource_names: &[LEASE_NAME],
        verbs: &["get", "update"],
        purpose: "leader election",
    },
    Permission {
        scope: Scope::Own,
        api_groups: &[CORE],
        resources: &["secrets"],
        resource_names: &[],
        verbs: &["create"],
        purpose: "creation of the certificate authority",
    },
    Permission {
        scope: Scope::Own,
        api_groups: &["coordination.k8s.io"],
        resources: &["leases"],
        resource_names: &[],
        verbs: &["create"],
        purpose: "creation of the Lease",
    },
];

/// Returns the permissions with a scope.
pub fn with_scope(scope: Scope) -> impl Iterator<Item = &'static Permission> {
    let all = PERMISSIONS.iter();
    all.filter(move |permission| permission.scope == scope)
}

#[cfg(test)]
mod tests {
    use pointsman_resources::Kind;

    use super::*;

    /// Plural of a kind, as in its CustomResourceDefinition.
    fn plural(kind: Kind) -> String {
        let name = kind.name().to_ascii_lowercase();
        match &name {
            name if name.ends_with("settings") || name.ends_with("parameters") => name.clone(),
            name if name.ends_with(['s', 'h']) => format!("{name}es"),
            name => match name.strip_suffix("cy") {
                Some(stem) => format!("{stem}cies"),
                None => format!("{name}s"),
            },
        }
    }

    fn granted(group: &str, resource: &str, verb: &str) -> Vec<Scope> {
        let covers = |permission: &&Permission| {
            permission.api_groups.contains(&group)
                && permission.resources.contains(&resource)
                && permission.verbs.contains(&verb)
        };
        let all = PERMISSIONS.iter().filter(covers);
        all.map(|permission| permission.scope).collect()
    }

    #[test]
    fn every_kind_may_be_watched_and_only_own_statuses_written() {
        for kind in Kind::ALL {
            let (group, plural) = (kind.group(), plural(kind));
            let scopes = match kind {
                Kind::GatewayClass => [Scope::Cluster],
                kind if kind.is_cluster_scoped() => [Scope::Unrestricted],
                _ => [Scope::Watched],
            };
            for verb in WATCH {
                assert_eq!(granted(group, &plural, verb), scopes, "{verb} {plural}");
            }
            let has_status = pointsman_binding::has_status(kind);
            let expected = if has_status { &scopes[..] } else { &[] };
            let status = format!("{plural}/status");
            assert_eq!(granted(group, &status, "patch"), expected, "{status}");
            let can_get = !granted(group, &plural, "get").is_empty();
            assert!(can_get || !has_status, "get {plural}, after a conflict");
        }
    }

    #[test]
    fn nothing_is_granted_by_a_wildcard_or_twice() {
        let mut seen = std::collections::BTreeSet::new();
        for permission in PERMISSIONS {
            for group in permission.api_groups {
                for resource in permission.resources {
                    for verb in permission.verbs {
                        assert!(![group, resource, verb].contains(&&"*"), "{permission:?}");
                        let cell = (permission.scope, *group, *resource, *verb);
                        assert!(seen.insert(cell), "{cell:?} is granted twice");
                    }
                }
            }
            assert!(!permission.purpose.is_empty());
        }
    }
}
