//! A proxy with its placement: takes changes of the bound form, puts them in effect, and reports the result.
//!
//! A change goes through two steps. [`DataPlane::stage`] assigns addresses and sockets, and returns what the control plane has to know before the change
//! takes effect: addresses, and backends that are needed. [`DataPlane::commit`] hands everything staged so far to the workers.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use pointsman_binding::bound::FrontendId;
use pointsman_binding::{Change, Delta};
use pointsman_routing::Tables;

use crate::changed::Changed;
use crate::placement::Listeners;
use crate::proxy::{Figures, Owner, Proxy, SocketKey, Update};

/// Sockets of a data plane at one time.
#[derive(Clone, Debug, Default)]
pub struct Sockets {
    /// Owner of each socket, bound or not.
    pub owners: Arc<BTreeMap<SocketKey, Owner>>,
    /// Sockets that could not be bound, and why.
    pub unbound: Arc<BTreeMap<SocketKey, String>>,
}

/// Reads the sockets of a running data plane without delaying it.
#[derive(Clone, Debug, Default)]
pub struct SocketsReader(Arc<RwLock<Sockets>>);

impl SocketsReader {
    /// Sockets as of the last commit.
    pub fn current(&self) -> Sockets {
        let sockets = self.0.read().unwrap_or_else(PoisonError::into_inner);
        sockets.clone()
    }

    fn publish(&self, sockets: Sockets) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = sockets;
    }
}

/// A running proxy and the sockets that it should have.
pub struct DataPlane {
    proxy: Proxy,
    listeners: Listeners,
    unbound: Arc<BTreeMap<SocketKey, String>>,
    /// Listeners whose TLS configuration failed, and why.
    faulty: BTreeMap<FrontendId, String>,
    /// What was staged and is not committed yet.
    changed: Changed,
    reader: SocketsReader,
}

impl DataPlane {
    /// Joins a running proxy that has no configuration yet with an empty set of sockets.
    pub fn new(proxy: Proxy, listeners: Listeners) -> Self {
        DataPlane {
            proxy,
            listeners,
            unbound: Arc::default(),
            faulty: BTreeMap::new(),
            changed: Changed::default(),
            reader: SocketsReader::default(),
        }
    }

    /// Assigns addresses and sockets for a change whose tables are given. Returns the addresses and required backends that have changed; nothing takes
    /// effect before [`commit`](Self::commit).
    pub fn stage(&mut self, delta: &Delta, tables: &Tables) -> Vec<Change> {
        self.changed.record(delta);
        let (mut reports, moved) = self.listeners.apply(delta);
        let known = |id: &_| tables.backend(id).cloned();
        self.listeners.services.apply_backends(delta, known);
        if moved {
            // The address of a listener may be an endpoint elsewhere.
            reports.extend(self.observations());
        }
        reports
    }

    /// Puts staged changes in effect; they are when this returns. Returns changed observations of Gateways.
    pub fn commit(&mut self, tables: &Tables) -> Vec<Change> {
        let services = &self.listeners.services;
        let outcome = self.proxy.apply(Update {
            tables: tables.clone(),
            sockets: self.listeners.sockets.clone(),
            pods: services.pods.clone(),
            implicit: services.implicit.clone(),
            changed: std::mem::take(&mut self.changed),
        });
        let unbound = outcome.unbound.iter();
        let unbound: BTreeMap<SocketKey, String> =
            unbound.map(|(key, error)| (*key, reason(error))).collect();
        let changed = *self.unbound != unbound || self.faulty != outcome.faulty;
        if *self.unbound != unbound {
            self.log_unbound(&unbound);
            self.unbound = Arc::new(unbound);
        }
        self.faulty = outcome.faulty;
        self.reader.publish(Sockets {
            owners: self.listeners.sockets.clone(),
            unbound: self.unbound.clone(),
        });
        match changed {
            true => self.observations(),
            false => Vec::new(),
        }
    }

    /// Retries addresses and ports that could not be bound: the machine may have changed. They are bound by the next commit.
    pub fn retry_unbound(&mut self) -> Vec<Change> {
        let mut reports = self.listeners.retry();
        reports.extend(self.observations());
        reports
    }

    /// Whether there is something to retry.
    pub fn has_unbound(&self) -> bool {
        !self.unbound.is_empty() || self.listeners.may_improve()
    }

    fn observations(&mut self) -> Vec<Change> {
        self.listeners.observations(&self.unbound, &self.faulty)
    }

    fn log_unbound(&self, unbound: &BTreeMap<SocketKey, String>) {
        for (key, why) in unbound {
            if self.unbound.get(key) != Some(why) {
                let owner = self.listeners.sockets.get(key);
                let owner = owner.map(ToString::to_string).unwrap_or_default();
                let SocketKey { address, transport } = key;
                tracing::warn!("{address} {transport} can't be bound for {owner}: {why}");
            }
        }
        for key in self.unbound.keys() {
            if !unbound.contains_key(key)
                && let Some(owner) = self.listeners.sockets.get(key)
            {
                let SocketKey { address, transport } = key;
                tracing::info!("{address} {transport} is bound now for {owner}");
            }
        }
    }

    /// A reader of the sockets, for other threads.
    pub fn sockets(&self) -> SocketsReader {
        self.reader.clone()
    }

    /// Metrics, for other threads.
    pub fn figures(&self) -> Figures {
        self.proxy.figures()
    }

    /// Describes each listener and its addresses in a line.
    pub fn describe(&self) -> Vec<String> {
        self.listeners.describe(&self.unbound)
    }

    /// Reopens the access log's file after a rotation.
    pub fn reopen_log(&self) -> io::Result<()> {
        self.proxy.reopen_log()
    }

    /// Stops accepting and waits for open connections until the deadline. Returns the number of connections that were cut.
    pub fn drain(&mut self, deadline: Duration) -> usize {
        self.proxy.drain(deadline)
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "{error}: low ports need a privilege; --port-offset 8000 would put port 80 at 8080"
        ),
        io::ErrorKind::AddrInUse => "another program listens there".to_owned(),
        _ => error.to_string(),
    }
}
