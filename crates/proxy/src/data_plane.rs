//! A proxy with the placement of its sockets: applies changes of the bound form and reports the results.
//!
//! A change takes two steps. [`DataPlane::stage`] assigns addresses and sockets, and returns the reports that the control plane needs before the change takes
//! effect: addresses, and the backends that are needed. [`DataPlane::commit`] passes everything staged so far to the workers.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use pointsman_binding::bound::FrontendId;
use pointsman_binding::{Change, Delta};
use pointsman_routing::Tables;

use crate::changed::Changed;
use crate::logging::{log_each, warn_each};
use crate::placement::Placement;
use crate::proxy::{MetricsReader, Proxy, RefusedNames, Update};
use crate::socket_owner::{SocketKey, SocketOwner};

/// The sockets of a data plane at one point in time.
#[derive(Clone, Debug, Default)]
pub struct Sockets {
    /// Owner of each socket, bound or not.
    pub owners: Arc<BTreeMap<SocketKey, SocketOwner>>,
    /// Sockets that could not be bound, with the error.
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

/// A running proxy and the placement of its sockets.
pub struct DataPlane {
    proxy: Proxy,
    placement: Placement,
    unbound: Arc<BTreeMap<SocketKey, String>>,
    /// Listeners whose TLS configuration failed, with the error.
    faulty: BTreeMap<FrontendId, String>,
    /// Staged changes that are not committed yet.
    changed: Changed,
    /// True if sockets or listeners may have changed since the last commit.
    sockets_changed: bool,
    /// True if the next commit has to try again to bind sockets.
    retry: bool,
    /// Listeners that accept connections, as logged; `None` before the first commit.
    serving: Option<BTreeSet<String>>,
    /// Refused addresses of DNS names, as last reported.
    refused: RefusedNames,
    reader: SocketsReader,
}

impl DataPlane {
    /// Combines a running proxy that has no configuration yet with an empty placement.
    pub fn new(proxy: Proxy, placement: Placement) -> Self {
        DataPlane {
            proxy,
            placement,
            unbound: Arc::default(),
            faulty: BTreeMap::new(),
            changed: Changed::default(),
            sockets_changed: true,
            retry: false,
            serving: None,
            refused: RefusedNames::new(),
            reader: SocketsReader::default(),
        }
    }

    /// Assigns addresses and sockets for a change. Returns changed addresses and changes of the needed backends. Nothing takes effect before
    /// [`commit`](Self::commit).
    pub fn stage(&mut self, delta: &Delta) -> Vec<Change> {
        self.changed.record(delta);
        let (mut reports, sockets_changed) = self.placement.apply(delta);
        self.sockets_changed |= sockets_changed;
        if sockets_changed {
            // The address of a listener may be an endpoint of a backend.
            reports.extend(self.observations());
        }
        reports
    }

    /// Puts staged changes in effect before it returns. Returns changed observations of Gateways.
    pub fn commit(&mut self, tables: &Tables) -> Vec<Change> {
        let services = &self.placement.services;
        let outcome = self.proxy.apply(Update {
            tables: tables.clone(),
            sockets: self.placement.sockets.clone(),
            pods: services.pods.clone(),
            changed: std::mem::take(&mut self.changed),
            retry: std::mem::take(&mut self.retry),
        });
        let unbound = outcome.unbound;
        let changed = self.unbound != unbound || self.faulty != outcome.faulty;
        if self.unbound != unbound {
            self.log_unbound(&unbound);
            self.unbound = unbound;
        }
        self.faulty = outcome.faulty;
        if changed || std::mem::take(&mut self.sockets_changed) {
            self.log_listeners();
        }
        self.reader.publish(Sockets {
            owners: self.placement.sockets.clone(),
            unbound: self.unbound.clone(),
        });
        let mut reports = match changed {
            true => self.observations(),
            false => Vec::new(),
        };
        reports.extend(self.refused_resolutions());
        reports
    }

    /// Retries addresses and ports that could not be bound, because the addresses of the machine may have changed. The next commit binds them.
    pub fn retry_unbound(&mut self) -> Vec<Change> {
        self.sockets_changed = true;
        self.retry = true;
        let mut reports = self.placement.retry();
        reports.extend(self.observations());
        reports.extend(self.refused_resolutions());
        reports
    }

    /// Sets a callback for new results of [`retry_unbound`](Self::retry_unbound). It is called on another thread.
    pub fn on_report(&self, notify: impl Fn() + Send + 'static) {
        self.proxy.on_refused(notify);
    }

    /// Returns changes of the refused addresses of DNS names since the last report.
    fn refused_resolutions(&mut self) -> Vec<Change> {
        let old = std::mem::replace(&mut self.refused, self.proxy.refused_names());
        let removed = old.keys().filter(|name| !self.refused.contains_key(*name));
        let removed = removed.map(|name| Change::RefusedResolution(name.clone(), Vec::new()));
        let new = self.refused.iter();
        let new = new.filter(|(name, refused)| old.get(*name) != Some(refused));
        let new =
            new.map(|(name, refused)| Change::RefusedResolution(name.clone(), refused.clone()));
        removed.chain(new).collect()
    }

    /// Returns whether there is an address or a socket to retry.
    pub fn has_unbound(&self) -> bool {
        !self.unbound.is_empty() || self.placement.has_retryable()
    }

    fn observations(&mut self) -> Vec<Change> {
        self.placement.observations(&self.unbound, &self.faulty)
    }

    /// Logs unbound sockets that have no status to report the error in: those of Services and of outbounds.
    fn log_unbound(&self, unbound: &BTreeMap<SocketKey, String>) {
        let new = unbound
            .iter()
            .filter(|(key, reason)| self.unbound.get(key) != Some(reason));
        let lines: BTreeSet<String> = new
            .filter_map(|(key, reason)| {
                let owner = self.placement.sockets.get(key)?;
                let SocketKey { address, transport } = key;
                let has_status = owner.gateway_port().is_some();
                (!has_status)
                    .then(|| format!("{owner}: {transport} not bound to {address}: {reason}"))
            })
            .collect();
        warn_each(lines.iter());
    }

    /// Logs listeners that came up or went down since the last commit, but not the initial ones, which `describe` lists.
    fn log_listeners(&mut self) {
        let serving = self.placement.serving(&self.unbound, &self.faulty);
        if let Some(before) = self.serving.replace(serving)
            && let Some(now) = &self.serving
        {
            log_each("listening", now.difference(&before));
            log_each("no longer listening", before.difference(now));
        }
    }

    /// Returns a reader of the sockets for other threads.
    pub fn sockets(&self) -> SocketsReader {
        self.reader.clone()
    }

    /// Returns a reader of the metrics for other threads.
    pub fn metrics(&self) -> MetricsReader {
        self.proxy.metrics()
    }

    /// Describes each listener with its addresses in one line.
    pub fn describe(&self) -> Vec<String> {
        self.placement.describe(&self.unbound)
    }

    /// Reopens the access log's file after a rotation.
    pub fn reopen_log(&self) -> io::Result<()> {
        self.proxy.reopen_log()
    }

    /// Makes each HTTP/1 response announce the end of its connection, so that clients open their next one elsewhere. Connections are accepted until
    /// [`drain`](Self::drain).
    pub fn announce_close(&self) {
        self.proxy.announce_close();
    }

    /// Stops accepting and waits until connections end, or until the deadline. Returns the number of connections that were still open.
    pub fn drain(&mut self, deadline: Duration) -> usize {
        self.proxy.drain(deadline)
    }
}
