//! Which proxies a policy is for, and which destinations.

use pointsman_resources::kuma::{
    DISPLAY_NAME_LABEL, KubernetesService, MESH_LABEL, NAMESPACE_TAG, ProxyType, SERVICE_TAG, Tags,
    TargetKind, TargetRef, display_name, home_namespace,
};
use pointsman_resources::{Kind, Meta, Resource};

use super::backend;
use super::policy::MeshPolicy;
use super::proxy::MeshProxy;
use crate::bound::BackendId;
use crate::store::Reader;

/// Whether tags have all that a selector asks for; `*` is any value.
pub(crate) fn has_tags(tags: &Tags, wanted: &Tags) -> bool {
    wanted.iter().all(|(name, value)| {
        let found = tags.get(name);
        found.is_some_and(|found| value == "*" || found == value)
    })
}

impl MeshPolicy {
    /// Whether it is for what this proxy sends: one inbound that fits selects the whole proxy.
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

    /// Whether it is for a listener of a MeshGateway that has these tags, on this proxy.
    pub fn selects_listener(&self, proxy: &MeshProxy, gateway: &str, tags: &Tags) -> bool {
        let target = &self.route.spec.target_ref;
        let fits = has_tags(tags, &target.tags);
        // "Kuma: MeshGateway as target from any namespace: allowed"
        if target.kind == TargetKind::MeshGateway {
            return self.is_in_effect() && target.name.as_deref() == Some(gateway) && fits;
        }
        self.may_select(proxy)
            && match target.kind {
                TargetKind::Mesh => self.accepts_proxy_type(ProxyType::Gateway),
                TargetKind::MeshSubset => self.accepts_proxy_type(ProxyType::Gateway) && fits,
                TargetKind::MeshService | TargetKind::MeshServiceSubset => {
                    self.is_of_service(tags) && fits
                }
                _ => false,
            }
    }

    /// What holds before its target is looked at: it is carried out, and the proxy is in its namespace and zone if it asks that.
    fn may_select(&self, proxy: &MeshProxy) -> bool {
        let at_home = |own| proxy.namespace.as_deref() == Some(own);
        let at_home = self.only_namespace().is_none_or(at_home);
        let zone = self.zone();
        self.is_in_effect() && at_home && zone.is_none_or(|zone| proxy.is_in_zone(zone))
    }

    fn accepts_proxy_type(&self, kind: ProxyType) -> bool {
        let kinds = &self.route.spec.target_ref.proxy_types;
        kinds.is_empty() || kinds.contains(&kind)
    }

    /// `kind: Dataplane`: by labels, or by name; all if neither is said.
    fn selects_dataplane(&self, proxy: &MeshProxy) -> bool {
        let target = &self.route.spec.target_ref;
        let namespace = target.namespace.as_deref().or(self.namespace());
        let by_name = target.name.as_deref().is_none_or(|name| {
            name == display_name(&proxy.metadata)
                && namespace.is_none_or(|own| proxy.namespace.as_deref() == Some(own))
        });
        by_name && has_labels(&proxy.metadata, &target.labels)
    }

    /// `kind: MeshService`: by the tag, or by the parts of a name on Kubernetes.
    fn is_of_service(&self, tags: &Tags) -> bool {
        let target = &self.route.spec.target_ref;
        let (Some(wanted), Some(service)) = (target.name.as_deref(), tags.get(SERVICE_TAG)) else {
            return false;
        };
        wanted == service || self.is_short_name_of(target, service)
    }

    /// Whether a reference by the name of a Kubernetes Service means the service that a tag names.
    fn is_short_name_of(&self, target: &TargetRef, service: &str) -> bool {
        KubernetesService::parse(service).is_some_and(|service| {
            let namespace = target.namespace.as_deref().or(self.namespace());
            target.name.as_deref() == Some(service.name) && namespace == Some(service.namespace)
        })
    }

    /// Whether one of its `to` includes a destination.
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
            let universal = destination.port == 0 || namespace.starts_with("mesh:");
            if universal && target.namespace.is_some() {
                return false;
            }
            let theirs = target.namespace.as_deref().or(self.namespace());
            let at_home = universal || theirs.is_none_or(|theirs| theirs == namespace);
            return at_home && self.has_section(reader, target, destination);
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

    /// Whether a destination is of the policy's own mesh. A Service is of whichever mesh its callers are; so is what goes by a tag.
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

    /// `sectionName` is a port's name, or its number if it has none.
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

/// Returns whether an object has all these labels.
pub(crate) fn has_labels<'w>(
    metadata: &Meta,
    wanted: impl IntoIterator<Item = (&'w String, &'w String)>,
) -> bool {
    let mut wanted = wanted.into_iter();
    wanted.all(|(name, value)| label(metadata, name) == Some(value.as_str()))
}

/// A label of an object. Its name, namespace and mesh are labels too, as Kuma would set them.
pub(crate) fn label<'m>(metadata: &'m Meta, name: &str) -> Option<&'m str> {
    if name == NAMESPACE_TAG {
        // Only copies say by a label where they belong.
        return home_namespace(metadata);
    }
    metadata.labels.get(name).or_else(|| match name {
        DISPLAY_NAME_LABEL | "k8s.kuma.io/service-name" => Some(&*metadata.name),
        MESH_LABEL => metadata.namespace.strip_prefix("mesh:"),
        _ => None,
    })
}
