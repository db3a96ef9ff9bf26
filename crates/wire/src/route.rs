//! Routes.

use pointsman_binding::bound::{Dialect, Hostname, RouteId, RouteMeta};

use crate::error::DecodeError;
use crate::name::decode_age;
use crate::proto;

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
    pub(crate) fn with_id(self, id: RouteId) -> Result<RouteMeta, DecodeError> {
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
