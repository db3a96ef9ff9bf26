//! What is asked of `explain`: a URL and what a client would send with it.

use std::net::{IpAddr, SocketAddr};

use pointsman_binding::UnresolvedOutbound;
use pointsman_binding::bound::{Backend, Endpoints, Transport};
use pointsman_resources::{Kind, Name, ObjectKey};

use crate::filters::redirect::default_port;
use crate::path::{PathError, PathPolicy};
use crate::request::{Request, is_method_in_another_case};

/// A request that may never be sent, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Where it goes.
    pub target: Target,
    /// The HTTP method.
    pub method: String,
    /// Header lines in order. `host` stands for the host of the URL.
    pub headers: Vec<(String, String)>,
    /// The Gateway, and perhaps the listener, that it is sent to; chosen by the URL if none.
    pub gateway: Option<(Name, Option<String>)>,
    /// The namespace, and perhaps the Pod, that it comes from.
    pub from: Option<(String, Option<String>)>,
    /// The Dataplane of Kuma's that it comes from.
    pub dataplane: Option<ObjectKey>,
    /// Whether that is of a mesh without mutual TLS, and so has nothing to show at `crossMesh` listeners.
    pub without_identity: bool,
    /// The SNI; the host of the URL if none.
    pub sni: Option<String>,
    /// Paths that the data plane serves.
    pub paths: PathPolicy,
}

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `http://`
    Http,
    /// `https://`
    Https,
    /// `grpc://`: gRPC without TLS where that is listened for, else with it.
    Grpc,
    /// `tls://`
    Tls,
    /// `tcp://`
    Tcp,
    /// `udp://`
    Udp,
}

impl Scheme {
    /// As it is written in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
            Scheme::Grpc => "grpc",
            Scheme::Tls => "tls",
            Scheme::Tcp => "tcp",
            Scheme::Udp => "udp",
        }
    }

    /// What it runs over.
    pub fn transport(self) -> Transport {
        match self {
            Scheme::Udp => Transport::Udp,
            _ => Transport::Tcp,
        }
    }

    /// Whether requests are seen, or only bytes.
    pub fn is_http(self) -> bool {
        matches!(self, Scheme::Http | Scheme::Https | Scheme::Grpc)
    }

    /// The port where the URL has none.
    pub fn default_port(self) -> Option<u16> {
        match self {
            Scheme::Grpc => Some(80),
            Scheme::Tls => Some(443),
            scheme => default_port(scheme.as_str()),
        }
    }
}

/// A URL, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What is spoken.
    pub scheme: Scheme,
    /// The host in lower case; an IPv6 address without brackets.
    pub host: String,
    /// The port, if one is written.
    pub port: Option<u16>,
    /// The path, normalised.
    pub path: String,
    /// The reason for which [`PathPolicy::Strict`] rejects the path.
    pub ambiguity: Option<PathError>,
    /// The query.
    pub query: Option<String>,
}

/// Why a URL can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The scheme.
    #[error("`{0}://` is none of http, https, grpc, tls, tcp, udp")]
    Scheme(String),
    /// The host.
    #[error("the URL has no host")]
    Host,
    /// The port.
    #[error("`{0}` is no port")]
    Port(String),
    /// The path.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl Target {
    /// Reads a URL; without a scheme it is an HTTP one.
    pub fn parse(url: &str) -> Result<Self, QueryError> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" | "ws" => Scheme::Http,
            "https" | "wss" => Scheme::Https,
            "grpc" => Scheme::Grpc,
            "tls" => Scheme::Tls,
            "tcp" => Scheme::Tcp,
            "udp" => Scheme::Udp,
            _ => return Err(QueryError::Scheme(scheme.to_owned())),
        };
        let rest = rest.split('#').next().unwrap_or(rest);
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (target, None),
        };
        let path = if path.is_empty() { "/" } else { path };
        let authority = authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host);
        let (host, port) = split_port(authority);
        let port = match port {
            None | Some("") => None,
            Some(text) => Some(
                text.parse()
                    .map_err(|_| QueryError::Port(text.to_owned()))?,
            ),
        };
        if host.is_empty() {
            return Err(QueryError::Host);
        }
        Ok(Target {
            scheme,
            host: host.to_ascii_lowercase(),
            port,
            path: PathPolicy::Any.normalize(path)?.into_owned(),
            ambiguity: PathPolicy::Strict.normalize(path).err(),
            query,
        })
    }
}

/// Host and port of an authority; brackets around an IPv6 address go.
pub(crate) fn split_port(authority: &str) -> (&str, Option<&str>) {
    if let Some(rest) = authority.strip_prefix('[')
        && let Some((host, rest)) = rest.split_once(']')
    {
        return (host, rest.strip_prefix(':'));
    }
    match authority.rsplit_once(':') {
        // Several colons without brackets are an address, not a port.
        Some((host, port)) if !host.contains(':') => (host, Some(port)),
        _ => (authority, None),
    }
}

