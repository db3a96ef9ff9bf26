//! The objects that are known, and who has read what of them.
//!
//! Everything that is computed (a [`Query`]) reads through a [`Reader`], which notes each [`Input`] it touches, objects that do
//! not exist included. A change marks the readers of its inputs, and only these are computed again. So what a result depends
//! on is never written down by hand, and can't be forgotten.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use pointsman_resources::kuma::{DataSource, Dataplane};
use pointsman_resources::{Kind, Name, ObjectKey, Resource};

use crate::bound::{BackendId, CertifiedKey, SecretId};
use crate::observation::Observation;
use crate::sets::{Interner, SmallSet};
use crate::{Content, Controller, EndpointPolicy, Identity};

pub(crate) use crate::reader::Reader;

/// A hash map with a fast hasher; keys come from the API server or from files, and a collision costs only time.
pub(crate) type FastMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// Something that is computed, in this order: a query reads only results of those before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Query {
    /// The settings of the mesh in effect.
    Settings,
    /// A Gateway with its ListenerSets.
    Gateway(Name),
    /// A route: what it attaches to, and its rules.
    Route(ObjectKey),
    /// The routes of one mesh parent among each other.
    MeshParent(ObjectKey),
    /// A proxy of Kuma's.
    Proxy(ObjectKey),
    /// What proxies of Kuma's call, as they see it.
    Destination(BackendId),
    /// A MeshGateway with its proxies.
    MeshGateway(ObjectKey),
    /// A backend's endpoints, protocol and TLS.
    Backend(BackendId),
    /// What is said of an object.
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

/// Something that can be read, and change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Input {
    /// An object.
    Object(ObjectKey),
    /// The objects of an index.
    Index(Index),
    /// The result of a query.
    Result(Query),
    /// How many routes are attached to the listeners of a Gateway or ListenerSet.
    AttachedRoutes(ObjectKey),
    /// Through which Gateways a backend is reached.
    Ancestors(ObjectKey),
    /// What the outside says of a Gateway.
    Observation(Name),
    /// What stands in a file or in the environment.
    Content(DataSource),
    /// What the proxies of meshes show each other.
    Identities,
    /// Identity of this installation.
    Controller,
    /// Refused addresses of a DNS name.
    Resolution(Arc<str>),
}

/// A set of objects that is asked for together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Index {
    /// The ReferenceGrants of a namespace.
    GrantsIn(Arc<str>),
    /// The ListenerSets that name a Gateway.
    ListenerSetsOf(Name),
    /// The EndpointSlices of a Service or ServiceImport.
    SlicesOf(ObjectKey),
    /// The Pods of a namespace.
    PodsIn(Arc<str>),
    /// The policies of a kind that name an object of their namespace.
    PoliciesOf(Kind, ObjectKey),
    /// The Gateways that are default parents.
    DefaultGateways,
    /// All meshes.
    Meshes,
    /// The Services of a namespace.
    ServicesIn(Arc<str>),
    /// Everything that can be called in some mesh of Kuma's, Services included.
    Destinations,
    /// The MeshServices and their kin of a mesh of Kuma's.
    DestinationsIn(Arc<str>),
    /// The Dataplanes of a mesh.
    DataplanesIn(Arc<str>),
    /// The Dataplanes of a mesh that have an inbound of a service.
    DataplanesOf(Arc<str>, Arc<str>),
    /// The MeshGateways of a mesh.
    MeshGatewaysIn(Arc<str>),
    /// The proxies of a mesh that serve a MeshGateway.
    GatewayProxiesIn(Arc<str>),
}

/// The label that names an EndpointSlice's Service.
pub const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// The label that names an EndpointSlice's ServiceImport (KEP-1645).
pub const MCS_SERVICE_NAME_LABEL: &str = "multicluster.kubernetes.io/service-name";

/// The indexes that an object belongs to.
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
        Resource::MeshService(object) => of_mesh(&object.mesh),
        Resource::MeshExternalService(object) => of_mesh(&object.mesh),
        Resource::MeshMultiZoneService(object) => of_mesh(&object.mesh),
        Resource::MeshGateway(object) => vec![Index::MeshGatewaysIn(object.mesh.clone())],
        Resource::MeshGatewayInstance(object) => {
            vec![Index::GatewayProxiesIn(object.mesh.clone())]
        }
        Resource::Dataplane(object) => of_dataplane(object),
        _ => Vec::new(),
    }
}

/// The indexes of what can be called in a mesh of Kuma's.
fn of_mesh(mesh: &Arc<str>) -> Vec<Index> {
    vec![Index::Destinations, Index::DestinationsIn(mesh.clone())]
}

