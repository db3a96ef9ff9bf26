//! Matches policies with the proxies and destinations that they select.

use pointsman_resources::kuma::{
    DISPLAY_NAME_LABEL, KubernetesService, MESH_LABEL, NAMESPACE_TAG, ProxyType, SERVICE_TAG, Tags,
    TargetKind, TargetRef, display_name, home_namespace,
};
use pointsman_resources::{Kind, Meta, Resource};

use super::backend;
use super::policy::MeshPolicy;
use super::proxy::MeshProxy;
use crate::bound::BackendId;
use crate::engine::Reader;

/// Returns whether a tag set has all tags of a selector; `*` matches any value.
pub(crate) fn has_tags(tags: &Tags, wanted: &Tags) -> bool {
    wanted.iter().all(|(name, value)| {
        let found = tags.get(name);
        found.is_some_and(|found| value == "*" || found == value)
    })
}

impl MeshPolicy {
    /// Returns whether the policy applies to calls of a proxy. One matching inbound selects the whole proxy.
    pub fn selects(&self, proxy: &MeshProxy) -> bool {
        let target = &self.route.spec.target_ref;
        self.may_select(proxy)
            && match target.kind {
                TargetKind::Mesh => self.accepts_proxy_type(proxy.kind),
                TargetKind::Dataplane => self.selects_dataplane(proxy),
                TargetKind::MeshSubset => {
                    let mut sets = proxy.tag_sets.iter();
                    self.accepts_proxy_type(proxy.kind)
                        && sets.any(|tags| has_tags(tags, &target.tags))
                }
                TargetKind::MeshService | TargetKind::MeshServiceSubset => {
                    let mut sets = proxy.tag_sets.iter();
                    sets.any(|tags| self.is_of_service(tags) && has_tags(tags, &target.tags))
                }
                _ => false,
            }
    }

    /// Returns whether the policy applies to a MeshGateway's listener with these tags on this proxy.
    pub fn selects_listener(&self, proxy: &MeshProxy, gateway: &str, tags: &Tags) -> bool {
        let target = &self.route.spec.target_ref;
        let has_target_tags = has_tags(tags, &target.tags);
        // "Kuma: MeshGateway as target from any namespace: allowed"
        if target.kind == TargetKind::MeshGateway {
            let names_gateway = target.name.as_deref() == Some(gateway);
            return self.is_in_effect() && names_gateway && has_target_tags;
        }
        self.may_select(proxy)
            && match target.kind {
                TargetKind::Mesh => self.accepts_proxy_type(ProxyType::Gateway),
                TargetKind::MeshSubset => {
                    self.accepts_proxy_type(ProxyType::Gateway) && has_target_tags
                }
                TargetKind::MeshService | TargetKind::MeshServiceSubset => {
                    self.is_of_service(tags) && has_target_tags
                }
                _ => false,
            }
    }

    /// Checks the conditions that do not depend on the target: the policy is in effect, and not limited to another namespace or zone.
    fn may_select(&self, proxy: &MeshProxy) -> bool {
        let is_in = |namespace| proxy.namespace.as_deref() == Some(namespace);
        let is_in_namespace = self.only_namespace().is_none_or(is_in);
        let zone = self.zone();
        self.is_in_effect() && is_in_namespace && zone.is_none_or(|zone| proxy.is_in_zone(zone))
    }

    fn accepts_proxy_type(&self, kind: ProxyType) -> bool {
        let kinds = &self.route.spec.target_ref.proxy_types;
        kinds.is_empty() || kinds.contains(&kind)
    }

    /// Evaluates a target of `kind: Dataplane`: by labels or name, or all proxies if it has neither.
    fn selects_dataplane(&self, proxy: &MeshProxy) -> bool {
        let target = &self.route.spec.target_ref;
        let namespace = target.namespace.as_deref().or(self.namespace());
        let by_name = target.name.as_deref().is_none_or(|name| {
            name == display_name(&proxy.metadata)
                && namespace.is_none_or(|own| proxy.namespace.as_deref() == Some(own))
        });
        by_name && has_labels(&proxy.metadata, &target.labels)
    }

    /// Evaluates a target of `kind: MeshService`: by the tag, or by the name and namespace of a Kubernetes Service.
    fn is_of_service(&self, tags: &Tags) -> bool {
        let target = &self.route.spec.target_ref;
        let (Some(wanted), Some(service)) = (target.name.as_deref(), tags.get(SERVICE_TAG)) else {
            return false;
        };
        wanted == service || self.is_short_name_of(target, service)
    }

