//! Resources of any type: their type URLs, messages, and references.

use std::sync::Arc;

use pointsman_binding::Delta;
use pointsman_binding::bound::{
    AddressRequest, Attachment, Backend, BackendId, BoundRule, CertifiedKey, Endpoints, Filter,
    Frontend, FrontendId, RouteMeta, RuleId, SecretId, ServiceAddresses, Workload,
};
use pointsman_resources::{Kind, Name, ObjectKey};
use prost::Message;

use crate::error::DecodeError;
use crate::id::ResourceId;
use crate::proto;

/// Type of a resource. Ordered so that a resource comes after those that it references.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "named after the resources")]
pub enum ResourceType {
    Secret,
    Endpoints,
    Backend,
    Service,
    Workload,
    Gateway,
    Route,
    Rule,
    Attachment,
    Frontend,
}

impl ResourceType {
    /// All types.
    pub const ALL: [ResourceType; 10] = [
        ResourceType::Secret,
        ResourceType::Endpoints,
        ResourceType::Backend,
        ResourceType::Service,
        ResourceType::Workload,
        ResourceType::Gateway,
        ResourceType::Route,
        ResourceType::Rule,
        ResourceType::Attachment,
        ResourceType::Frontend,
    ];

    /// Returns the type URL in xDS.
    pub const fn url(self) -> &'static str {
        match self {
            ResourceType::Secret => "type.googleapis.com/pointsman.v1.Secret",
            ResourceType::Endpoints => "type.googleapis.com/pointsman.v1.Endpoints",
            ResourceType::Backend => "type.googleapis.com/pointsman.v1.Backend",
            ResourceType::Service => "type.googleapis.com/pointsman.v1.ServiceAddresses",
            ResourceType::Workload => "type.googleapis.com/pointsman.v1.Workload",
            ResourceType::Gateway => "type.googleapis.com/pointsman.v1.AddressRequest",
            ResourceType::Route => "type.googleapis.com/pointsman.v1.Route",
            ResourceType::Rule => "type.googleapis.com/pointsman.v1.Rule",
            ResourceType::Attachment => "type.googleapis.com/pointsman.v1.Attachment",
            ResourceType::Frontend => "type.googleapis.com/pointsman.v1.Frontend",
        }
    }

    /// Finds the type of the resource with a name, which begins with it.
    pub fn of_name(name: &str) -> Option<Self> {
        Some(match name.split('/').next()? {
            "frontend" => ResourceType::Frontend,
            "route" => ResourceType::Route,
            "rule" => ResourceType::Rule,
            "attachment" => ResourceType::Attachment,
            "backend" => ResourceType::Backend,
            "endpoints" => ResourceType::Endpoints,
            "secret" => ResourceType::Secret,
            "gateway" => ResourceType::Gateway,
            "service" => ResourceType::Service,
            "workload" => ResourceType::Workload,
            _ => return None,
        })
    }

    /// Finds the type with a URL; `None` for one that this version does not know.
    pub fn find(url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.url() == url)
    }
}

impl ResourceId {
    /// Returns the type of the resource.
    pub fn resource_type(&self) -> ResourceType {
        match self {
            ResourceId::Frontend(_) => ResourceType::Frontend,
            ResourceId::Route(_) => ResourceType::Route,
            ResourceId::Rule(_) => ResourceType::Rule,
            ResourceId::Attachment(_) => ResourceType::Attachment,
            ResourceId::Backend(_) => ResourceType::Backend,
            ResourceId::Endpoints(_) => ResourceType::Endpoints,
            ResourceId::Secret(_) => ResourceType::Secret,
            ResourceId::Gateway(_) => ResourceType::Gateway,
            ResourceId::Service(_) => ResourceType::Service,
            ResourceId::Workload(_) => ResourceType::Workload,
        }
    }

    /// Returns the parent of the resource: the route of a rule, the frontend of an attachment, the Gateway of a listener. Proxies that receive the parent also
    /// receive this resource.
    pub fn parent(&self) -> Option<ResourceId> {
        match self {
            ResourceId::Rule(id) => Some(ResourceId::Route(id.route.clone())),
            ResourceId::Attachment(id) => Some(ResourceId::Frontend(id.frontend.clone())),
            ResourceId::Frontend(FrontendId::Listener { gateway, .. }) => {
                Some(ResourceId::Gateway(gateway.clone()))
            }
            _ => None,
        }
    }

    /// Returns the references that the id itself contains.
    fn references_in_id(&self) -> Vec<ResourceId> {
        match self {
            ResourceId::Attachment(id) => vec![ResourceId::Route(id.route.clone())],
            ResourceId::Backend(id) => vec![ResourceId::Endpoints(id.clone())],
            ResourceId::Frontend(FrontendId::Outbound(outbound)) => {
                let mut named = vec![ResourceId::Workload(outbound.dataplane.clone())];
                let destination = &outbound.destination.object;
                if outbound.listen.is_none() && is_service(destination) {
                    named.push(ResourceId::Service(destination.clone()));
                }
                named
            }
            _ => Vec::new(),
        }
    }
}

