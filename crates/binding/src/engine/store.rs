//! Objects and other external inputs, and the indexes of objects.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use pointsman_resources::kuma::{DataSource, Dataplane};
use pointsman_resources::{Kind, Name, ObjectKey, Resource};

use super::collections::{FastMap, SmallSet};
use super::query::{Index, Input};
use crate::bound::CertifiedKey;
use crate::{
    Content, Controller, EndpointPolicy, Identity, InfrastructureState, Observation, RouteEffect,
    ServedApi,
};

/// Label that names the Service of an EndpointSlice.
const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// Label that names the ServiceImport of an EndpointSlice (KEP-1645).
const MCS_SERVICE_NAME_LABEL: &str = "multicluster.kubernetes.io/service-name";

/// All objects and other external inputs.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) objects: FastMap<ObjectKey, Resource>,
    pub(crate) indexes: FastMap<Index, SmallSet<ObjectKey>>,
    /// State of Gateways in the data plane, including ones that don't exist.
    pub(crate) observations: FastMap<Name, Observation>,
    /// State of the objects that are generated for Gateways.
    pub(crate) infrastructures: FastMap<Name, InfrastructureState>,
    /// Locations (file and line) of objects that validation rejected.
    pub(crate) rejected: FastMap<ObjectKey, Arc<str>>,
    /// Contents of files and environment variables.
    pub(crate) contents: FastMap<DataSource, Content>,
    /// Certificates of Kuma's meshes.
    pub(crate) identities: BTreeMap<Arc<str>, Identity>,
    /// Validated certificates of Secrets that were read.
    pub(crate) certificates: RefCell<FastMap<Name, CertificateResult>>,
    /// Secrets whose newest version is not used, with the reason.
    pub(crate) retained: FastMap<Name, String>,
    /// Identity of this installation.
    pub(crate) controller: Arc<Controller>,
    /// Kinds that the cluster serves.
    pub(crate) served_api: Arc<ServedApi>,
    pub(crate) endpoint_policy: Arc<EndpointPolicy>,
    /// Addresses of DNS names that a proxy resolved and refused.
    pub(crate) refused_resolutions: FastMap<Arc<str>, Vec<IpAddr>>,
    /// Effect of the current configuration of each route and policy on the proxies that serve it.
    pub(crate) effects: FastMap<ObjectKey, Arc<RouteEffect>>,
    /// True if a commit puts everything into effect, because the proxy runs in this process.
    pub(crate) effect_on_commit: bool,
}

/// The certificate and key of a Secret, or the reason why they can't be used.
pub(crate) type CertificateResult = Result<Arc<CertifiedKey>, String>;

impl Store {
    /// Sets the state of a Gateway in the data plane. Returns whether it changed.
    pub fn set_observation(&mut self, gateway: &Name, seen: Option<Observation>) -> bool {
        if self.observations.get(gateway) == seen.as_ref() {
            return false;
        }
        match seen {
            Some(seen) => self.observations.insert(gateway.clone(), seen),
            None => self.observations.remove(gateway),
        };
        true
    }

    /// Sets the state of the objects that are generated for a Gateway. Returns whether it changed.
    pub fn set_infrastructure(
        &mut self,
        gateway: &Name,
        state: Option<InfrastructureState>,
    ) -> bool {
        let old = match state {
            Some(state) => self.infrastructures.insert(gateway.clone(), state),
            None => self.infrastructures.remove(gateway),
        };
        old.as_ref() != self.infrastructures.get(gateway)
    }

    /// Sets the location of an object that validation rejected. Returns whether it changed.
    pub fn set_rejection(&mut self, key: &ObjectKey, location: Option<Arc<str>>) -> bool {
        if self.rejected.get(key) == location.as_ref() {
            return false;
        }
        match location {
            Some(location) => self.rejected.insert(key.clone(), location),
            None => self.rejected.remove(key),
        };
        true
    }