impl Query {
    /// A GET of this URL; for gRPC a POST.
    pub fn new(url: &str) -> Result<Self, QueryError> {
        let target = Target::parse(url)?;
        let method = if target.scheme == Scheme::Grpc {
            "POST"
        } else {
            "GET"
        };
        Ok(Query {
            target,
            method: method.to_owned(),
            headers: Vec::new(),
            gateway: None,
            from: None,
            dataplane: None,
            without_identity: false,
            sni: None,
            paths: PathPolicy::default(),
        })
    }

    /// The host that is asked for, in lower case and without a port: that of a `host` header, else the URL's.
    pub fn host(&self) -> String {
        match self
            .headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("host"))
        {
            Some((_, value)) => split_port(value).0.to_ascii_lowercase(),
            None => self.target.host.clone(),
        }
    }

    /// Whether it has a header of this name.
    pub(crate) fn has_header(&self, name: &str) -> bool {
        let mut names = self.headers.iter().map(|(name, _)| name);
        names.any(|other| other.eq_ignore_ascii_case(name))
    }

    /// What stands as Host: what is said, or the URL's host, with brackets, and with the port where it is not the scheme's.
    pub fn authority(&self) -> String {
        let said = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("host");
        if let Some((_, value)) = self.headers.iter().find(said) {
            return value.clone();
        }
        let target = &self.target;
        let host = match target.host.contains(':') {
            true => format!("[{}]", target.host),
            false => target.host.clone(),
        };
        match target.port {
            Some(port) if target.scheme.default_port() != Some(port) => format!("{host}:{port}"),
            _ => host,
        }
    }

    /// The SNI that is sent; none for an address, and where it is empty.
    pub fn sni(&self) -> Option<String> {
        match &self.sni {
            Some(sni) => Some(sni.to_ascii_lowercase()).filter(|sni| !sni.is_empty()),
            None => Some(self.target.host.clone()).filter(|host| host.parse::<IpAddr>().is_err()),
        }
    }

    /// The reason for which the request gets 400 wherever requests are seen, whatever the rules.
    pub(crate) fn rejected(&self) -> Option<String> {
        if !self.target.scheme.is_http() {
            return None;
        }
        if is_method_in_another_case(&self.method) {
            let message = "the method differs from a registered one only in case";
            return Some(message.to_owned());
        }
        let ambiguity = self.target.ambiguity?;
        (self.paths == PathPolicy::Strict).then(|| ambiguity.to_string())
    }

    /// Whether it is a gRPC call.
    pub fn is_grpc(&self) -> bool {
        self.target.scheme == Scheme::Grpc
            || self.target.scheme.is_http()
                && self.headers.iter().any(|(name, value)| {
                    name.eq_ignore_ascii_case("content-type")
                        && value.starts_with("application/grpc")
                })
    }
}

/// A [`Query`] as the table sees it.
pub(crate) struct Seen<'q> {
    query: &'q Query,
    host: String,
    /// The host as it is written, perhaps with a port.
    written: String,
}

impl<'q> Seen<'q> {
    pub(crate) fn new(query: &'q Query) -> Self {
        Seen {
            query,
            host: query.host(),
            written: query.authority(),
        }
    }
}

impl Request for Seen<'_> {
    fn method(&self) -> &str {
        &self.query.method
    }
    fn authority(&self) -> &str {
        &self.host
    }
    fn path(&self) -> &str {
        &self.query.target.path
    }
    fn query(&self) -> Option<&str> {
        self.query.target.query.as_deref()
    }
    fn header(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        let host = name.eq_ignore_ascii_case("host");
        let host = host.then_some(self.written.as_bytes());
        let lines = self.query.headers.iter();
        lines
            .filter(move |(other, _)| host.is_none() && other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_bytes())
            .chain(host)
    }
}

/// The mesh parents that names and addresses in URLs stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// The parents.
    pub parents: Vec<MeshParent>,
    /// Pods with their addresses.
    pub pods: Vec<(ObjectKey, IpAddr)>,
    /// Outbounds of Kuma's Dataplanes that are not listened on, as their `backendRef` does not resolve.
    pub unresolved_outbounds: Vec<UnresolvedOutbound>,
}

/// A Service or its kin, as clients find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshParent {
    /// Which one.
    pub object: ObjectKey,
    /// Its virtual addresses.
    pub addresses: Vec<IpAddr>,
    /// Its ports: where calls go that no route governs.
    pub backends: Vec<(Backend, Endpoints)>,
}

impl MeshParent {
    /// Its ports for streams, or for datagrams.
    pub(crate) fn ports(&self, transport: Transport) -> impl Iterator<Item = u16> {
        let ids = self.backends.iter().map(|(backend, _)| &backend.id);
        ids.filter(move |id| id.transport == transport)
            .map(|id| id.port)
    }
}