fn is_service(key: &ObjectKey) -> bool {
    matches!(key.kind, Kind::Service | Kind::ServiceImport)
}

/// A resource of any type with its id.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "named after the resources")]
pub enum Resource {
    Frontend(Arc<Frontend>),
    Route(Arc<RouteMeta>),
    Rule(RuleId, Arc<BoundRule>),
    Attachment(Attachment),
    Backend(Arc<Backend>),
    Endpoints(BackendId, Arc<Endpoints>),
    Secret(SecretId, Arc<CertifiedKey>),
    Gateway(Arc<AddressRequest>),
    Service(ObjectKey, Arc<ServiceAddresses>),
    Workload(ObjectKey, Arc<Workload>),
}

impl Resource {
    /// Returns the id of the resource.
    pub fn id(&self) -> ResourceId {
        match self {
            Resource::Frontend(frontend) => ResourceId::Frontend(frontend.id.clone()),
            Resource::Route(route) => ResourceId::Route(route.id.clone()),
            Resource::Rule(id, _) => ResourceId::Rule(id.clone()),
            Resource::Attachment(id) => ResourceId::Attachment(id.clone()),
            Resource::Backend(backend) => ResourceId::Backend(backend.id.clone()),
            Resource::Endpoints(id, _) => ResourceId::Endpoints(id.clone()),
            Resource::Secret(id, _) => ResourceId::Secret(id.clone()),
            Resource::Gateway(request) => ResourceId::Gateway(request.gateway.clone()),
            Resource::Service(key, _) => ResourceId::Service(key.clone()),
            Resource::Workload(key, _) => ResourceId::Workload(key.clone()),
        }
    }

    /// Encodes everything but the id.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Resource::Frontend(value) => proto::Frontend::from(&**value).encode_to_vec(),
            Resource::Route(value) => proto::Route::from(&**value).encode_to_vec(),
            Resource::Rule(_, value) => proto::Rule::from(&**value).encode_to_vec(),
            Resource::Attachment(_) => proto::Attachment {}.encode_to_vec(),
            Resource::Backend(value) => proto::Backend::from(&**value).encode_to_vec(),
            Resource::Endpoints(_, value) => proto::Endpoints::from(&**value).encode_to_vec(),
            Resource::Secret(_, value) => proto::Secret::from(&**value).encode_to_vec(),
            Resource::Gateway(value) => proto::AddressRequest::from(&**value).encode_to_vec(),
            Resource::Service(_, value) => proto::ServiceAddresses::from(&**value).encode_to_vec(),
            Resource::Workload(_, value) => proto::Workload::from(&**value).encode_to_vec(),
        }
    }

    /// Decodes the resource with this id.
    pub fn decode(id: ResourceId, bytes: &[u8]) -> Result<Resource, DecodeError> {
        Ok(match id {
            ResourceId::Frontend(id) => {
                let message = proto::Frontend::decode(bytes)?;
                Resource::Frontend(Arc::new(message.with_id(id)?))
            }
            ResourceId::Route(id) => {
                let message = proto::Route::decode(bytes)?;
                Resource::Route(Arc::new(message.with_id(id)?))
            }
            ResourceId::Rule(id) => {
                let message = proto::Rule::decode(bytes)?;
                let rule = message.with_id(&id)?;
                Resource::Rule(id, Arc::new(rule))
            }
            ResourceId::Attachment(id) => {
                proto::Attachment::decode(bytes)?;
                Resource::Attachment(id)
            }
            ResourceId::Backend(id) => {
                let message = proto::Backend::decode(bytes)?;
                Resource::Backend(Arc::new(message.with_id(id)?))
            }
            ResourceId::Endpoints(id) => {
                let message = proto::Endpoints::decode(bytes)?;
                Resource::Endpoints(id, Arc::new(message.try_into()?))
            }
            ResourceId::Secret(id) => {
                let message = proto::Secret::decode(bytes)?;
                Resource::Secret(id, Arc::new(message.try_into()?))
            }
            ResourceId::Gateway(id) => {
                let message = proto::AddressRequest::decode(bytes)?;
                Resource::Gateway(Arc::new(message.with_id(id)?))
            }
            ResourceId::Service(id) => {
                let message = proto::ServiceAddresses::decode(bytes)?;
                Resource::Service(id, Arc::new(message.try_into()?))
            }
            ResourceId::Workload(id) => {
                let message = proto::Workload::decode(bytes)?;
                Resource::Workload(id, Arc::new(message.try_into()?))
            }
        })
    }

    /// Returns the resources that must be in effect for this one to work. Proxies that receive this one also receive them.
    pub fn references(&self) -> Vec<ResourceId> {
        let mut all = self.id().references_in_id();
        match self {
            Resource::Frontend(frontend) => {
                all.extend(frontend.secrets().cloned().map(ResourceId::Secret));
            }
            Resource::Rule(_, rule) => {
                let filters = rule.backends.iter().flat_map(|backend| &backend.filters);
                let mirrors = filters.chain(&rule.filters).filter_map(Filter::target);
                let targets = rule.backends.iter().map(|backend| &backend.target);
                let targets = targets.chain(mirrors).flatten();
                all.extend(targets.cloned().map(ResourceId::Backend));
            }
            Resource::Backend(backend) => {
                all.extend(backend.secret().cloned().map(ResourceId::Secret));
            }
            Resource::Gateway(request) => {
                all.extend(request.proxy.iter().cloned().map(ResourceId::Workload));
            }
            Resource::Service(key, service) => {
                let ports = service.ports.iter();
                let ports = ports.map(|&(port, transport)| {
                    ResourceId::Backend(BackendId::new(key.clone(), port, transport))
                });
                all.extend(ports);
            }
            Resource::Route(_)
            | Resource::Attachment(_)
            | Resource::Endpoints(..)
            | Resource::Secret(..)
            | Resource::Workload(..) => {}
        }
        all
    }

    /// Adds the resource to a delta, as an update.
    pub fn record(self, delta: &mut Delta) {
        match self {
            Resource::Frontend(value) => delta.frontends.push((value.id.clone(), Some(value))),
            Resource::Route(value) => delta.routes.push((value.id.clone(), Some(value))),
            Resource::Rule(id, value) => delta.rules.push((id, Some(value))),
            Resource::Attachment(id) => delta.attachments.push((id, true)),
            Resource::Backend(value) => delta.backends.push((value.id.clone(), Some(value))),
            Resource::Endpoints(id, value) => delta.endpoints.push((id, Some(value))),
            Resource::Secret(id, value) => delta.secrets.push((id, Some(value))),
            Resource::Gateway(value) => delta.gateways.push((value.gateway.clone(), Some(value))),
            Resource::Service(key, value) => delta.services.push((key, Some(value))),
            Resource::Workload(key, value) => delta.workloads.push((key, Some(value))),
        }
    }
}