    /// Describes why an object is missing: it does not exist, or validation rejected it.
    pub fn missing(&self, key: &ObjectKey) -> String {
        match self.rejected.get(key) {
            Some(location) => format!("{key} was rejected as invalid at {location}"),
            None => format!("{key} does not exist"),
        }
    }

    /// Sets the content of a file or environment variable. Returns whether it changed.
    pub fn set_content(&mut self, source: &DataSource, content: Option<Content>) -> bool {
        if self.contents.get(source) == content.as_ref() {
            return false;
        }
        match content {
            Some(content) => self.contents.insert(source.clone(), content),
            None => self.contents.remove(source),
        };
        true
    }

    /// Sets the certificate of a mesh. Returns whether it changed.
    pub fn set_identity(&mut self, mesh: Arc<str>, identity: Option<Identity>) -> bool {
        if self.identities.get(&mesh) == identity.as_ref() {
            return false;
        }
        match identity {
            Some(identity) => self.identities.insert(mesh, identity),
            None => self.identities.remove(&mesh),
        };
        true
    }

    /// Sets the reason why the newest version of a Secret is not used. Returns whether it changed.
    pub fn set_retained(&mut self, secret: &Name, reason: Option<String>) -> bool {
        if self.retained.get(secret) == reason.as_ref() {
            return false;
        }
        match reason {
            Some(reason) => self.retained.insert(secret.clone(), reason),
            None => self.retained.remove(secret),
        };
        true
    }

    /// Sets the refused addresses of a DNS name. Returns whether they changed.
    pub fn set_refused_resolution(&mut self, name: &Arc<str>, refused: Vec<IpAddr>) -> bool {
        let old = match refused.is_empty() {
            true => self.refused_resolutions.remove(name),
            false => self.refused_resolutions.insert(name.clone(), refused),
        };
        old.as_ref() != self.refused_resolutions.get(name)
    }

    /// Sets the effect of a route or policy. Returns whether it changed.
    pub fn set_effect(&mut self, key: &ObjectKey, effect: Option<Arc<RouteEffect>>) -> bool {
        if self.effects.get(key) == effect.as_ref() {
            return false;
        }
        match effect {
            Some(effect) => self.effects.insert(key.clone(), effect),
            None => self.effects.remove(key),
        };
        true
    }

    /// Adds, replaces or removes an object. Returns the inputs that changed; none if the object is equal to the old one.
    pub fn upsert_or_remove(&mut self, key: &ObjectKey, resource: Option<Resource>) -> Vec<Input> {
        if self.objects.get(key) == resource.as_ref() {
            return Vec::new();
        }
        let mut changed = vec![Input::Object(key.clone())];
        if key.kind == Kind::Secret {
            self.certificates.get_mut().remove(&key.name);
        }
        let new = resource.as_ref().map(indexes).unwrap_or_default();
        if let Some(old) = self.objects.remove(key) {
            for index in indexes(&old) {
                if !new.contains(&index)
                    && let Some(members) = self.indexes.get_mut(&index)
                {
                    members.remove(key);
                    if members.is_empty() {
                        self.indexes.remove(&index);
                    }
                }
                changed.push(Input::Index(index));
            }
        }
        for index in new {
            self.indexes
                .entry(index.clone())
                .or_default()
                .insert(key.clone());
            changed.push(Input::Index(index));
        }
        if let Some(resource) = resource {
            self.objects.insert(key.clone(), resource);
        }
        changed
    }

    /// Returns all objects, in arbitrary order.
    pub fn objects(&self) -> impl Iterator<Item = (ObjectKey, &Resource)> {
        let objects = self.objects.iter();
        objects.map(|(key, object)| (key.clone(), object))
    }

    pub fn get(&self, key: &ObjectKey) -> Option<&Resource> {
        self.objects.get(key)
    }

