//! The input of `explain`: a URL, with properties of the request and its client.

use std::net::{IpAddr, SocketAddr};

use pointsman_binding::UnresolvedOutbound;
use pointsman_binding::bound::{Backend, Endpoints, Transport};
use pointsman_resources::{Kind, Name, ObjectKey};

use crate::filters::redirect::default_port;
use crate::path::{PathError, PathPolicy};
use crate::request::{Request, is_method_in_another_case};

/// A hypothetical request and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The parsed URL.
    pub target: ParsedUrl,
    /// The HTTP method.
    pub method: String,
    /// Headers in order. `host` replaces the host of the URL.
    pub headers: Vec<(String, String)>,
    /// The Gateway and optionally the listener that receives the request; selected by the URL if `None`.
    pub gateway: Option<(Name, Option<String>)>,
    /// The namespace and optionally the Pod of the client.
    pub from: Option<(String, Option<String>)>,
    /// The Kuma Dataplane of the client.
    pub dataplane: Option<ObjectKey>,
    /// The client is in a mesh without mutual TLS and therefore has no certificate for `crossMesh` listeners.
    pub without_identity: bool,
    /// The SNI; the host of the URL if `None`.
    pub sni: Option<String>,
    /// The data plane's policy for paths.
    pub paths: PathPolicy,
}

/// Scheme of the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `http://`
    Http,
    /// `https://`
    Https,
    /// `grpc://`: gRPC, without TLS if a listener accepts that, otherwise with TLS.
    Grpc,
    /// `tls://`
    Tls,
    /// `tcp://`
    Tcp,
    /// `udp://`
    Udp,
}

impl Scheme {
    /// Returns the scheme as written in a URL.
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

    /// Returns the transport protocol.
    pub fn transport(self) -> Transport {
        match self {
            Scheme::Udp => Transport::Udp,
            _ => Transport::Tcp,
        }
    }

    /// Returns whether the traffic consists of HTTP requests.
    pub fn is_http(self) -> bool {
        matches!(self, Scheme::Http | Scheme::Https | Scheme::Grpc)
    }

    /// Returns the default port.
    pub fn default_port(self) -> Option<u16> {
        match self {
            Scheme::Grpc => Some(80),
            Scheme::Tls => Some(443),
            scheme => default_port(scheme.as_str()),
        }
    }
}

/// A parsed URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedUrl {
    /// The scheme.
    pub scheme: Scheme,
    /// The host in lower case; an IPv6 address without brackets.
    pub host: String,
    /// The port, if specified.
    pub port: Option<u16>,
    /// The normalized path.
    pub path: String,
    /// The reason for which [`PathPolicy::Strict`] rejects the path.
    pub ambiguity: Option<PathError>,
    /// The query.
    pub query: Option<String>,
}

/// An invalid URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The scheme.
    #[error("`{0}://` is not one of http, https, grpc, tls, tcp, udp")]
    Scheme(String),
    /// The host.
    #[error("the URL has no host")]
    Host,
    /// The port.
    #[error("`{0}` is not a port")]
    Port(String),
    /// The path.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl ParsedUrl {
    /// Parses a URL. The default scheme is http.
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
        Ok(ParsedUrl {
            scheme,
            host: host.to_ascii_lowercase(),
            port,
            path: PathPolicy::Any.normalize(path)?.into_owned(),
            ambiguity: PathPolicy::Strict.normalize(path).err(),
            query,
        })
    }
}

/// Splits an authority into host and port. Brackets around an IPv6 address are removed.
pub(crate) fn split_port(authority: &str) -> (&str, Option<&str>) {
    if let Some(rest) = authority.strip_prefix('[')
        && let Some((host, rest)) = rest.split_once(']')
    {
        return (host, rest.strip_prefix(':'));
    }
    match authority.rsplit_once(':') {
        // Several colons without brackets are part of an IPv6 address.
        Some((host, port)) if !host.contains(':') => (host, Some(port)),
        _ => (authority, None),
    }
}

