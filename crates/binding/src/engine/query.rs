//! Queries, their inputs, and the tracker that records which query read which input.
//!
//! Each computation (a [`Query`]) reads through a [`Reader`](super::Reader), which records every [`Input`], including objects that don't exist. A change
//! invalidates the queries that read the changed inputs, and only those are computed again. Dependencies are
//! declared by hand only for Kuma policies (see `kuma/queries.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;

use pointsman_resources::kuma::DataSource;
use pointsman_resources::{Kind, Name, NamespaceName, ObjectKey};

use super::collections::{Interner, SmallSet};
use crate::bound::{BackendId, SecretId};

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

/// Phase in which certificates are loaded: the last one, because the other phases decide which of them are used.
pub(crate) const SECRETS: u8 = 6;

impl Query {
    fn phase(&self) -> u8 {
        match self {
            Query::Settings => 0,
            Query::Gateway(_) | Query::Proxy(_) => 1,
            Query::Route(_) => 2,
            Query::MeshParent(_) | Query::Destination(_) | Query::MeshGateway(_) => 3,
            Query::Backend(_) => 4,
            Query::Status(_) => 5,
            Query::Secret(_) => SECRETS,
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
    /// State of the objects that are generated for a Gateway.
    Infrastructure(Name),
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
    GrantsIn(NamespaceName),
    /// ListenerSets that reference a Gateway.
    ListenerSetsOf(Name),
    /// EndpointSlices of a Service or ServiceImport.
    SlicesOf(ObjectKey),
    /// Pods of a namespace.
    PodsIn(NamespaceName),
    /// Policies of a kind that target an object.
    PoliciesOf(Kind, ObjectKey),
    /// Gateways with a default scope.
    DefaultGateways,
    /// XMeshes.
    Meshes,
    /// Services of a namespace.
    ServicesIn(NamespaceName),
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

    /// Returns the next query to run among those of phases before `end`.
    pub fn next_before(&mut self, end: u8) -> Option<Query> {
        let (phase, _) = self.due.first()?;
        if *phase >= end {
            return None;
        }
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
