//! Reads objects on behalf of queries and records each read as a dependency.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use pointsman_resources::core::{ConfigMap, EndpointSlice, Pod, Secret, Service, ServiceImport};
use pointsman_resources::gateway::{Gateway, GatewayClass, ListenerSet};
use pointsman_resources::kuma::{
    DataSource, Dataplane, Mesh, MeshExternalService, MeshGateway, MeshMultiZoneService,
    MeshService,
};
use pointsman_resources::meta::Labels;
use pointsman_resources::parameters::GatewayParameters;
use pointsman_resources::policy::{
    BackendTLSPolicy, MeshSettings, ReferenceGrant, XBackend, XBackendTrafficPolicy, XMesh,
    XTelemetryPolicy,
};
use pointsman_resources::route::Route;
use pointsman_resources::{Kind, Name, ObjectKey, Resource};

use super::collections::SmallSet;
use super::query::{Index, Input};
use super::store::{CertificateResult, Store};
use crate::gateway_api::certificates;
use crate::gateway_api::infrastructure::InfrastructureState;
use crate::gateway_api::observation::Observation;
use crate::{Content, Controller, EndpointPolicy, Identity, ServedApi};

/// Reads objects on behalf of one query, recording every input.
pub(crate) struct Reader<'a> {
    store: &'a Store,
    inputs: RefCell<Vec<Input>>,
}

macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident: $kind:ident -> $type:ty;)*) => {$(
        $(#[$doc])*
        pub fn $name(&self, name: &Name) -> Option<&'a $type> {
            match self.object(&ObjectKey { kind: Kind::$kind, name: name.clone() })? {
                Resource::$kind(object) => Some(&**object),
                _ => None,
            }
        }
    )*};
}

impl<'a> Reader<'a> {
    pub fn new(store: &'a Store) -> Self {
        Reader {
            store,
            inputs: RefCell::default(),
        }
    }

    /// Returns the recorded inputs.
    pub fn into_inputs(self) -> Vec<Input> {
        self.inputs.into_inner()
    }

    /// Records an input.
    pub fn record_read(&self, input: Input) {
        self.inputs.borrow_mut().push(input);
    }

