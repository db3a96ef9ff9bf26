//! The TLS configurations of all listeners, rebuilt when their inputs change and shared by all workers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use pointsman_binding::bound::{Frontend, FrontendId, FrontendTls, Protocol};
use pointsman_routing::Tables;
use rustls::ServerConfig;

use super::{NamedKey, frontend_config};
use crate::changed::Changed;
use crate::options::TlsVersion;

/// The configuration of a listener, with its inputs.
#[derive(Debug)]
struct CachedConfig {
    tls: Arc<FrontendTls>,
    protocol: Protocol,
    keys: Vec<NamedKey>,
    config: Result<Arc<ServerConfig>, String>,
}

/// The TLS configurations of all listeners.
#[derive(Debug, Default)]
pub(crate) struct TlsConfigs {
    minimum: TlsVersion,
    cached: HashMap<FrontendId, CachedConfig>,
    /// Listeners with an invalid TLS configuration.
    faulty: BTreeMap<FrontendId, String>,
    usable: Arc<HashMap<FrontendId, Arc<ServerConfig>>>,
}

impl TlsConfigs {
    /// Creates an empty set of configurations with a minimum version.
    pub(crate) fn new(minimum: TlsVersion) -> Self {
        TlsConfigs {
            minimum,
            ..TlsConfigs::default()
        }
    }

    /// Rebuilds the configurations of changed listeners and of listeners with changed certificates.
    pub(crate) fn update(&mut self, tables: &Tables, changed: &Changed) {
        let mut affected: BTreeSet<FrontendId> = changed.frontends.clone();
        if !changed.secrets.is_empty() {
            let named = |cached: &CachedConfig| {
                let mut names = cached.tls.certificates.iter();
                names.any(|id| changed.secrets.contains(id))
            };
            let users = self.cached.iter().filter(|(_, cached)| named(cached));
            affected.extend(users.map(|(id, _)| id.clone()));
        }
        let mut differs = false;
        for id in affected {
            differs |= self.update_listener(tables, id);
        }
        if differs {
            let faulty = self.cached.iter();
            let faulty =
                faulty.filter_map(|(id, cached)| Some((id.clone(), cached.config.clone().err()?)));
            self.faulty = faulty.collect();
            let usable = self.cached.iter();
            let usable =
                usable.filter_map(|(id, cached)| Some((id.clone(), cached.config.clone().ok()?)));
            self.usable = Arc::new(usable.collect());
        }
    }

    /// Rebuilds the configuration of a listener if its inputs changed. Returns true if it did.
    fn update_listener(&mut self, tables: &Tables, id: FrontendId) -> bool {
        let frontend = tables.frontend(&id).map(|table| table.frontend());
        let Some((frontend, tls)) = frontend.and_then(|f| Some((f, f.tls.as_ref()?))) else {
            return self.cached.remove(&id).is_some();
        };
        let keys = tls.certificates.iter();
        let keys: Vec<NamedKey> = keys
            .filter_map(|id| Some((id.clone(), tables.secret(id)?.clone())))
            .collect();
        let same = |cached: &CachedConfig| {
            cached.protocol == frontend.protocol && cached.tls == *tls && cached.keys == keys
        };
        if self.cached.get(&id).is_some_and(same) {
            return false;
        }
        let cached = CachedConfig {
            config: build(frontend, tls, &keys, self.minimum),
            tls: tls.clone(),
            protocol: frontend.protocol,
            keys,
        };
        self.cached.insert(id, cached);
        true
    }

    /// Listeners with an invalid TLS configuration, with the error.
    pub(crate) fn faulty(&self) -> &BTreeMap<FrontendId, String> {
        &self.faulty
    }

    /// Returns the valid configurations.
    pub(crate) fn usable(&self) -> Arc<HashMap<FrontendId, Arc<ServerConfig>>> {
        self.usable.clone()
    }
}

fn build(
    frontend: &Frontend,
    tls: &FrontendTls,
    keys: &[NamedKey],
    minimum: TlsVersion,
) -> Result<Arc<ServerConfig>, String> {
    let alpn: &[&[u8]] = match frontend.protocol {
        // `Http` frontends have TLS inside a mesh with mutual TLS.
        Protocol::Https | Protocol::Http => &[b"h2", b"http/1.1"],
        _ => &[],
    };
    frontend_config(keys, tls.clients.as_ref(), alpn, minimum).map_err(|error| error.to_string())
}
