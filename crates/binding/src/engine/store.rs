//! Objects, and the dependencies of everything that is computed from them.
//!
//! Each computation (a [`Query`]) reads through a [`Reader`], which records every [`Input`], including objects that don't exist. A change invalidates the
//! queries that read the changed inputs, and only those are computed again. Dependencies are never declared by hand, so none can be forgotten.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use pointsman_resources::kuma::{DataSource, Dataplane};
use pointsman_resources::{Kind, Name, ObjectKey, Resource};

use super::collections::{Interner, SmallSet};
use crate::bound::{BackendId, CertifiedKey, SecretId};
use crate::gateway_api::observation::Observation;
use crate::{Content, Controller, EndpointPolicy, Identity, ServedApi};

pub(crate) use super::reader::Reader;

/// A hash map with a fast hasher that does not resist collision attacks: keys come from the API server or from files, and collisions only cost time.
pub(crate) type FastMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// A computation. Queries run in this order, and each reads only results of earlier ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Query {
    /// The effective MeshSettings.
    Settings,
    /// A Gateway with its ListenerSets.
    Gateway(Name),
    /// The parents and rules of a route.
    Route(ObjectKey),
    /// Precedence between the routes attached to a mesh parent.
    MeshParent(ObjectKey),
    /// A proxy of Kuma's mesh.
    Proxy(ObjectKey),
    /// Calls of Kuma's proxies to a destination.
    Destination(BackendId),
    /// A MeshGateway with its proxies.
    MeshGateway(ObjectKey),
    /// Endpoints, protocol and TLS of a backend.
    Backend(BackendId),
    /// Status of an object.
    Status(ObjectKey),
    /// A certificate with its key.
    Secret(SecretId),
}

impl Query {
    fn phase(&self) -> u8 {
        match self {
            Query::Settings => 0,
            Query::Gateway(_) | Query::Proxy(_) => 1,
            Query::Route(_) => 2,
            Query::MeshParent(_) | Query::Destination(_) | Query::MeshGateway(_) => 3,
            Query::Backend(_) => 4,
            Query::Status(_) => 5,
            Query::Secret(_) => 6,
        }
    }
}

/// Data that a query may read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Input {
    Object(ObjectKey),
    /// Members of an index.
    Index(Index),
    /// Result of another query.
    Result(Query),
    /// Numbers of routes attached to the listeners of a Gateway or ListenerSet.
    AttachedRoutes(ObjectKey),
    /// Gateways whose routes use a backend.
    Ancestors(ObjectKey),
    /// State of a Gateway in the data plane.
    Observation(Name),
    /// Content of a file or environment variable.
    Content(DataSource),
    /// Certificates that proxies of Kuma's meshes present to each other.
    Identities,
    /// Identity of this installation.
    Controller,
    /// Kinds that the cluster serves.
    ServedApi,
    /// Refused addresses of a DNS name.
    Resolution(Arc<str>),
}

/// A set of objects that is read as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Index {
    /// ReferenceGrants of a namespace.
    GrantsIn(Arc<str>),
    /// ListenerSets that reference a Gateway.
    ListenerSetsOf(Name),
    /// EndpointSlices of a Service or ServiceImport.
    SlicesOf(ObjectKey),
    /// Pods of a namespace.
    PodsIn(Arc<str>),
    /// Policies of a kind that target an object.
    PoliciesOf(Kind, ObjectKey),
    /// Gateways with a default scope.
    DefaultGateways,
    /// XMeshes.
    Meshes,
    /// Services of a namespace.
    ServicesIn(Arc<str>),
    /// Destinations of all of Kuma's meshes, including Services.
    Destinations,
    /// MeshServices, MeshExternalServices and MeshMultiZoneServices of a mesh.
    DestinationsIn(Arc<str>),
    /// Dataplanes of a mesh.
    DataplanesIn(Arc<str>),
    /// Dataplanes of a mesh that have an inbound with a `kuma.io/service` tag.
    DataplanesOf(Arc<str>, Arc<str>),
    /// MeshGateways of a mesh.
    MeshGatewaysIn(Arc<str>),
    /// Proxies of a mesh that may serve a MeshGateway.
    GatewayProxiesIn(Arc<str>),
}