fn of_dataplane(dataplane: &Dataplane) -> Vec<Index> {
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

/// All objects.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) objects: FastMap<ObjectKey, Resource>,
    pub(crate) indexes: FastMap<Index, SmallSet<ObjectKey>>,
    /// What the outside says of Gateways, whether or not they exist.
    pub(crate) observations: FastMap<Name, Observation>,
    /// Where validation rejected objects.
    pub(crate) rejected: FastMap<ObjectKey, Arc<str>>,
    /// What was read of files and the environment.
    pub(crate) contents: FastMap<DataSource, Content>,
    /// What the proxies of each mesh of which that was said show each other.
    pub(crate) identities: BTreeMap<Arc<str>, Identity>,
    /// Certificates of Secrets that were asked for, validated.
    pub(crate) certificates: RefCell<FastMap<Name, CertificateResult>>,
    /// Secrets whose newest version is not used, and why.
    pub(crate) retained: FastMap<Name, String>,
    /// Identity of this installation.
    pub(crate) controller: Arc<Controller>,
    /// Addresses that may be endpoints.
    pub(crate) endpoint_policy: Arc<EndpointPolicy>,
    /// Addresses that DNS names resolve to at a proxy and that are refused there.
    pub(crate) refused_resolutions: FastMap<Arc<str>, Vec<IpAddr>>,
}

/// The certificate and key of a Secret, or what is wrong with them.
pub(crate) type CertificateResult = Result<Arc<CertifiedKey>, String>;

impl Store {
    /// Notes what the outside says of a Gateway. Returns whether that is new.
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

    /// Records where validation rejected an object. Returns whether that is new.
    pub fn set_rejection(&mut self, key: &ObjectKey, place: Option<Arc<str>>) -> bool {
        if self.rejected.get(key) == place.as_ref() {
            return false;
        }
        match place {
            Some(place) => self.rejected.insert(key.clone(), place),
            None => self.rejected.remove(key),
        };
        true
    }

    /// Why there is no object of this name.
    pub fn missing(&self, key: &ObjectKey) -> String {
        match self.rejected.get(key) {
            Some(place) => format!("{key} was rejected as invalid at {place}"),
            None => format!("there is no {key}"),
        }
    }

    /// Notes what stands in a file or in the environment. Returns whether that is new.
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

    /// Notes what the proxies of a mesh show each other. Returns whether that is new.
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

    /// Records why the newest version of a Secret is not used. Returns whether that is new.
    pub fn set_retained(&mut self, secret: &Name, why: Option<String>) -> bool {
        if self.retained.get(secret) == why.as_ref() {
            return false;
        }
        match why {
            Some(why) => self.retained.insert(secret.clone(), why),
            None => self.retained.remove(secret),
        };
        true
    }

    /// Records the refused addresses of a DNS name. Returns whether they have changed.
    pub fn set_refused_resolution(&mut self, name: &Arc<str>, refused: Vec<IpAddr>) -> bool {
        let old = match refused.is_empty() {
            true => self.refused_resolutions.remove(name),
            false => self.refused_resolutions.insert(name.clone(), refused),
        };
        old.as_ref() != self.refused_resolutions.get(name)
    }

    /// Puts an object in place of the one of its name, or removes it. Returns the inputs that changed; none if it is the same.
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

    /// All objects, in no order.
    pub fn objects(&self) -> impl Iterator<Item = (ObjectKey, &Resource)> {
        let objects = self.objects.iter();
        objects.map(|(key, object)| (key.clone(), object))
    }

    /// An object.
    pub fn get(&self, key: &ObjectKey) -> Option<&Resource> {
        self.objects.get(key)
    }
}

/// Who has read what. Units and inputs go by number, as there are many of both.
#[derive(Default)]
pub(crate) struct Tracker {
    inputs: Interner<Input>,
    /// Who has read each input.
    readers: Vec<SmallSet<u32>>,
    queries: Interner<Query>,
    /// What each query has read, sorted.
    reads: Vec<Box<[u32]>>,
    /// The queries to compute, in the order of their phases.
    due: BTreeSet<(u8, u32)>,
}

impl Tracker {
    /// Marks everyone who has read this.
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

    /// Marks a query.
    pub fn invalidate(&mut self, query: Query) {
        let phase = query.phase();
        let id = self.queries.intern(query);
        self.due.insert((phase, id));
    }

    /// The next query to compute.
    pub fn next(&mut self) -> Option<Query> {
        let (_, id) = self.due.pop_first()?;
        self.queries.value(id).cloned()
    }

    /// Notes what a query has read this time. A query that has read nothing is no more.
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

/// Changes a count and tells whether it went from or to nothing.
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
    /// The namespaces that carry a label, or have a Pod that does.
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
