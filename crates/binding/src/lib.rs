//! Binds routes and policies to the objects that they reference: attachment, conflicts, merging, and resolution of references.
//!
//! [`Binder::apply`] takes changes to objects and returns the resulting changes of the bound form and of statuses. The binder caches results and records
//! their inputs, so the cost of a change depends on the results that it affects, not on the size of the cluster. Nothing here does I/O or reads a clock.

pub mod bound;
mod endpoint_policy;
mod engine;
mod gateway_api;
mod kuma;
pub mod status;
pub mod x509;

use std::net::IpAddr;
use std::sync::Arc;

use bound::{
    AddressRequest, Attachment, Backend, BackendId, BoundRule, CertifiedKey, Endpoints, Frontend,
    FrontendId, Infrastructure, MeshIdentity, RouteId, RouteMeta, RuleId, SecretId,
    ServiceAddresses, Workload,
};
use pointsman_resources::kuma::DataSource;
use pointsman_resources::{Name, ObjectKey, Resource};
use status::Status;

pub use endpoint_policy::{
    EndpointPolicy, Network, OwnServer, OwnServers, RefusedAddress, is_reached_at,
};
pub use engine::Binder;
pub use gateway_api::certificates::parse_certified_key;
pub use gateway_api::controller::{CONTROLLER_NAME, Controller, LimitCheck};
pub use gateway_api::grants::sentence as without_manifests;
pub use gateway_api::infrastructure::InfrastructureState;
pub use gateway_api::observation::Observation;
pub use gateway_api::served_api::ServedApi;
pub use kuma::{MergedRule, MergedRules, UnresolvedOutbound};
pub use status::certificate_warnings::CERTIFICATE_KINDS;
pub use status::effect::{Effect, ExpectedChange, OutdatedProxies, RouteEffect};
pub use status::has_status;
pub use status::warnings::Warning;

/// A change to one of the binder's inputs.
#[derive(Clone, Debug)]
pub enum Change {
    /// Adds or replaces an object.
    Put(Resource),
    /// Removes an object.
    Delete(ObjectKey),
    /// Sets the state of a Gateway in the data plane. Without one, the Gateway is assumed to be programmed as written.
    Observe(Name, Option<Observation>),
    /// Sets the state of the objects that are generated for a Gateway; `None` if there are none yet.
    ObserveInfrastructure(Name, Option<InfrastructureState>),
    /// Sets the location (file and line) of an object that validation rejected, for the status of objects that reference it; `None` if it is valid or gone.
    Reject(ObjectKey, Option<Arc<str>>),
    /// Sets whether a backend is needed even without a route: that of a Service called by its own address.
    Need(BackendId, bool),
    /// Sets the content of a file or environment variable that a policy names, or the reason why it can't be read; `None` if unknown.
    Content(DataSource, Option<Content>),
    /// Sets the certificate of a Kuma mesh, or the reason why there is none; `None` if unknown, as in `check`.
    Identity(Arc<str>, Option<Identity>),
    /// Sets the reason why the newest version of a Secret is not used and an earlier one stays in effect; `None` if the newest is used.
    RetainSecret(Name, Option<String>),
    /// Sets the identity of this installation.
    Controller(Arc<Controller>),
    /// Sets the kinds that the cluster serves.
    ServedApi(Arc<ServedApi>),
    /// Sets which addresses may be endpoints.
    EndpointPolicy(Arc<EndpointPolicy>),
    /// Sets the addresses of a backend's DNS name that a proxy resolved and refused.
    RefusedResolution(Arc<str>, Vec<IpAddr>),
    /// Sets on which proxies the current configuration of a route or policy is in effect; `None` if that is not observed, as in `check`.
    Effect(ObjectKey, Option<Arc<RouteEffect>>),
    /// States that all bound resources are in effect once they are committed, because the data plane is in this process.
    EffectOnCommit,
}