impl Query {
    /// Creates a GET request for this URL; a POST request for gRPC.
    pub fn new(url: &str) -> Result<Self, QueryError> {
        let target = ParsedUrl::parse(url)?;
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

    /// Returns the requested host in lower case, without port: that of a `host` header, otherwise that of the URL.
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

    /// Returns whether there is a header with this name.
    pub(crate) fn has_header(&self, name: &str) -> bool {
        let mut names = self.headers.iter().map(|(name, _)| name);
        names.any(|other| other.eq_ignore_ascii_case(name))
    }

    /// Returns the elements of a header whose value is a comma-separated list.
    pub(crate) fn list(&self, name: &str) -> impl Iterator<Item = &str> {
        let headers = self.headers.iter();
        headers
            .filter(move |(other, _)| other.eq_ignore_ascii_case(name))
            .flat_map(|(_, value)| value.split(',').map(str::trim))
    }

    /// Returns whether the request opens a WebSocket.
    pub(crate) fn opens_websocket(&self) -> bool {
        let lists = |name, wanted: &str| {
            let mut elements = self.list(name);
            elements.any(|element| element.eq_ignore_ascii_case(wanted))
        };
        self.method == "GET"
            && lists("connection", "upgrade")
            && lists("upgrade", "websocket")
            && lists("sec-websocket-version", "13")
            && self.has_header("sec-websocket-key")
    }

    /// Returns the value of Host: that of a `host` header, otherwise the host of the URL, with brackets if necessary and with the port if it is not the
    /// default.
    pub fn authority(&self) -> String {
        let is_host = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("host");
        if let Some((_, value)) = self.headers.iter().find(is_host) {
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

    /// Returns the SNI; `None` for an IP address or an empty SNI.
    pub fn sni(&self) -> Option<String> {
        match &self.sni {
            Some(sni) => Some(sni.to_ascii_lowercase()).filter(|sni| !sni.is_empty()),
            None => Some(self.target.host.clone()).filter(|host| host.parse::<IpAddr>().is_err()),
        }
    }

    /// Returns the reason if every HTTP frontend rejects the request with 400, regardless of the rules.
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

    /// Returns whether this is a gRPC call.
    pub fn is_grpc(&self) -> bool {
        self.target.scheme == Scheme::Grpc
            || self.target.scheme.is_http()
                && self.headers.iter().any(|(name, value)| {
                    name.eq_ignore_ascii_case("content-type")
                        && value.starts_with("application/grpc")
                })
    }
}

/// A [`Query`] as a request for lookups.
pub(crate) struct QueryRequest<'q> {
    query: &'q Query,
    host: String,
    /// Value of Host, possibly with a port.
    written: String,
}

impl<'q> QueryRequest<'q> {
    pub(crate) fn new(query: &'q Query) -> Self {
        QueryRequest {
            query,
            host: query.host(),
            written: query.authority(),
        }
    }
}

impl Request for QueryRequest<'_> {
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

/// Mesh parents and Pods, by the names and addresses that URLs may use for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// The parents.
    pub parents: Vec<DirectoryEntry>,
    /// Pods with their addresses.
    pub pods: Vec<(ObjectKey, IpAddr)>,
    /// Outbounds of Kuma Dataplanes without a socket, because their `backendRef` does not resolve.
    pub unresolved_outbounds: Vec<UnresolvedOutbound>,
}

/// A mesh parent, such as a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The object.
    pub object: ObjectKey,
    /// Virtual addresses.
    pub addresses: Vec<IpAddr>,
    /// The backend of each port, for calls to which no route applies.
    pub backends: Vec<(Backend, Endpoints)>,
}

impl DirectoryEntry {
    /// Returns the ports of a transport protocol.
    pub(crate) fn ports(&self, transport: Transport) -> impl Iterator<Item = u16> {
        let ids = self.backends.iter().map(|(backend, _)| &backend.id);
        ids.filter(move |id| id.transport == transport)
            .map(|id| id.port)
    }
}

impl Directory {
    /// Returns the Pod with an address.
    pub(crate) fn pod_at(&self, address: IpAddr) -> Option<&ObjectKey> {
        let mut pods = self.pods.iter();
        pods.find(|(_, own)| *own == address).map(|(pod, _)| pod)
    }

    /// Returns the parent that has an address as an endpoint.
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

    /// Resolves a host as seen from a namespace: `svc`, `svc.ns`, `svc.ns.svc` or `svc.ns.svc.cluster.local`; `svc.ns.svc.clusterset.local` for a
    /// ServiceImport; or an address.
    pub fn find(&self, host: &str, from: Option<&str>) -> Option<&DirectoryEntry> {
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
            let kind = parent.object.kind;
            match rest.strip_suffix('.').unwrap_or(rest) {
                "" | ".svc" => kind != Kind::ServiceImport,
                rest => rest.strip_prefix(".svc.") == Some(cluster_domain(kind)),
            }
        })
    }
}

/// Returns the DNS domain of mesh parents of a kind.
pub(crate) fn cluster_domain(kind: Kind) -> &'static str {
    match kind {
        Kind::ServiceImport => "clusterset.local",
        // Services, and the Services that Kuma's destinations on Kubernetes are named after.
        _ => "cluster.local",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read() {
        let target =
            ParsedUrl::parse("https://User@Shop.Example:8443/a/../b?q=1&r#frag").expect("good");
        let wanted = ParsedUrl {
            scheme: Scheme::Https,
            host: "shop.example".into(),
            port: Some(8443),
            path: "/b".into(),
            ambiguity: None,
            query: Some("q=1&r".into()),
        };
        assert_eq!(target, wanted);
        let target = ParsedUrl::parse("[2001:db8::1]:80?x").expect("good");
        assert_eq!(
            (&*target.host, target.port, &*target.path),
            ("2001:db8::1", Some(80), "/")
        );
        assert_eq!(
            ParsedUrl::parse("tcp://10.0.0.1:5432").expect("good").port,
            Some(5432)
        );
    }

    #[test]
    fn a_url_that_cannot_be_read_says_why() {
        assert_eq!(
            ParsedUrl::parse("ftp://x/"),
            Err(QueryError::Scheme("ftp".into()))
        );
        assert_eq!(ParsedUrl::parse("http:///x"), Err(QueryError::Host));
        assert_eq!(
            ParsedUrl::parse("http://x:99999/"),
            Err(QueryError::Port("99999".into()))
        );
        assert_eq!(
            ParsedUrl::parse("http://x/%zz"),
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
            .map(|(kind, address)| DirectoryEntry {
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