/// Label that names the Service of an EndpointSlice.
const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// Label that names the ServiceImport of an EndpointSlice (KEP-1645).
const MCS_SERVICE_NAME_LABEL: &str = "multicluster.kubernetes.io/service-name";

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

/// All objects and other external inputs.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) objects: FastMap<ObjectKey, Resource>,
    pub(crate) indexes: FastMap<Index, SmallSet<ObjectKey>>,
    /// State of Gateways in the data plane, including ones that don't exist.
    pub(crate) observations: FastMap<Name, Observation>,
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

    /// Adds, replaces or removes an object. Returns the inputs that changed; none if the object is equal to the old one.
    pub fn put(&mut self, key: &ObjectKey, resource: Option<Resource>) -> Vec<Input> {
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
}

/// Tracks the inputs of each query and the queries to run. Both are interned, since there are many.
#[derive(Default)]
pub(crate) struct Tracker {
    inputs: Interner<Input>,
    /// Queries that read each input.
    readers: Vec<SmallSet<u32>>,
    queries: Interner<Query>,
    /// Inputs of each query, sorted.
    reads: Vec<Box<[u32]>>,
    /// Queries to run, by phase.
    due: BTreeSet<(u8, u32)>,
}

impl Tracker {
    /// Invalidates all queries that read an input.
    pub fn invalidate_readers(&mut self, input: &Input) {
        let Some(input) = self.inputs.find(input) else {
            return;
        };
        for &id in self.readers[input as usize].iter() {
            if let Some(query) = self.queries.value(id) {
                self.due.insert((query.phase(), id));
            }
        }
    }

    /// Schedules a query to run.
    pub fn invalidate(&mut self, query: Query) {
        let phase = query.phase();
        let id = self.queries.intern(query);
        self.due.insert((phase, id));
    }

    /// Returns the next query to run.
    pub fn next(&mut self) -> Option<Query> {
        let (_, id) = self.due.pop_first()?;
        self.queries.value(id).cloned()
    }

    /// Replaces the recorded inputs of a query. A query without inputs is forgotten.
    pub fn record_reads(&mut self, query: &Query, inputs: Vec<Input>) {
        let id = self.queries.intern(query.clone());
        let mut new: Vec<u32> = inputs
            .into_iter()
            .map(|input| self.inputs.intern(input))
            .collect();
        new.sort_unstable();
        new.dedup();
        if let Some(&last) = new.last()
            && self.readers.len() <= last as usize
        {
            self.readers
                .resize_with(last as usize + 1, SmallSet::default);
        }
        if self.reads.len() <= id as usize {
            self.reads.resize_with(id as usize + 1, Box::default);
        }
        let old = std::mem::take(&mut self.reads[id as usize]);
        for input in new.iter().filter(|input| old.binary_search(input).is_err()) {
            self.readers[*input as usize].insert(id);
        }
        for input in old.iter().filter(|input| new.binary_search(input).is_err()) {
            let readers = &mut self.readers[*input as usize];
            readers.remove(&id);
            if readers.is_empty() {
                self.inputs.release(*input);
            }
        }
        if new.is_empty() {
            self.queries.release(id);
        }
        self.reads[id as usize] = new.into_boxed_slice();
    }
}

/// Increments or decrements a count. Returns whether it changed from or to zero.
pub(crate) fn adjust_count<K: Hash + Eq>(counts: &mut FastMap<K, usize>, key: K, up: bool) -> bool {
    let number = counts.entry(key);
    match (number, up) {
        (std::collections::hash_map::Entry::Occupied(mut entry), true) => {
            *entry.get_mut() += 1;
            false
        }
        (std::collections::hash_map::Entry::Vacant(entry), true) => {
            entry.insert(1);
            true
        }
        (std::collections::hash_map::Entry::Occupied(mut entry), false) => {
            *entry.get_mut() -= 1;
            let gone = *entry.get() == 0;
            if gone {
                entry.remove();
            }
            gone
        }
        (std::collections::hash_map::Entry::Vacant(_), false) => false,
    }
}

impl Store {
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
