//! The ServiceAccounts of Gateways: their proxies receive only the configuration of their Gateway.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use pointsman_control::{Snapshot, Snapshots};
use pointsman_resources::{Name, Resource};

use super::object_name;

/// Gateways by their account. An account has the name of the objects that are generated for a Gateway, so it hardly ever has more than one Gateway.
pub struct GatewayAccounts {
    snapshots: Arc<Snapshots>,
    /// Gateways of the latest snapshot, and its version. Cached, because the permissions of all open streams are looked up every few seconds.
    index: Mutex<Option<(u64, Index)>>,
}

type Index = HashMap<Name, Vec<Name>>;

impl GatewayAccounts {
    /// Creates an index of the latest snapshot.
    pub fn new(snapshots: Arc<Snapshots>) -> Self {
        GatewayAccounts {
            snapshots,
            index: Mutex::default(),
        }
    }

    /// Returns the Gateways of an account that this installation manages.
    pub fn gateways(&self, account: &Name) -> Vec<Name> {
        let snapshot = self.snapshots.latest();
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        let index = match &mut *index {
            Some((version, index)) if *version == snapshot.version => index,
            outdated => &mut outdated.insert((snapshot.version, by_account(&snapshot))).1,
        };
        index.get(account).cloned().unwrap_or_default()
    }
}

fn by_account(snapshot: &Snapshot) -> Index {
    let entries = snapshot.entries.values();
    // Gateways of other controllers have no status here.
    let managed = entries.filter(|entry| entry.status.is_some());
    let gateways = managed.filter_map(|entry| match &entry.document.resource {
        Resource::Gateway(gateway) => Some(gateway),
        _ => None,
    });
    let mut index = Index::new();
    for gateway in gateways {
        let name = gateway.metadata.key();
        let account = object_name(&name, &gateway.spec.gateway_class_name);
        let account = Name::new(&*name.namespace, &*account);
        index.entry(account).or_default().push(name);
    }
    index
}