    pub fn object(&self, key: &ObjectKey) -> Option<&'a Resource> {
        self.record_read(Input::Object(key.clone()));
        self.store.objects.get(key)
    }

    /// Returns whether validation rejected an object.
    pub fn is_rejected(&self, key: &ObjectKey) -> bool {
        self.record_read(Input::Object(key.clone()));
        self.store.rejected.contains_key(key)
    }

    /// Describes why an object is missing: it does not exist, or validation rejected it.
    pub fn missing(&self, key: &ObjectKey) -> String {
        self.record_read(Input::Object(key.clone()));
        self.store.missing(key)
    }

    /// Returns the state of a Gateway in the data plane.
    pub fn observation(&self, gateway: &Name) -> Option<&'a Observation> {
        self.record_read(Input::Observation(gateway.clone()));
        self.store.observations.get(gateway)
    }

    /// Returns the state of the objects that are generated for a Gateway.
    pub fn infrastructure(&self, gateway: &Name) -> Option<&'a InfrastructureState> {
        self.record_read(Input::Infrastructure(gateway.clone()));
        self.store.infrastructures.get(gateway)
    }

    /// Returns the identity of this installation.
    pub fn controller(&self) -> &'a Controller {
        self.record_read(Input::Controller);
        &self.store.controller
    }

    /// Returns the kinds that the cluster serves.
    pub fn served_api(&self) -> &'a ServedApi {
        self.record_read(Input::ServedApi);
        &self.store.served_api
    }

    getters! {
        class: GatewayClass -> GatewayClass;
        gateway: Gateway -> Gateway;
        listener_set: ListenerSet -> ListenerSet;
        service: Service -> Service;
        service_import: ServiceImport -> ServiceImport;
        secret: Secret -> Secret;
        config_map: ConfigMap -> ConfigMap;
        mesh_settings: MeshSettings -> MeshSettings;
        gateway_parameters: GatewayParameters -> GatewayParameters;
        mesh: XMesh -> XMesh;
        backend: XBackend -> XBackend;
        trust_bundle: ClusterTrustBundle -> pointsman_resources::core::ClusterTrustBundle;
        tls_policy: BackendTLSPolicy -> BackendTLSPolicy;
        traffic_policy: XBackendTrafficPolicy -> XBackendTrafficPolicy;
        telemetry_policy: XTelemetryPolicy -> XTelemetryPolicy;
        dataplane: Dataplane -> Dataplane;
        mesh_service: MeshService -> MeshService;
        mesh_external_service: MeshExternalService -> MeshExternalService;
        mesh_multi_zone_service: MeshMultiZoneService -> MeshMultiZoneService;
        mesh_gateway: MeshGateway -> MeshGateway;
        kuma_mesh: Mesh -> Mesh;
    }

    /// Returns a route of any of the Gateway API's kinds.
    pub fn route(&self, key: &ObjectKey) -> Option<&'a Route> {
        match self.object(key)? {
            Resource::Route(route) => Some(&**route),
            _ => None,
        }
    }

    /// Returns the labels of a namespace, which always include its name. A namespace without an object has no other label.
    pub fn namespace_labels(&self, namespace: &str) -> Labels {
        let key = ObjectKey::new(Kind::Namespace, "", namespace);
        let labels = match self.object(&key) {
            Some(Resource::Namespace(object)) => object.metadata.labels.clone(),
            _ => Labels::default(),
        };
        labels.with("kubernetes.io/metadata.name", namespace)
    }

    fn members(&self, index: Index) -> impl Iterator<Item = &'a Resource> + use<'a> {
        let store = self.store;
        let keys = store.indexes.get(&index);
        self.record_read(Input::Index(index));
        keys.into_iter()
            .flat_map(SmallSet::iter)
            .filter_map(|key| store.objects.get(key))
    }

    /// Returns the ReferenceGrants of a namespace.
    pub fn grants(&self, namespace: &str) -> impl Iterator<Item = &'a ReferenceGrant> + use<'a> {
        self.members(Index::GrantsIn(namespace.into()))
            .filter_map(|object| match object {
                Resource::ReferenceGrant(grant) => Some(&**grant),
                _ => None,
            })
    }

    /// Returns the ListenerSets that reference a Gateway, oldest first.
    pub fn listener_sets(&self, gateway: &Name) -> Vec<&'a ListenerSet> {
        let mut sets: Vec<&ListenerSet> = self
            .members(Index::ListenerSetsOf(gateway.clone()))
            .filter_map(|object| match object {
                Resource::ListenerSet(set) => Some(&**set),
                _ => None,
            })
            .collect();
        sets.sort_by_key(|set| (set.metadata.age(), set.metadata.key()));
        sets
    }

    /// Returns the EndpointSlices of a Service or ServiceImport.
    pub fn slices(&self, of: &ObjectKey) -> impl Iterator<Item = &'a EndpointSlice> + use<'a> {
        self.members(Index::SlicesOf(of.clone()))
            .filter_map(|object| match object {
                Resource::EndpointSlice(slice) => Some(&**slice),
                _ => None,
            })
    }

    /// Returns the Pods of a namespace.
    pub fn pods(&self, namespace: &str) -> impl Iterator<Item = &'a Pod> + use<'a> {
        self.members(Index::PodsIn(namespace.into()))
            .filter_map(|object| match object {
                Resource::Pod(pod) => Some(&**pod),
                _ => None,
            })
    }

    /// Returns the certificate and key of a Secret, validated once for each of its versions.
    pub fn certificate(&self, name: &Name) -> Option<CertificateResult> {
        let secret = self.secret(name)?;
        let mut known = self.store.certificates.borrow_mut();
        let found = known.entry(name.clone()).or_insert_with(|| {
            let found = certificates::from_secret(secret);
            found.map(Arc::new)
        });
        Some(found.clone())
    }

    /// Describes why the newest version of a Secret is not used, if an earlier one stays in effect.
    pub fn retained(&self, name: &Name) -> Option<String> {
        let key = ObjectKey {
            kind: Kind::Secret,
            name: name.clone(),
        };
        self.record_read(Input::Object(key.clone()));
        let why = match self.store.rejected.contains_key(&key) {
            true => self.store.missing(&key),
            false => format!("{key}: {}", self.store.retained.get(name)?),
        };
        Some(format!("{why}; its last valid certificate stays in effect"))
    }

    /// Returns the content of a file or environment variable, or the reason why it can't be read.
    pub fn content(&self, source: &DataSource) -> Option<Content> {
        self.record_read(Input::Content(source.clone()));
        self.store.contents.get(source).cloned()
    }

    /// Returns the certificates of Kuma's meshes.
    pub fn identities(&self) -> &'a BTreeMap<Arc<str>, Identity> {
        self.record_read(Input::Identities);
        &self.store.identities
    }

    /// Returns the endpoint policy. It is not recorded as an input, since a change of it invalidates all backends.
    pub fn endpoint_policy(&self) -> &'a EndpointPolicy {
        &self.store.endpoint_policy
    }

    /// Returns the refused addresses of a DNS name, as reported by a proxy.
    pub fn refused_resolution(&self, name: &Arc<str>) -> &'a [IpAddr] {
        self.record_read(Input::Resolution(name.clone()));
        let refused = self.store.refused_resolutions.get(name);
        refused.map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the Services of a namespace.
    pub fn services(&self, namespace: &str) -> impl Iterator<Item = &'a Service> + use<'a> {
        self.members(Index::ServicesIn(namespace.into()))
            .filter_map(|object| match object {
                Resource::Service(service) => Some(&**service),
                _ => None,
            })
    }

    /// Returns the MeshServices, MeshExternalServices and MeshMultiZoneServices of a mesh.
    pub fn destinations(&self, mesh: &str) -> impl Iterator<Item = &'a Resource> + use<'a> {
        self.members(Index::DestinationsIn(mesh.into()))
    }

    /// Returns the destinations of all meshes, including Services.
    pub fn all_destinations(&self) -> impl Iterator<Item = &'a Resource> + use<'a> {
        self.members(Index::Destinations)
    }

    /// Returns the MeshServices of a mesh.
    pub fn mesh_services(&self, mesh: &str) -> impl Iterator<Item = &'a MeshService> + use<'a> {
        self.destinations(mesh).filter_map(|object| match object {
            Resource::MeshService(service) => Some(&**service),
            _ => None,
        })
    }

    /// Returns the Dataplanes of a mesh.
    pub fn dataplanes(&self, mesh: &str) -> impl Iterator<Item = &'a Dataplane> + use<'a> {
        self.members(Index::DataplanesIn(mesh.into()))
            .filter_map(dataplane)
    }

    /// Returns the Dataplanes of a mesh that have an inbound with a `kuma.io/service` tag.
    pub fn dataplanes_of(
        &self,
        mesh: &str,
        service: &str,
    ) -> impl Iterator<Item = &'a Dataplane> + use<'a> {
        self.members(Index::DataplanesOf(mesh.into(), service.into()))
            .filter_map(dataplane)
    }

    /// Returns the MeshGateways of a mesh.
    pub fn mesh_gateways(&self, mesh: &str) -> impl Iterator<Item = &'a MeshGateway> + use<'a> {
        self.members(Index::MeshGatewaysIn(mesh.into()))
            .filter_map(|object| match object {
                Resource::MeshGateway(gateway) => Some(&**gateway),
                _ => None,
            })
    }

    /// Returns the proxies of a mesh that may serve a MeshGateway, sorted.
    pub fn gateway_proxies(&self, mesh: &str) -> impl Iterator<Item = ObjectKey> + use<'a> {
        self.members(Index::GatewayProxiesIn(mesh.into()))
            .map(Resource::key)
    }

    /// Returns the policies of a kind that target an object, oldest first.
    pub fn policies(&self, kind: Kind, target: &ObjectKey) -> Vec<&'a Resource> {
        let mut policies: Vec<&Resource> = self
            .members(Index::PoliciesOf(kind, target.clone()))
            .collect();
        policies.sort_by_key(|policy| (policy.meta().age(), policy.meta().key()));
        policies
    }

    /// Returns the Gateways with a default scope.
    pub fn default_gateways(&self) -> Vec<Name> {
        self.members(Index::DefaultGateways)
            .map(|gateway| gateway.meta().key())
            .collect()
    }

    /// Returns all XMeshes, oldest first.
    pub fn meshes(&self) -> Vec<&'a XMesh> {
        let mut meshes: Vec<&XMesh> = self
            .members(Index::Meshes)
            .filter_map(|object| match object {
                Resource::XMesh(mesh) => Some(&**mesh),
                _ => None,
            })
            .collect();
        meshes.sort_by_key(|mesh| (mesh.metadata.age(), mesh.metadata.key()));
        meshes
    }
}

fn dataplane(object: &Resource) -> Option<&Dataplane> {
    match object {
        Resource::Dataplane(dataplane) => Some(dataplane),
        _ => None,
    }
}