/// The certificate that proxies of a Kuma mesh present to each other, or the reason why there is none.
pub type Identity = Result<Arc<MeshIdentity>, String>;

/// Content of a data source, or the reason why it can't be read.
pub type Content = Result<Arc<[u8]>, String>;

/// Changes to the bound form and to statuses. A value of `None` is a removal.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    /// Frontends.
    pub frontends: Vec<(FrontendId, Option<Arc<Frontend>>)>,
    /// Attached routes, without their rules.
    pub routes: Vec<(RouteId, Option<Arc<RouteMeta>>)>,
    /// Rules of attached routes.
    pub rules: Vec<(RuleId, Option<Arc<BoundRule>>)>,
    /// Attachments: `true` for an added one, `false` for a removed one.
    pub attachments: Vec<(Attachment, bool)>,
    /// Backends.
    pub backends: Vec<(BackendId, Option<Arc<Backend>>)>,
    /// Endpoints of backends.
    pub endpoints: Vec<(BackendId, Option<Arc<Endpoints>>)>,
    /// Certificates with their keys.
    pub secrets: Vec<(SecretId, Option<Arc<CertifiedKey>>)>,
    /// Addresses that Gateways request.
    pub gateways: Vec<(Name, Option<Arc<AddressRequest>>)>,
    /// Objects to generate for Gateways, if this installation generates any.
    pub infrastructures: Vec<(Name, Option<Arc<Infrastructure>>)>,
    /// Addresses of Services and ServiceImports.
    pub services: Vec<(ObjectKey, Option<Arc<ServiceAddresses>>)>,
    /// Pods and Dataplanes.
    pub workloads: Vec<(ObjectKey, Option<Arc<Workload>>)>,
    /// Statuses of objects.
    pub statuses: Vec<(ObjectKey, Option<Arc<Status>>)>,
}

impl Delta {
    /// Returns whether anything but statuses and generated objects changed.
    pub fn affects_traffic(&self) -> bool {
        let Delta {
            endpoints,
            gateways,
            services,
            workloads,
            ..
        } = self;
        self.affects_routing()
            || !(endpoints.is_empty()
                && gateways.is_empty()
                && services.is_empty()
                && workloads.is_empty())
    }

    /// Returns whether anything but endpoints changed in what routing tables are built from.
    pub fn affects_routing(&self) -> bool {
        let Delta {
            frontends,
            routes,
            rules,
            attachments,
            backends,
            endpoints: _,
            secrets,
            gateways: _,
            infrastructures: _,
            services: _,
            workloads: _,
            statuses: _,
        } = self;
        !(frontends.is_empty()
            && routes.is_empty()
            && rules.is_empty()
            && attachments.is_empty()
            && backends.is_empty()
            && secrets.is_empty())
    }
}

/// A route or policy, or one of its rules, that does not apply to traffic of a parent that it selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InactiveRoute {
    /// The route or policy.
    pub route: ObjectKey,
    /// Index of the policy's `to` item that contains the rule.
    pub to: Option<usize>,
    /// Index of the rule; `None` for the whole route.
    pub rule: Option<usize>,
    /// Machine-readable reason.
    pub reason: InactiveReason,
    /// Human-readable reason.
    pub message: String,
}

/// Reason why a route is inactive. Its text is that of the route's condition, if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InactiveReason {
    /// A route of another kind, or one for another protocol, applies instead.
    Conflicted,
    /// It does not select the client or listener.
    NotSelected,
    /// A stronger policy with the same matches overrides it.
    Merged,
    /// It is not accepted, for the reason in its condition `Accepted`, or one of its rules is not.
    Refused(&'static str),
}

impl std::fmt::Display for InactiveReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            InactiveReason::Conflicted => "Conflicted",
            InactiveReason::NotSelected => "NotSelected",
            InactiveReason::Merged => "Merged",
            InactiveReason::Refused(reason) => reason,
        })
    }
}
