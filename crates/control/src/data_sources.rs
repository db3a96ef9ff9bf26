//! Data sources of Kuma's objects: files and environment variables with certificates and response bodies. Binding does no I/O, so they are read here when an
//! object is applied, as far as the operator allows ([`ContentAccess`]).

use pointsman_binding::{Binder, Change, Content, parse_certified_key};
use pointsman_resources::Resource;
use pointsman_resources::kuma::{DataSource, Filter};

use crate::ContentAccess;

/// Reads the files and environment variables that an object names.
pub fn read_all(resource: &Resource, access: &ContentAccess) -> Vec<(DataSource, Content)> {
    let sources = sources(resource).into_iter();
    sources
        .filter_map(|source| Some((source.clone(), read(source, access)?)))
        .collect()
}

/// Returns the changes for data that was read for an object. A certificate that has become unreadable or invalid keeps its last valid content in effect.
pub fn changes(
    resource: &Resource,
    read: Vec<(DataSource, Content)>,
    binder: &Binder,
) -> Vec<Change> {
    let keeps_last_valid = !matches!(resource, Resource::MeshRoute(_));
    let mut changes = Vec::new();
    for (source, content) in read {
        // A file may be read while it is being written.
        let problem = match (&content, resource) {
            (Err(error), _) => Some(error.clone()),
            (Ok(bytes), Resource::MeshGateway(_)) => certificate_problem(bytes, &source),
            (Ok(_), _) => None,
        };
        match problem.filter(|_| keeps_last_valid && binder.has_read(&source)) {
            Some(problem) => tracing::warn!(
                "{}: {problem}; its last valid content stays in effect",
                resource.key()
            ),
            None => changes.push(Change::Content(source, Some(content))),
        }
    }
    changes
}

/// Returns the reason why a certificate can't be served, such as a key that does not belong to it.
fn certificate_problem(pem: &[u8], source: &DataSource) -> Option<String> {
    let usable = parse_certified_key(pem);
    let name = match source {
        DataSource::Filename(name) => format!("file `{name}`"),
        _ => "its certificate".to_owned(),
    };
    usable.err().map(|error| format!("{name}: {error}"))
}

/// Returns the changes that remove data that only a deleted object references.
pub fn drop_unused(deleted: &Resource, binder: &Binder) -> Vec<Change> {
    let referenced = sources(deleted).into_iter();
    let referenced: Vec<&DataSource> = referenced
        .filter(|source| binder.has_read(source))
        .collect();
    if referenced.is_empty() {
        return Vec::new();
    }
    let key = deleted.key();
    let others = binder.objects().filter(|(other, _)| *other != key);
    let in_use: Vec<&DataSource> = others.flat_map(|(_, other)| sources(other)).collect();
    let unused = referenced
        .into_iter()
        .filter(|source| !in_use.contains(source));
    unused
        .map(|source| Change::Content(source.clone(), None))
        .collect()
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

/// Reads a data source outside the object. `None` for inline data and secrets.
fn read(source: &DataSource, access: &ContentAccess) -> Option<Content> {
    match source {
        DataSource::Filename(name) => Some(access.file(name)),
        DataSource::EnvironmentVariable(name) => Some(access.variable(name)),
        _ => None,
    }
}
