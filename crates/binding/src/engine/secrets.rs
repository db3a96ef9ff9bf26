//! Certificates that the data plane needs: those that frontends and backends reference. They are loaded separately, so that a renewed certificate does
//! not recompute the resources that reference it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{FastMap, Query, Reader, adjust_count};
use crate::bound::{BackendId, CertifiedKey, FrontendId, SecretId};
use crate::gateway_api::certificates;
use crate::kuma::lowering::content;
use crate::{Binder, Delta, kuma};

/// A resource that references certificates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Referrer {
    Frontend(FrontendId),
    Backend(BackendId),
}

/// Certificates in use.
#[derive(Default)]
pub(crate) struct Secrets {
    /// Certificates that each resource references.
    references: FastMap<Referrer, BTreeSet<SecretId>>,
    /// Number of resources that reference each certificate.
    users: FastMap<SecretId, usize>,
    /// Certificates as of the last delta.
    loaded: FastMap<SecretId, Arc<CertifiedKey>>,
}

impl Secrets {
    /// Replaces the certificates that a resource references. Returns those that are newly used or no longer used.
    fn set_references(&mut self, referrer: Referrer, ids: BTreeSet<SecretId>) -> Vec<SecretId> {
        let old = self.references.get(&referrer).cloned().unwrap_or_default();
        if old == ids {
            return Vec::new();
        }
        let mut changed = Vec::new();
        for (id, up) in ids
            .difference(&old)
            .map(|id| (id, true))
            .chain(old.difference(&ids).map(|id| (id, false)))
        {
            if adjust_count(&mut self.users, id.clone(), up) {
                changed.push(id.clone());
            }
        }
        match ids.is_empty() {
            true => self.references.remove(&referrer),
            false => self.references.insert(referrer, ids),
        };
        changed
    }
}

impl Binder {
    /// Updates the certificates that changed frontends and backends reference.
    pub(crate) fn update_secret_references(&mut self, delta: &Delta) {
        let mut changed = Vec::new();
        for (id, frontend) in &delta.frontends {
            let ids = frontend.iter().flat_map(|frontend| frontend.secrets());
            let ids = ids.cloned().collect();
            changed.extend(
                self.secrets
                    .set_references(Referrer::Frontend(id.clone()), ids),
            );
        }
        for (id, backend) in &delta.backends {
            let ids = backend.iter().filter_map(|backend| backend.secret());
            let ids = ids.cloned().collect();
            changed.extend(
                self.secrets
                    .set_references(Referrer::Backend(id.clone()), ids),
            );
        }
        for id in changed {
            self.tracker.invalidate(Query::Secret(id));
        }
    }

    pub(crate) fn compute_secret(&mut self, query: &Query, id: &SecretId, delta: &mut Delta) {
        let reader = Reader::new(&self.store);
        let found = match self.secrets.users.contains_key(id) {
            true => load_secret(&reader, id),
            false => None,
        };
        self.tracker.record_reads(query, reader.into_inputs());
        if self.secrets.loaded.get(id) != found.as_ref() {
            delta.secrets.push((id.clone(), found.clone()));
            match found {
                Some(found) => self.secrets.loaded.insert(id.clone(), found),
                None => self.secrets.loaded.remove(id),
            };
        }
    }
}

/// Loads a certificate with its key. Returns `None` if it is missing or invalid, which the status of the referring objects reports.
fn load_secret(reader: &Reader<'_>, id: &SecretId) -> Option<Arc<CertifiedKey>> {
    match id {
        SecretId::Object(name) => reader.certificate(name)?.ok(),
        SecretId::Listener {
            gateway,
            listener,
            certificate,
        } => {
            let gateway = reader.mesh_gateway(gateway)?;
            let listener = gateway.spec.conf.listeners.get(*listener)?;
            let source = listener.tls.as_ref()?.certificates.get(*certificate)?;
            let pem = content(reader, source).ok()?;
            certificates::parse_certified_key(&pem).ok().map(Arc::new)
        }
        SecretId::ExternalService(name) => {
            let service = reader.mesh_external_service(name)?;
            let found = kuma::external::client_certificate(reader, service)?;
            found.ok().map(Arc::new)
        }
        SecretId::Mesh(mesh) => {
            let identity = reader.identities().get(mesh)?.as_ref().ok()?;
            Some(identity.certificate.clone())
        }
    }
}
