//! Ids of resources and their text form, which is the name of a resource in xDS. `resources.proto` documents it.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

use pointsman_binding::bound::{
    Attachment, BackendId, FrontendId, Outbound, RouteBinding, RouteId, RuleId, Scope, SecretId,
    Tags, Transport,
};
use pointsman_resources::{Kind, Name, ObjectKey};

use crate::error::DecodeError;

/// Identifies a resource of any type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "named after the resources")]
pub enum ResourceId {
    Frontend(FrontendId),
    Route(RouteId),
    Rule(RuleId),
    Attachment(Attachment),
    Backend(BackendId),
    Endpoints(BackendId),
    Secret(SecretId),
    Gateway(Name),
    Service(ObjectKey),
    Workload(ObjectKey),
}

impl ResourceId {
    /// Returns the resource's name in xDS.
    pub fn name(&self) -> String {
        let mut out = NameWriter(String::with_capacity(96));
        match self {
            ResourceId::Frontend(id) => out.literal("frontend").frontend(id),
            ResourceId::Route(id) => out.literal("route").route(id),
            ResourceId::Rule(id) => {
                let out = out.literal("rule").route(&id.route);
                out.display(id.index).display(id.part)
            }
            ResourceId::Attachment(id) => out
                .literal("attachment")
                .frontend(&id.frontend)
                .route(&id.route),
            ResourceId::Backend(id) => out.literal("backend").backend(id),
            ResourceId::Endpoints(id) => out.literal("endpoints").backend(id),
            ResourceId::Secret(id) => out.literal("secret").secret(id),
            ResourceId::Gateway(name) => out.literal("gateway").name(name),
            ResourceId::Service(key) => out.literal("service").object(key),
            ResourceId::Workload(key) => out.literal("workload").object(key),
        };
        out.0
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// Appends parts to a name.
struct NameWriter(String);

impl NameWriter {
    /// Appends a part that needs no escaping.
    fn literal(&mut self, text: &str) -> &mut Self {
        if !self.0.is_empty() {
            self.0.push('/');
        }
        self.0.push_str(text);
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.literal("");
        self.escaped(text);
        self
    }

    fn escaped(&mut self, text: &str) {
        for char in text.chars() {
            match char {
                '/' => self.0.push_str("%2F"),
                '%' => self.0.push_str("%25"),
                ',' => self.0.push_str("%2C"),
                '=' => self.0.push_str("%3D"),
                other => self.0.push(other),
            }
        }
    }

    fn display(&mut self, value: impl fmt::Display) -> &mut Self {
        self.literal(&value.to_string())
    }

    fn name(&mut self, name: &Name) -> &mut Self {
        self.text(&name.namespace).text(&name.name)
    }

    fn object(&mut self, key: &ObjectKey) -> &mut Self {
        self.literal(key.kind.name()).name(&key.name)
    }

    fn transport(&mut self, transport: Transport) -> &mut Self {
        self.literal(match transport {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
        })
    }

    fn backend(&mut self, id: &BackendId) -> &mut Self {
        let BackendId {
            object,
            port,
            transport,
            tags,
        } = id;
        self.object(object).display(port).transport(*transport);
        self.literal("");
        for (index, (name, value)) in tags.iter().enumerate() {
            if index > 0 {
                self.0.push(',');
            }
            self.escaped(name);
            self.0.push('=');
            self.escaped(value);
        }
        self
    }

    fn frontend(&mut self, id: &FrontendId) -> &mut Self {
        match id {
            FrontendId::Listener {
                gateway,
                owner,
                listener,
            } => {
                self.literal("listener").name(gateway);
                self.object(owner).text(listener)
            }
            FrontendId::Mesh {
                parent,
                port,
                transport,
                scope,
            } => {
                self.literal("mesh").object(parent);
                self.display(port).transport(*transport);
                match scope {
                    Scope::Everyone => self.literal("all"),
                    Scope::Namespace(name) => self.literal("namespace").text(name),
                }
            }
            FrontendId::Outbound(outbound) => {
                let Outbound {
                    dataplane,
                    destination,
                    listen,
                } = &**outbound;
                self.literal("outbound").object(dataplane);
                self.backend(destination);
                match listen {
                    Some(address) => self.display(address),
                    None => self.literal(""),
                }
            }
        }
    }

    fn route(&mut self, id: &RouteId) -> &mut Self {
        self.object(&id.route);
        match &id.binding {
            RouteBinding::Gateway => self.literal("gateway"),
            RouteBinding::Mesh(None) => self.literal("mesh"),
            RouteBinding::Mesh(Some(parent)) => self.literal("mesh-parent").backend(parent),
            RouteBinding::Outbound(destination, proxy) => {
                self.literal("outbound").backend(destination).object(proxy)
            }
            RouteBinding::MeshGateway(frontend) => self.literal("mesh-gateway").frontend(frontend),
        }
    }

    fn secret(&mut self, id: &SecretId) -> &mut Self {
        match id {
            SecretId::Object(name) => self.literal("object").name(name),
            SecretId::Listener {
                gateway,
                listener,
                certificate,
            } => {
                self.literal("listener").name(gateway);
                self.display(listener).display(certificate)
            }
            SecretId::ExternalService(name) => self.literal("external-service").name(name),
            SecretId::Mesh(mesh) => self.literal("mesh").text(mesh),
        }
    }
}

impl FromStr for ResourceId {
    type Err = DecodeError;

    /// Parses a name.
    fn from_str(name: &str) -> Result<Self, DecodeError> {
        let mut parts = NameReader {
            name,
            parts: name.split('/'),
        };
        let id = match parts.next()? {
            "frontend" => ResourceId::Frontend(parts.frontend()?),
            "route" => ResourceId::Route(parts.route()?),
            "rule" => ResourceId::Rule(RuleId {
                route: parts.route()?,
                index: parts.parse()?,
                part: parts.parse()?,
            }),
            "attachment" => ResourceId::Attachment(Attachment {
                frontend: parts.frontend()?,
                route: parts.route()?,
            }),
            "backend" => ResourceId::Backend(parts.backend()?),
            "endpoints" => ResourceId::Endpoints(parts.backend()?),
            "secret" => ResourceId::Secret(parts.secret()?),
            "gateway" => ResourceId::Gateway(parts.name()?),
            "service" => ResourceId::Service(parts.object()?),
            "workload" => ResourceId::Workload(parts.object()?),
            _ => return Err(parts.error()),
        };
        match parts.parts.next() {
            None => Ok(id),
            Some(_) => Err(parts.error()),
        }
    }
}

/// Takes parts off a name.
struct NameReader<'n> {
    name: &'n str,
    parts: std::str::Split<'n, char>,
}

impl<'n> NameReader<'n> {
    fn error(&self) -> DecodeError {
        DecodeError::invalid("name", self.name, "an id that this version knows")
    }