    /// Returns whether a reference names the Kubernetes Service behind a `kuma.io/service` tag.
    fn is_short_name_of(&self, target: &TargetRef, service: &str) -> bool {
        KubernetesService::parse(service).is_some_and(|service| {
            let namespace = target.namespace.as_deref().or(self.namespace());
            target.name.as_deref() == Some(service.name) && namespace == Some(service.namespace)
        })
    }

    /// Returns whether a `to` item includes a destination.
    pub fn includes(&self, reader: &Reader<'_>, to: usize, destination: &BackendId) -> bool {
        let target = &self.route.spec.to[to].target_ref;
        let object = &destination.object;
        let kind = match target.kind {
            TargetKind::MeshService => [Kind::MeshService, Kind::Service],
            TargetKind::MeshExternalService => [Kind::MeshExternalService; 2],
            TargetKind::MeshMultiZoneService => [Kind::MeshMultiZoneService; 2],
            _ => return false,
        };
        if !kind.contains(&object.kind) || !self.is_of_its_mesh(reader, destination) {
            return false;
        }
        if !target.labels.is_empty() {
            let found = reader.object(object).map(|object| object.meta());
            return found.is_some_and(|meta| has_labels(meta, &target.labels))
                && self.has_section(reader, target, destination);
        }
        let Some(wanted) = target.name.as_deref() else {
            return false;
        };
        let (name, namespace) = (&*object.name.name, object.namespace());
        if name == wanted {
            let universal = destination.port == 0 || namespace.mesh().is_some();
            if universal && target.namespace.is_some() {
                return false;
            }
            let wanted = target.namespace.as_deref().or(self.namespace());
            let is_in_namespace = universal || wanted.is_none_or(|wanted| wanted == namespace);
            return is_in_namespace && self.has_section(reader, target, destination);
        }
        if object.kind == Kind::Service {
            // `backend_kuma-demo_svc_3001`
            return KubernetesService::parse(wanted).is_some_and(|service| {
                (service.name, service.namespace) == (name, namespace)
                    && service.port.is_none_or(|port| port == destination.port)
            });
        }
        destination.port == 0
            && self.is_short_name_of(target, name)
            && target.section_name.as_deref().is_none_or(|section| {
                let port = KubernetesService::parse(name).and_then(|service| service.port);
                port.is_some_and(|port| port.to_string() == section)
            })
    }

    /// Returns whether a destination is in the policy's mesh. A Service or tagged service is in the mesh of its callers.
    fn is_of_its_mesh(&self, reader: &Reader<'_>, to: &BackendId) -> bool {
        if to.port == 0 || to.object.kind == Kind::Service {
            return true;
        }
        let mesh = match reader.object(&to.object) {
            Some(Resource::MeshService(object)) => &object.mesh,
            Some(Resource::MeshExternalService(object)) => &object.mesh,
            Some(Resource::MeshMultiZoneService(object)) => &object.mesh,
            _ => return true,
        };
        *mesh == self.route.mesh
    }

    /// Checks `sectionName`: the name of a port, or its number if it has no name.
    fn has_section(&self, reader: &Reader<'_>, target: &TargetRef, to: &BackendId) -> bool {
        let Some(section) = target.section_name.as_deref() else {
            return true;
        };
        let ports = backend::ports(reader, &to.object);
        ports
            .iter()
            .any(|port| port.number == to.port && port.section_name() == section)
    }
}

/// Returns whether an object has all labels of a selector.
pub(crate) fn has_labels<'w>(
    metadata: &Meta,
    wanted: impl IntoIterator<Item = (&'w String, &'w String)>,
) -> bool {
    let mut wanted = wanted.into_iter();
    wanted.all(|(name, value)| label(metadata, name) == Some(value.as_str()))
}

/// Returns a label of an object, including the ones that Kuma derives from its name, namespace and mesh.
pub(crate) fn label<'m>(metadata: &'m Meta, name: &str) -> Option<&'m str> {
    if name == NAMESPACE_TAG {
        // The label itself counts only on objects that were synchronized from elsewhere.
        return home_namespace(metadata);
    }
    metadata.labels.get(name).or_else(|| match name {
        DISPLAY_NAME_LABEL | "k8s.kuma.io/service-name" => Some(&*metadata.name),
        MESH_LABEL => metadata.namespace.mesh(),
        _ => None,
    })
}
