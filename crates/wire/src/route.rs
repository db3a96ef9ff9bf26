//! Routes, their ids, and the ids of rules.

use pointsman_binding::bound::{Dialect, Hostname, RouteBinding, RouteId, RouteMeta, RuleId};

use crate::error::{DecodeError, convert, index, optional, required};
use crate::name::decode_age;
use crate::proto;

impl From<&RouteId> for proto::RouteId {
    fn from(id: &RouteId) -> Self {
        use proto::route_id::Binding;
        let binding = match &id.binding {
            RouteBinding::Gateway => Binding::Gateway(()),
            RouteBinding::Mesh(parent) => Binding::Mesh(proto::MeshBinding {
                parent: parent.as_ref().map(Into::into),
            }),
            RouteBinding::Outbound(destination, proxy) => {
                Binding::Outbound(proto::OutboundBinding {
                    destination: Some(destination.into()),
                    proxy: Some(proxy.into()),
                })
            }
            RouteBinding::MeshGateway(frontend) => Binding::MeshGateway(frontend.into()),
        };
        proto::RouteId {
            route: Some((&id.route).into()),
            binding: Some(binding),
        }
    }
}

impl TryFrom<proto::RouteId> for RouteId {
    type Error = DecodeError;

    fn try_from(id: proto::RouteId) -> Result<Self, DecodeError> {
        use proto::route_id::Binding;
        let binding = match required(id.binding, "RouteId.binding")? {
            Binding::Gateway(()) => RouteBinding::Gateway,
            Binding::Mesh(mesh) => RouteBinding::Mesh(optional(mesh.parent)?),
            Binding::Outbound(outbound) => RouteBinding::Outbound(
                convert(outbound.destination, "OutboundBinding.destination")?,
                convert(outbound.proxy, "OutboundBinding.proxy")?,
            ),
            Binding::MeshGateway(frontend) => RouteBinding::MeshGateway(frontend.try_into()?),
        };
        Ok(RouteId {
            route: convert(id.route, "RouteId.route")?,
            binding,
        })
    }
}

impl From<&RuleId> for proto::RuleId {
    fn from(id: &RuleId) -> Self {
        proto::RuleId {
            route: Some((&id.route).into()),
            index: id.index as u64,
            part: id.part as u64,
        }
    }
}

impl TryFrom<proto::RuleId> for RuleId {
    type Error = DecodeError;

    fn try_from(id: proto::RuleId) -> Result<Self, DecodeError> {
        Ok(RuleId {
            route: convert(id.route, "RuleId.route")?,
            index: index(id.index, "RuleId.index")?,
            part: index(id.part, "RuleId.part")?,
        })
    }
}

impl From<&RouteMeta> for proto::Route {
    fn from(route: &RouteMeta) -> Self {
        let RouteMeta {
            id: _,
            age,
            generation,
            dialect,
            hostnames,
        } = route;
        let dialect = match dialect {
            Dialect::GatewayApi => proto::Dialect::GatewayApi,
            Dialect::Kuma => proto::Dialect::Kuma,
        };
        let hostnames = hostnames.iter().map(|name| name.as_str().to_owned());
        proto::Route {
            age: Some((*age).into()),
            generation: *generation,
            dialect: dialect.into(),
            hostnames: hostnames.collect(),
        }
    }
}

impl proto::Route {
    /// Decodes the route with this id.
    pub(crate) fn decode(self, id: RouteId) -> Result<RouteMeta, DecodeError> {
        let dialect = match self.dialect() {
            proto::Dialect::Unspecified => return Err(DecodeError::Unset("Route.dialect")),
            proto::Dialect::GatewayApi => Dialect::GatewayApi,
            proto::Dialect::Kuma => Dialect::Kuma,
        };
        let hostnames = self.hostnames.iter().map(|name| Hostname::new(name));
        Ok(RouteMeta {
            id,
            dialect,
            hostnames: hostnames.collect(),
            age: decode_age(self.age)?,
            generation: self.generation,
        })
    }
}
