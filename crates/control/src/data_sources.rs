//! Data that objects of Kuma's name: files and environment variables with certificates and response bodies. They are read here when an object is
//! applied, because binding does no I/O, as far as the operator allows ([`ContentAccess`]).

use pointsman_binding::{Binder, Change, Content, certificate_of};
use pointsman_resources::Resource;
use pointsman_resources::kuma::{DataSource, Filter};

use crate::ContentAccess;

/// Reads everything that an object names.
pub fn read_all(resource: &Resource, access: &ContentAccess) -> Vec<(DataSource, Content)> {
    let sources = sources(resource).into_iter();
    sources
        .filter_map(|source| Some((source.clone(), read(source, access)?)))
        .collect()
}

/// Changes that follow from what was read for an object. A certificate that can't be read any more keeps its last valid content in effect.
pub fn changes(
    resource: &Resource,
    read: Vec<(DataSource, Content)>,
    binder: &Binder,
) -> Vec<Change> {
    let keeps = !matches!(resource, Resource::MeshRoute(_));
    let mut changes = Vec::new();
    for (source, content) in read {
        // A file may be read while it is written.
        let broken = match (&content, resource) {
            (Err(why), _) => Some(why.clone()),
            (Ok(bytes), Resource::MeshGateway(_)) => unusable(bytes, &source),
            (Ok(_), _) => None,
        };
        match broken.filter(|_| keeps && binder.has_read(&source)) {
            Some(why) => tracing::warn!("{}: {why}; what was read before stays", resource.key()),
            None => changes.push(Change::Content(source, Some(content))),
        }
    }
    changes
}

/// Reason why a certificate can't be served: it is incomplete, or the key is not its own.
fn unusable(pem: &[u8], source: &DataSource) -> Option<String> {
    let usable = certificate_of(pem);
    let what = match source {
        DataSource::Filename(name) => format!("file `{name}`"),
        _ => "its certificate".to_owned(),
    };
    usable.err().map(|why| format!("{what}: {why}"))
}

/// Changes that drop data which only a deleted object named.
pub fn released(gone: &Resource, binder: &Binder) -> Vec<Change> {
    let own = sources(gone).into_iter();
    let own: Vec<&DataSource> = own.filter(|source| binder.has_read(source)).collect();
    if own.is_empty() {
        return Vec::new();
    }
    let key = gone.key();
    let others = binder.objects().filter(|(other, _)| *other != key);
    let asked: Vec<&DataSource> = others.flat_map(|(_, other)| sources(other)).collect();
    let idle = own.into_iter().filter(|source| !asked.contains(source));
    idle.map(|source| Change::Content(source.clone(), None))
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

/// Bytes of a data source outside the object; `None` for inline data and secrets.
fn read(source: &DataSource, access: &ContentAccess) -> Option<Content> {
    match source {
        DataSource::Filename(name) => Some(access.file(name)),
        DataSource::EnvironmentVariable(name) => Some(access.variable(name)),
        _ => None,
    }
}