    fn next(&mut self) -> Result<&'n str, DecodeError> {
        self.parts.next().ok_or_else(|| self.error())
    }

    fn unescape(&self, part: &str) -> Result<String, DecodeError> {
        let mut out = String::with_capacity(part.len());
        let mut rest = part;
        while let Some((before, after)) = rest.split_once('%') {
            out.push_str(before);
            out.push(match after.get(..2) {
                Some("2F") => '/',
                Some("25") => '%',
                Some("2C") => ',',
                Some("3D") => '=',
                _ => return Err(self.error()),
            });
            rest = &after[2..];
        }
        out.push_str(rest);
        Ok(out)
    }

    fn text(&mut self) -> Result<Arc<str>, DecodeError> {
        let part = self.next()?;
        match part.contains('%') {
            true => Ok(self.unescape(part)?.into()),
            false => Ok(part.into()),
        }
    }

    fn parse<T: FromStr>(&mut self) -> Result<T, DecodeError> {
        self.next()?.parse().map_err(|_| self.error())
    }

    fn name(&mut self) -> Result<Name, DecodeError> {
        Ok(Name::new(self.text()?, self.text()?))
    }

    fn object(&mut self) -> Result<ObjectKey, DecodeError> {
        let kind = self.next()?;
        let mut all = Kind::ALL.into_iter();
        let kind = all.find(|known| known.name() == kind);
        Ok(ObjectKey {
            kind: kind.ok_or_else(|| self.error())?,
            name: self.name()?,
        })
    }

    fn transport(&mut self) -> Result<Transport, DecodeError> {
        match self.next()? {
            "tcp" => Ok(Transport::Tcp),
            "udp" => Ok(Transport::Udp),
            _ => Err(self.error()),
        }
    }

    fn backend(&mut self) -> Result<BackendId, DecodeError> {
        Ok(BackendId {
            object: self.object()?,
            port: self.parse()?,
            transport: self.transport()?,
            tags: self.tags()?,
        })
    }

