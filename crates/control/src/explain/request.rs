//! Description of a request to explain, from the command line or the page `/explain`, and the objects that it names.

use std::net::IpAddr;

use pointsman_binding::Binder;
use pointsman_resources::{Kind, Name, ObjectKey};
use pointsman_routing::PathPolicy;
use pointsman_routing::explain::{Query, QueryError};

use super::names;

/// A description of a request.
#[derive(Clone, Debug, Default)]
pub struct RequestDescription {
    /// The URL.
    pub url: String,
    /// The method; by default that of the URL's scheme.
    pub method: Option<String>,
    /// Headers, each as `name: value`.
    pub headers: Vec<String>,
    /// The Gateway that receives the request: `NAMESPACE/NAME[/LISTENER]`, or `[MESH/]NAME[/LISTENER]` for a MeshGateway.
    pub gateway: Option<String>,
    /// The client: `NAMESPACE[/POD]` or `dataplane/[MESH/]NAME`.
    pub from: Option<String>,
    /// The SNI; by default the host of the URL.
    pub sni: Option<String>,
    /// The data plane's policy for paths.
    pub paths: PathPolicy,
}

/// A description that is invalid, or that names an object which does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    /// The URL.
    #[error("{url}: {reason}")]
    Url {
        /// The URL as given.
        url: String,
        /// Reason why it is invalid.
        reason: QueryError,
    },
    /// Another field.
    #[error("{field} `{given}`: {reason}")]
    Field {
        /// Name of the field: `header`, `gateway` or `from`.
        field: &'static str,
        /// Its value as given.
        given: String,
        /// Reason why it can't be used.
        reason: String,
    },
}

impl DescriptionError {
    fn of(field: &'static str, given: &str, reason: impl ToString) -> Self {
        DescriptionError::Field {
            field,
            given: given.to_owned(),
            reason: reason.to_string(),
        }
    }
}

impl RequestDescription {
    /// Parses the description. The result has no names of Kuma's objects yet; see [`resolve`](Self::resolve).
    pub fn parse(&self) -> Result<Query, DescriptionError> {
        let mut query = Query::new(&self.url).map_err(|reason| DescriptionError::Url {
            url: self.url.clone(),
            reason,
        })?;
        if let Some(method) = &self.method {
            query.method = method.clone();
        }
        for header in &self.headers {
            let Some((name, value)) = header.split_once(':') else {
                let reason = "the header is not of the form `name: value`";
                return Err(DescriptionError::of("header", header, reason));
            };
            query
                .headers
                .push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
        if let Some(gateway) = &self.gateway {
            query.gateway = Some(parse_gateway(gateway)?);
        }
        if let Some(from) = &self.from {
            query.from = Some(match from.split_once('/') {
                Some((namespace, pod)) => (namespace.to_owned(), Some(pod.to_owned())),
                None => (from.clone(), None),
            });
        }
        query.sni = self.sni.clone();
        query.paths = self.paths;
        Ok(query)
    }

    /// Finds the MeshGateway and the Dataplane that the description names.
    pub fn resolve(&self, binder: &Binder, query: &mut Query) -> Result<(), DescriptionError> {
        if let (Some(given), Some((name, _))) = (&self.gateway, &query.gateway) {
            let gateway = ObjectKey {
                kind: Kind::Gateway,
                name: name.clone(),
            };
            if binder.object(&gateway).is_none() {
                resolve_mesh_gateway(binder, given, &gateway, query)?;
            }
        }
        if let (None, None, Ok(address)) = (
            &query.gateway,
            &self.from,
            query.target.host.parse::<IpAddr>(),
        ) {
            let found = names::gateway_at(binder, address);
            query.gateway = found.map(|name| (name, None));
        }
        let given = self.from.as_deref().unwrap_or_default();
        if given.starts_with("dataplane/") {
            let key = names::dataplane(binder, given);
            let key = key.map_err(|error| DescriptionError::of("from", given, error))?;
            query.from = (key.kind == Kind::Pod)
                .then(|| (key.namespace().to_string(), Some(key.name.name.to_string())));
            query.dataplane = Some(key);
        } else if let Some((namespace, Some(pod))) = &query.from {
            let key = ObjectKey::new(Kind::Pod, namespace.as_str(), pod.as_str());
            query.dataplane = Some(key).filter(|key| binder.is_proxy(key));
        }
        let dataplane = query.dataplane.as_ref();
        query.without_identity = dataplane.is_some_and(|key| !binder.has_mtls(key));
        Ok(())
    }
}

/// Parses the name of a Gateway with an optional listener. A name without a namespace refers to a MeshGateway; `resolve` looks it up.
fn parse_gateway(given: &str) -> Result<(Name, Option<String>), DescriptionError> {
    let mut parts = given.splitn(3, '/');
    let (namespace, name) = (parts.next().unwrap_or_default(), parts.next());
    if namespace.is_empty() || name == Some("") {
        let reason =
            "expected NAMESPACE/NAME or NAMESPACE/NAME/LISTENER, or the NAME of a MeshGateway";
        return Err(DescriptionError::of("gateway", given, reason));
    }
    Ok(match name {
        Some(name) => (Name::new(namespace, name), parts.next().map(str::to_owned)),
        None => (Name::new("", namespace), None),
    })
}

/// Sets the MeshGateway with a name that is not that of a Gateway.
fn resolve_mesh_gateway(
    binder: &Binder,
    given: &str,
    gateway: &ObjectKey,
    query: &mut Query,
) -> Result<(), DescriptionError> {
    let error = |reason: String| DescriptionError::of("gateway", given, reason);
    let found = names::mesh_gateway(binder, given).map_err(|reason| error(reason.to_string()))?;
    let Some((name, listener)) = found else {
        return Err(error(match binder.rejected(gateway) {
            Some(position) => format!("{gateway} was rejected as invalid at {position}"),
            None if given.contains('/') => {
                "there is neither a Gateway nor a MeshGateway with this name".to_owned()
            }
            None => "there is no MeshGateway with this name; expected NAMESPACE/NAME for a Gateway"
                .to_owned(),
        }));
    };
    // A port selects all listeners that use it.
    let port = listener.as_deref();
    let port = port.and_then(|name| name.parse::<u16>().ok());
    query.target.port = port.or(query.target.port);
    query.gateway = Some((name, listener.filter(|_| port.is_none())));
    Ok(())
}
