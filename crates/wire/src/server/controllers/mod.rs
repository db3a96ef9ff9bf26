//! Exchange with other controllers of the same cluster, so that each knows the state of all proxies.
//!
//! Every controller opens a stream to the holder of the Lease ([`follow`]); both ends run the same code ([`stream`]). A controller reports on its own proxies, and the end that
//! has accepted the stream also on those of the controllers that are connected to it by other streams. Three things are exchanged: the connected proxies, which are kept
//! here; their reports, which are merged in `aggregate`; and the effects of routes on them, which are merged in `store/effects/remote.rs`.
//!
//! Each stream has a set of pending changes. Messages are built from the state at the time of sending, so a slow stream delays nothing and its memory is bounded.
//! This module does no I/O.
//!
//! A controller whose stream ended without a final message is expected to reconnect for a while. After that it is removed: its proxies have connected to other
//! controllers, or their state is unknown.

pub(super) mod follow;
mod messages;
pub(super) mod reports;
pub(super) mod stream;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pointsman_resources::ObjectKey;
use tokio::time::Instant;

use super::service::ProxyStatus;

/// Time for a controller to reconnect before its proxies are no longer counted.
pub const RECONNECT_GRACE: Duration = Duration::from_secs(10);

/// Identifies a stream between two controllers.
pub type StreamId = u64;

/// A controller and the proxies that are connected to it.
#[derive(Debug)]
struct RemoteController {
    /// The stream on which it reports.
    stream: StreamId,
    software: String,
    /// Its proxies by key.
    proxies: BTreeMap<String, RemoteProxy>,
    is_complete: bool,
    /// Time when the stream ended.
    disconnected: Option<Instant>,
}

/// A proxy of another controller. `received` is the time to which its ages refer.
#[derive(Clone, Debug)]
pub struct RemoteProxy {
    pub status: Arc<ProxyStatus>,
    pub received: Instant,
}

/// Changes of one controller that have not been sent on a stream yet.
#[derive(Debug, Default)]
struct PendingChanges {
    has_started: bool,
    is_complete: bool,
    proxies: BTreeSet<String>,
    reports: BTreeSet<String>,
    routes: BTreeSet<ObjectKey>,
}

/// A stream between two controllers.
#[derive(Debug, Default)]
struct ControllerStream {
    /// Changes of other controllers are forwarded on this stream.
    forwards_others: bool,
    /// Changes by controller; `None` is this one.
    pending: BTreeMap<Option<Arc<str>>, PendingChanges>,
    /// Controllers that were removed.
    ended: BTreeSet<Arc<str>>,
}

/// Other controllers, and the streams to them.
#[derive(Debug, Default)]
pub struct Controllers {
    others: BTreeMap<Arc<str>, RemoteController>,
    streams: BTreeMap<StreamId, ControllerStream>,
    last_stream: StreamId,
}

/// Another controller, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerStatus {
    /// Its name.
    pub name: String,
    /// Version of its software.
    pub software: String,
    /// Number of proxies that are connected to it.
    pub proxies: usize,
    /// False while it is expected to reconnect.
    pub is_connected: bool,
}

impl Controllers {
    /// Registers a stream with no changes sent yet.
    fn open(&mut self, forwards_others: bool) -> StreamId {
        self.last_stream += 1;
        let mut stream = ControllerStream {
            forwards_others,
            ..ControllerStream::default()
        };
        stream.pending.entry(None).or_default();
        if forwards_others {
            for name in self.others.keys() {
                stream.pending.entry(Some(name.clone())).or_default();
            }
        }
        self.streams.insert(self.last_stream, stream);
        self.last_stream
    }

    /// Calls `record` with the pending changes of a controller on each stream.
    fn for_each_stream(
        &mut self,
        controller: Option<&Arc<str>>,
        mut record: impl FnMut(&mut PendingChanges),
    ) {
        let source = controller.and_then(|name| self.others.get(name).map(|other| other.stream));
        for (id, stream) in &mut self.streams {
            let wants = match controller {
                None => true,
                Some(_) => stream.forwards_others && Some(*id) != source,
            };
            if wants {
                record(stream.pending.entry(controller.cloned()).or_default());
            }
        }
    }

    /// Schedules the complete state of a controller for sending.
    fn restart(&mut self, controller: &Arc<str>) {
        self.for_each_stream(Some(controller), |pending| {
            *pending = PendingChanges::default()
        });
        for stream in self.streams.values_mut() {
            stream.ended.remove(controller);
        }
    }

    /// Starts a controller's reports, replacing those of another stream.
    fn start(&mut self, name: &Arc<str>, software: String, stream: StreamId) {
        let other = RemoteController {
            stream,
            software,
            proxies: BTreeMap::new(),
            is_complete: false,
            disconnected: None,
        };
        self.others.insert(name.clone(), other);
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.pending.remove(&Some(name.clone()));
        }
        self.restart(name);
    }

    /// Returns a controller if it reports on this stream.
    fn get_by_stream(&mut self, name: &str, stream: StreamId) -> Option<&mut RemoteController> {
        self.others
            .get_mut(name)
            .filter(|other| other.stream == stream)
    }

    /// Removes a controller. Returns whether it was known.
    fn end(&mut self, name: &Arc<str>) -> bool {
        let Some(other) = self.others.remove(name) else {
            return false;
        };
        for (id, stream) in &mut self.streams {
            if stream.pending.remove(&Some(name.clone())).is_some() && *id != other.stream {
                stream.ended.insert(name.clone());
            }
        }
        true
    }

    /// Closes a stream. Returns the controllers that reported on it and are expected to reconnect.
    fn close(&mut self, stream: StreamId, now: Instant) -> Vec<Arc<str>> {
        self.streams.remove(&stream);
        let known = self.others.iter_mut();
        let known = known.filter(|(_, other)| other.stream == stream);
        known
            .map(|(name, other)| {
                other.disconnected.get_or_insert(now);
                name.clone()
            })
            .collect()
    }

    /// Returns the controllers that did not reconnect in time.
    fn expired(&self, now: Instant) -> Vec<Arc<str>> {
        let is_expired = |other: &RemoteController| {
            other
                .disconnected
                .is_some_and(|since| now >= since + RECONNECT_GRACE)
        };
        let expired = self.others.iter().filter(|(_, other)| is_expired(other));
        expired.map(|(name, _)| name.clone()).collect()
    }

    /// Returns whether a controller is expected to reconnect.
    pub fn has_disconnected(&self) -> bool {
        self.others
            .values()
            .any(|other| other.disconnected.is_some())
    }

    /// Returns the proxies of other controllers, with the controllers' names.
    pub fn proxies(&self) -> impl Iterator<Item = (&Arc<str>, &RemoteProxy)> {
        let others = self.others.iter();
        others.flat_map(|(name, other)| other.proxies.values().map(move |proxy| (name, proxy)))
    }

    /// Returns the other controllers, for display.
    pub fn statuses(&self) -> Vec<ControllerStatus> {
        let others = self.others.iter();
        let status = |(name, other): (&Arc<str>, &RemoteController)| ControllerStatus {
            name: name.to_string(),
            software: other.software.clone(),
            proxies: other.proxies.len(),
            is_connected: other.disconnected.is_none(),
        };
        others.map(status).collect()
    }
}

#[cfg(test)]
mod tests;