    fn tags(&mut self) -> Result<Tags, DecodeError> {
        let part = self.next()?;
        if part.is_empty() {
            return Ok(Tags::default());
        }
        let tags = part.split(',').map(|tag| {
            let (name, value) = tag.split_once('=').ok_or_else(|| self.error())?;
            Ok((self.unescape(name)?, self.unescape(value)?))
        });
        let tags: Vec<(String, String)> = tags.collect::<Result<_, DecodeError>>()?;
        let tags = tags.iter();
        Ok(tags.map(|(name, value)| (&**name, &**value)).collect())
    }

    fn frontend(&mut self) -> Result<FrontendId, DecodeError> {
        Ok(match self.next()? {
            "listener" => FrontendId::Listener {
                gateway: self.name()?,
                owner: self.object()?,
                listener: self.text()?,
            },
            "mesh" => FrontendId::Mesh {
                parent: self.object()?,
                port: self.parse()?,
                transport: self.transport()?,
                scope: match self.next()? {
                    "all" => Scope::Everyone,
                    "namespace" => Scope::Namespace(self.text()?),
                    _ => return Err(self.error()),
                },
            },
            "outbound" => FrontendId::Outbound(Arc::new(Outbound {
                dataplane: self.object()?,
                destination: self.backend()?,
                listen: match self.next()? {
                    "" => None,
                    text => Some(text.parse::<SocketAddr>().map_err(|_| self.error())?),
                },
            })),
            _ => return Err(self.error()),
        })
    }

    fn route(&mut self) -> Result<RouteId, DecodeError> {
        Ok(RouteId {
            route: self.object()?,
            binding: match self.next()? {
                "gateway" => RouteBinding::Gateway,
                "mesh" => RouteBinding::Mesh(None),
                "mesh-parent" => RouteBinding::Mesh(Some(Arc::new(self.backend()?))),
                "outbound" => {
                    RouteBinding::Outbound(Arc::new(self.backend()?), Arc::new(self.object()?))
                }
                "mesh-gateway" => RouteBinding::MeshGateway(Arc::new(self.frontend()?)),
                _ => return Err(self.error()),
            },
        })
    }