impl Directory {
    /// The Pod that has an address.
    pub(crate) fn pod_at(&self, address: IpAddr) -> Option<&ObjectKey> {
        let mut pods = self.pods.iter();
        pods.find(|(_, own)| *own == address).map(|(pod, _)| pod)
    }

    /// The parent that has an address as an endpoint.
    pub(crate) fn owner_of(&self, address: SocketAddr, transport: Transport) -> Option<&ObjectKey> {
        let has = |(backend, endpoints): &(Backend, Endpoints)| match endpoints {
            Endpoints::Addresses(list) => {
                backend.id.transport == transport
                    && list.iter().any(|endpoint| endpoint.address == address)
            }
            Endpoints::Dns(..) => false,
        };
        let mut parents = self.parents.iter();
        let found = parents.find(|parent| parent.backends.iter().any(has));
        found.map(|parent| &parent.object)
    }

    /// The parent that a host stands for, seen from a namespace: `svc`, `svc.ns`, `svc.ns.svc` or `svc.ns.svc.cluster.local`; for a
    /// ServiceImport `svc.ns.svc.clusterset.local`; or one of its addresses.
    pub fn find(&self, host: &str, from: Option<&str>) -> Option<&MeshParent> {
        let address = host.parse::<IpAddr>().ok();
        self.parents.iter().find(|parent| {
            if let Some(address) = address {
                return parent.addresses.contains(&address);
            }
            let name = &parent.object.name;
            let Some(rest) = host.strip_prefix(&*name.name) else {
                return false;
            };
            if rest.is_empty() {
                let is_service = parent.object.kind == Kind::Service;
                return is_service && from == Some(&*name.namespace);
            }
            let Some(rest) = rest.strip_prefix('.') else {
                return false;
            };
            let Some(rest) = rest.strip_prefix(&*name.namespace) else {
                return false;
            };
            let is_import = parent.object.kind == Kind::ServiceImport;
            match rest.strip_suffix('.').unwrap_or(rest) {
                "" | ".svc" | ".svc.cluster.local" => !is_import,
                ".svc.clusterset.local" => is_import,
                _ => false,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read() {
        let target =
            Target::parse("https://User@Shop.Example:8443/a/../b?q=1&r#frag").expect("good");
        let wanted = Target {
            scheme: Scheme::Https,
            host: "shop.example".into(),
            port: Some(8443),
            path: "/b".into(),
            ambiguity: None,
            query: Some("q=1&r".into()),
        };
        assert_eq!(target, wanted);
        let target = Target::parse("[2001:db8::1]:80?x").expect("good");
        assert_eq!(
            (&*target.host, target.port, &*target.path),
            ("2001:db8::1", Some(80), "/")
        );
        assert_eq!(
            Target::parse("tcp://10.0.0.1:5432").expect("good").port,
            Some(5432)
        );
    }

    #[test]
    fn a_url_that_cannot_be_read_says_why() {
        assert_eq!(
            Target::parse("ftp://x/"),
            Err(QueryError::Scheme("ftp".into()))
        );
        assert_eq!(Target::parse("http:///x"), Err(QueryError::Host));
        assert_eq!(
            Target::parse("http://x:99999/"),
            Err(QueryError::Port("99999".into()))
        );
        assert_eq!(
            Target::parse("http://x/%zz"),
            Err(QueryError::Path(PathError::Escape))
        );
    }

    #[test]
    fn a_service_is_found_by_its_names_and_addresses() {
        let directory = Directory {
            unresolved_outbounds: Vec::new(),
            parents: [
                (Kind::Service, "10.0.0.1"),
                (Kind::ServiceImport, "10.9.0.1"),
            ]
            .map(|(kind, address)| MeshParent {
                object: ObjectKey::new(kind, "shop", "cart"),
                addresses: vec![address.parse().expect("an address")],
                backends: vec![],
            })
            .into(),
            pods: Vec::new(),
        };
        let (service, import) = (Some(Kind::Service), Some(Kind::ServiceImport));
        let table = [
            ("cart", Some("shop"), service),
            ("cart", Some("other"), None),
            ("cart", None, None),
            ("cart.shop", None, service),
            ("cart.shop.svc", None, service),
            ("cart.shop.svc.cluster.local", None, service),
            ("cart.shop.svc.cluster.local.", None, service),
            ("cart.shop.example", None, None),
            ("cart2.shop", None, None),
            ("10.0.0.1", None, service),
            ("cart.shop.svc.clusterset.local", None, import),
            ("cart.shop.svc.clusterset.local.", None, import),
            ("10.9.0.1", None, import),
            ("10.0.0.2", None, None),
        ];
        for (host, from, wanted) in table {
            let found = directory.find(host, from);
            let kind = found.map(|parent| parent.object.kind);
            assert_eq!(kind, wanted, "{host} {from:?}");
        }
    }
}