    /// Returns the namespaces that have a label, or contain a Pod that has it.
    pub fn enrolled_namespaces(&self, label: &str) -> BTreeSet<&str> {
        self.objects
            .values()
            .filter(|object| object.meta().labels.get(label).is_some())
            .filter_map(|object| match object {
                Resource::Namespace(namespace) => Some(&*namespace.metadata.name),
                Resource::Pod(pod) => Some(&*pod.metadata.namespace),
                _ => None,
            })
            .collect()
    }
}

/// Returns the indexes that contain an object.
fn indexes(resource: &Resource) -> Vec<Index> {
    let namespace = &resource.meta().namespace;
    let local = |group: &str, kind: &str, name: &str| {
        Kind::find(group, kind).map(|kind| ObjectKey::new(kind, namespace.clone(), name))
    };
    match resource {
        Resource::ReferenceGrant(_) => vec![Index::GrantsIn(namespace.clone())],
        Resource::ListenerSet(set) => vec![Index::ListenerSetsOf(set.gateway())],
        Resource::EndpointSlice(slice) => {
            let of = |kind, label| {
                let name = slice.metadata.labels.get(label)?;
                Some(Index::SlicesOf(ObjectKey::new(
                    kind,
                    namespace.clone(),
                    name,
                )))
            };
            [
                of(Kind::Service, SERVICE_NAME_LABEL),
                of(Kind::ServiceImport, MCS_SERVICE_NAME_LABEL),
            ]
            .into_iter()
            .flatten()
            .collect()
        }
        Resource::Pod(_) => vec![Index::PodsIn(namespace.clone())],
        Resource::BackendTLSPolicy(policy) => policy
            .spec
            .target_refs
            .iter()
            .filter_map(|target| local(&target.group, &target.kind, &target.name))
            .map(|target| Index::PoliciesOf(Kind::BackendTLSPolicy, target))
            .collect(),
        Resource::XBackendTrafficPolicy(policy) => policy
            .spec
            .target_refs
            .iter()
            .filter_map(|target| local(&target.group, &target.kind, &target.name))
            .map(|target| Index::PoliciesOf(Kind::XBackendTrafficPolicy, target))
            .collect(),
        Resource::XTelemetryPolicy(policy) => policy
            .spec
            .target_refs
            .iter()
            .filter_map(|target| local(&target.group, &target.kind, &target.name))
            .map(|target| Index::PoliciesOf(Kind::XTelemetryPolicy, target))
            .collect(),
        Resource::Gateway(gateway) if gateway.spec.default_scope.as_deref() == Some("All") => {
            vec![Index::DefaultGateways]
        }
        Resource::XMesh(_) => vec![Index::Meshes],
        Resource::Service(_) => vec![Index::Destinations, Index::ServicesIn(namespace.clone())],
        Resource::MeshService(object) => destination_indexes(&object.mesh),
        Resource::MeshExternalService(object) => destination_indexes(&object.mesh),
        Resource::MeshMultiZoneService(object) => destination_indexes(&object.mesh),
        Resource::MeshGateway(object) => vec![Index::MeshGatewaysIn(object.mesh.clone())],
        Resource::MeshGatewayInstance(object) => {
            vec![Index::GatewayProxiesIn(object.mesh.clone())]
        }
        Resource::Dataplane(object) => dataplane_indexes(object),
        _ => Vec::new(),
    }
}

/// Returns the indexes of a destination in a mesh.
fn destination_indexes(mesh: &Arc<str>) -> Vec<Index> {
    vec![Index::Destinations, Index::DestinationsIn(mesh.clone())]
}

fn dataplane_indexes(dataplane: &Dataplane) -> Vec<Index> {
    let mesh = &dataplane.mesh;
    let inbounds = dataplane.spec.networking.inbound.iter();
    let services: BTreeSet<&str> = inbounds.filter_map(|inbound| inbound.service()).collect();
    let builtin = dataplane.builtin_gateway();
    services
        .into_iter()
        .map(|service| Index::DataplanesOf(mesh.clone(), service.into()))
        .chain([Index::DataplanesIn(mesh.clone())])
        .chain(builtin.map(|_| Index::GatewayProxiesIn(mesh.clone())))
        .collect()
}