    fn secret(&mut self) -> Result<SecretId, DecodeError> {
        Ok(match self.next()? {
            "object" => SecretId::Object(self.name()?),
            "listener" => SecretId::Listener {
                gateway: self.name()?,
                listener: self.parse()?,
                certificate: self.parse()?,
            },
            "external-service" => SecretId::ExternalService(self.name()?),
            "mesh" => SecretId::Mesh(self.text()?),
            _ => return Err(self.error()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: Kind, namespace: &str, name: &str) -> ObjectKey {
        ObjectKey::new(kind, namespace, name)
    }

    #[test]
    fn names_are_readable_and_parse_to_the_same_id() {
        let gateway = Name::new("infra", "edge");
        let listener = FrontendId::Listener {
            gateway: gateway.clone(),
            owner: object(Kind::ListenerSet, "shop", "more"),
            listener: "http".into(),
        };
        let mut tagged = BackendId::new(
            object(Kind::MeshService, "mesh:default", "a/b"),
            0,
            Transport::Tcp,
        );
        tagged.tags = [("kuma.io/zone", "50%,=/"), ("version", "")]
            .into_iter()
            .collect();
        let service = BackendId::new(object(Kind::Service, "shop", "web"), 80, Transport::Udp);
        let outbound = |listen: Option<&str>| {
            FrontendId::Outbound(Arc::new(Outbound {
                dataplane: object(Kind::Dataplane, "mesh:default", "dp"),
                destination: tagged.clone(),
                listen: listen.map(|text| text.parse().expect("an address")),
            }))
        };
        let mesh = |scope| FrontendId::Mesh {
            parent: service.object.clone(),
            port: 80,
            transport: Transport::Tcp,
            scope,
        };
        let route = |binding| RouteId {
            route: object(Kind::HTTPRoute, "shop", "r"),
            binding,
        };
        let tags = "MeshService/mesh:default/a%2Fb/0/tcp/kuma.io%2Fzone=50%25%2C%3D%2F,version=";
        let cases = [
            (
                ResourceId::Frontend(listener.clone()),
                "frontend/listener/infra/edge/ListenerSet/shop/more/http".to_owned(),
            ),
            (
                ResourceId::Frontend(mesh(Scope::Everyone)),
                "frontend/mesh/Service/shop/web/80/tcp/all".to_owned(),
            ),
            (
                ResourceId::Frontend(mesh(Scope::Namespace("all".into()))),
                "frontend/mesh/Service/shop/web/80/tcp/namespace/all".to_owned(),
            ),
            (
                ResourceId::Frontend(outbound(None)),
                format!("frontend/outbound/Dataplane/mesh:default/dp/{tags}/"),
            ),
            (
                ResourceId::Frontend(outbound(Some("[::1]:80"))),
                format!("frontend/outbound/Dataplane/mesh:default/dp/{tags}/[::1]:80"),
            ),
            (
                ResourceId::Route(route(RouteBinding::Gateway)),
                "route/HTTPRoute/shop/r/gateway".to_owned(),
            ),
            (
                ResourceId::Route(route(RouteBinding::Mesh(None))),
                "route/HTTPRoute/shop/r/mesh".to_owned(),
            ),
            (
                ResourceId::Route(route(RouteBinding::Mesh(Some(Arc::new(service.clone()))))),
                "route/HTTPRoute/shop/r/mesh-parent/Service/shop/web/80/udp/".to_owned(),
            ),
            (
                ResourceId::Route(route(RouteBinding::Outbound(
                    Arc::new(tagged.clone()),
                    Arc::new(object(Kind::Dataplane, "mesh:default", "dp")),
                ))),
                format!(
                    "route/HTTPRoute/shop/r/outbound/{tags}/Dataplane/mesh:default/dp"
                ),
            ),
            (
                ResourceId::Rule(RuleId {
                    route: route(RouteBinding::MeshGateway(Arc::new(listener.clone()))),
                    index: 3,
                    part: 1,
                }),
                "rule/HTTPRoute/shop/r/mesh-gateway/listener/infra/edge/ListenerSet/shop/more/http/3/1"
                    .to_owned(),
            ),
            (
                ResourceId::Attachment(Attachment {
                    frontend: listener,
                    route: route(RouteBinding::Gateway),
                }),
                "attachment/listener/infra/edge/ListenerSet/shop/more/http/HTTPRoute/shop/r/gateway"
                    .to_owned(),
            ),
            (ResourceId::Backend(tagged.clone()), format!("backend/{tags}")),
            (ResourceId::Endpoints(tagged), format!("endpoints/{tags}")),
            (
                ResourceId::Secret(SecretId::Object(Name::new("", "x"))),
                "secret/object//x".to_owned(),
            ),
            (
                ResourceId::Secret(SecretId::Listener {
                    gateway: gateway.clone(),
                    listener: 2,
                    certificate: 0,
                }),
                "secret/listener/infra/edge/2/0".to_owned(),
            ),
            (
                ResourceId::Secret(SecretId::ExternalService(gateway.clone())),
                "secret/external-service/infra/edge".to_owned(),
            ),
            (
                ResourceId::Secret(SecretId::Mesh("default".into())),
                "secret/mesh/default".to_owned(),
            ),
            (ResourceId::Gateway(gateway), "gateway/infra/edge".to_owned()),
            (
                ResourceId::Service(service.object.clone()),
                "service/Service/shop/web".to_owned(),
            ),
            (
                ResourceId::Workload(object(Kind::Pod, "shop", "p")),
                "workload/Pod/shop/p".to_owned(),
            ),
        ];
        for (id, name) in cases {
            assert_eq!(id.name(), name);
            assert_eq!(name.parse::<ResourceId>(), Ok(id), "{name}");
        }
    }

    #[test]
    fn other_names_are_rejected() {
        for name in [
            "",
            "rule",
            "planet/earth",
            "gateway/infra",
            "gateway/infra/edge/more",
            "service/Nothing/a/b",
            "backend/Service/a/b/65536/tcp/",
            "backend/Service/a/b/80/sctp/",
            "backend/Service/a/b/80/tcp/tag",
            "gateway/a/b%2",
            "gateway/a/b%zz",
            "gateway/a/b%ü",
        ] {
            assert!(name.parse::<ResourceId>().is_err(), "{name}");
        }
    }

    #[test]
    fn kinds_have_different_names() {
        let names = Kind::ALL.map(Kind::name);
        let different: std::collections::BTreeSet<_> = names.into_iter().collect();
        assert_eq!(different.len(), Kind::ALL.len());
    }
}