impl ResourceId {
    /// Adds the resource to a delta, as a removal.
    pub fn record_removal(self, delta: &mut Delta) {
        match self {
            ResourceId::Frontend(id) => delta.frontends.push((id, None)),
            ResourceId::Route(id) => delta.routes.push((id, None)),
            ResourceId::Rule(id) => delta.rules.push((id, None)),
            ResourceId::Attachment(id) => delta.attachments.push((id, false)),
            ResourceId::Backend(id) => delta.backends.push((id, None)),
            ResourceId::Endpoints(id) => delta.endpoints.push((id, None)),
            ResourceId::Secret(id) => delta.secrets.push((id, None)),
            ResourceId::Gateway(id) => delta.gateways.push((id, None)),
            ResourceId::Service(id) => delta.services.push((id, None)),
            ResourceId::Workload(id) => delta.workloads.push((id, None)),
        }
    }
}

/// A changed resource. A value of `None` is a removal.
pub type ResourceChange = (ResourceId, Option<Resource>);

/// Lists the changed resources of a delta. Statuses are not among them: the control plane keeps them.
pub fn changes(delta: &Delta) -> impl Iterator<Item = ResourceChange> {
    let Delta {
        frontends,
        routes,
        rules,
        attachments,
        backends,
        endpoints,
        secrets,
        gateways,
        services,
        workloads,
        // These are not sent to proxies.
        infrastructures: _,
        statuses: _,
    } = delta;
    let frontends = frontends.iter().map(|(id, value)| {
        let value = value.clone().map(Resource::Frontend);
        (ResourceId::Frontend(id.clone()), value)
    });
    let routes = routes.iter().map(|(id, value)| {
        let value = value.clone().map(Resource::Route);
        (ResourceId::Route(id.clone()), value)
    });
    let rules = rules.iter().map(|(id, value)| {
        let value = value.clone().map(|rule| Resource::Rule(id.clone(), rule));
        (ResourceId::Rule(id.clone()), value)
    });
    let attachments = attachments.iter().map(|(id, attached)| {
        let value = attached.then(|| Resource::Attachment(id.clone()));
        (ResourceId::Attachment(id.clone()), value)
    });
    let backends = backends.iter().map(|(id, value)| {
        let value = value.clone().map(Resource::Backend);
        (ResourceId::Backend(id.clone()), value)
    });
    let gateways = gateways.iter().map(|(id, value): &(Name, _)| {
        let value = value.clone().map(Resource::Gateway);
        (ResourceId::Gateway(id.clone()), value)
    });
    frontends
        .chain(routes)
        .chain(rules)
        .chain(attachments)
        .chain(backends)
        .chain(keyed(endpoints, ResourceId::Endpoints, Resource::Endpoints))
        .chain(keyed(secrets, ResourceId::Secret, Resource::Secret))
        .chain(gateways)
        .chain(keyed(services, ResourceId::Service, Resource::Service))
        .chain(keyed(workloads, ResourceId::Workload, Resource::Workload))
}

fn keyed<K: Clone, V: Clone>(
    changes: &[(K, Option<V>)],
    id: impl Fn(K) -> ResourceId,
    resource: impl Fn(K, V) -> Resource,
) -> impl Iterator<Item = ResourceChange> {
    changes.iter().map(move |(key, value)| {
        let value = value.clone().map(|value| resource(key.clone(), value));
        (id(key.clone()), value)
    })
}
