//! Files and variables of the environment that policies and listeners of Kuma take bytes from. They are read when the configuration is
//! loaded: binding itself reads nothing.

use pointsman_binding::{Change, Content};
use pointsman_resources::Resource;
use pointsman_resources::kuma::{DataSource, Filter};

/// What an object takes from outside, read now. A certificate that can't be read any more stays what it was, where that is `known`.
pub fn of(resource: &Resource, known: impl Fn(&DataSource) -> bool) -> Vec<Change> {
    let keeps = !matches!(resource, Resource::MeshRoute(_));
    let mut changes = Vec::new();
    for source in sources(resource) {
        match read(source) {
            Some(Err(why)) if keeps && known(source) => {
                tracing::warn!("{}: {why}; what was read before stays", resource.key());
            }
            Some(read) => changes.push(Change::Content(source.clone(), Some(read))),
            None => {}
        }
    }
    changes
}

/// An object and what it takes from outside.
pub fn put(
    resource: &Resource,
    known: impl Fn(&DataSource) -> bool,
) -> impl Iterator<Item = Change> {
    of(resource, known)
        .into_iter()
        .chain([Change::Put(resource.clone())])
}

fn sources(resource: &Resource) -> Vec<&DataSource> {
    match resource {
        Resource::MeshRoute(route) => {
            let rules = route.spec.to.iter().flat_map(|to| &to.rules);
            let filters = rules.flat_map(|rule| rule.default.filters.iter().flatten());
            filters
                .filter_map(|filter| match filter {
                    Filter::DirectResponse(direct) => direct.body.as_ref(),
                    _ => None,
                })
                .collect()
        }
        Resource::MeshGateway(gateway) => {
            let listeners = gateway.spec.conf.listeners.iter();
            let tls = listeners.filter_map(|listener| listener.tls.as_ref());
            tls.flat_map(|tls| &tls.certificates).collect()
        }
        Resource::MeshExternalService(service) => {
            let tls = service.spec.tls.iter().map(|tls| &tls.verification);
            tls.flat_map(|tls| [&tls.ca_cert, &tls.client_cert, &tls.client_key])
                .flatten()
                .collect()
        }
        _ => Vec::new(),
    }
}

/// The bytes of a source that is outside; none if it is not.
fn read(source: &DataSource) -> Option<Content> {
    match source {
        DataSource::Filename(name) => Some(
            std::fs::read(name)
                .map(Into::into)
                .map_err(|error| format!("file `{name}` can't be read: {error}")),
        ),
        DataSource::EnvironmentVariable(name) => Some(match std::env::var_os(name) {
            Some(value) => Ok(value.into_encoded_bytes().into()),
            None => Err(format!("environment variable `{name}` is not set")),
        }),
        _ => None,
    }
}
