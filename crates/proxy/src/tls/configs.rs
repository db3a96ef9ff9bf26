//! The TLS of all listeners, made when what they show or ask for changes, and shared by all workers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pointsman_binding::bound::{Frontend, FrontendId, FrontendTls, Protocol};
use pointsman_routing::Tables;
use rustls::ServerConfig;

use super::frontend_config;

/// A listener's TLS, or why there is none.
type Made = Result<Arc<ServerConfig>, String>;

/// What each listener was made of, and what came of it.
#[derive(Debug, Default)]
pub(crate) struct TlsConfigs {
    made: HashMap<FrontendId, (Arc<FrontendTls>, Protocol, Made)>,
    shared: Arc<HashMap<FrontendId, Arc<ServerConfig>>>,
}

impl TlsConfigs {
    /// Makes what is new, and forgets what is gone. Returns the listeners whose TLS can't be made.
    pub(crate) fn update(&mut self, tables: &Tables) -> BTreeMap<FrontendId, String> {
        let mut faulty = BTreeMap::new();
        let mut changed = false;
        let mut kept = HashMap::new();
        for table in tables.frontends() {
            let frontend = table.frontend();
            let Some(tls) = &frontend.tls else { continue };
            let old = self.made.remove(&frontend.id);
            let entry = match old {
                Some((of, protocol, made))
                    if protocol == frontend.protocol && (Arc::ptr_eq(&of, tls) || of == *tls) =>
                {
                    (of, protocol, made)
                }
                _ => {
                    changed = true;
                    (tls.clone(), frontend.protocol, make(frontend, tls))
                }
            };
            if let Err(error) = &entry.2 {
                faulty.insert(frontend.id.clone(), error.clone());
            }
            kept.insert(frontend.id.clone(), entry);
        }
        changed |= !self.made.is_empty();
        self.made = kept;
        if changed {
            let usable = self
                .made
                .iter()
                .filter_map(|(id, (.., made))| Some((id.clone(), made.as_ref().ok()?.clone())));
            self.shared = Arc::new(usable.collect());
        }
        faulty
    }

    /// Those that could be made.
    pub(crate) fn made(&self) -> Arc<HashMap<FrontendId, Arc<ServerConfig>>> {
        self.shared.clone()
    }
}

fn make(frontend: &Frontend, tls: &FrontendTls) -> Made {
    let alpn: &[&[u8]] = match frontend.protocol {
        // Plain HTTP stands in the TLS of a mesh.
        Protocol::Https | Protocol::Http => &[b"h2", b"http/1.1"],
        _ => &[],
    };
    frontend_config(tls, alpn).map_err(|error| error.to_string())
}
