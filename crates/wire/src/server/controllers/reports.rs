//! Messages to and from other controllers: builds them from the server's state and applies received ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use pointsman_resources::ObjectKey;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::Status;

use super::messages;
use super::{ControllerStatus, Controllers, PendingChanges, RemoteProxy, StreamId};
use crate::proto::{ControllerReport, ControllerStart};
use crate::server::aggregate::ReceivedBy;
use crate::server::service::{ProxyStatus, Server, ServerState};
use crate::server::store::Store;

/// Routes, and proxies, in one message at most.
const MAX_ITEMS_PER_MESSAGE: usize = 500;

/// Proxies whose reports are in one message at most. Reports are larger than the other items.
const MAX_REPORTS_PER_MESSAGE: usize = 20;

/// Version of this controller's software.
const SOFTWARE: &str = env!("CARGO_PKG_VERSION");

/// Returns the first message about this controller.
pub fn local_start(server: &Server) -> ControllerReport {
    ControllerReport {
        controller: server.name().to_string(),
        start: Some(start(SOFTWARE)),
        ..ControllerReport::default()
    }
}

fn start(software: &str) -> ControllerStart {
    ControllerStart {
        software: software.to_owned(),
    }
}

/// Removes up to `count` elements from a set.
fn pop_up_to<T: Ord>(set: &mut BTreeSet<T>, count: usize) -> Vec<T> {
    let taken = std::iter::from_fn(|| set.pop_first());
    taken.take(count).collect()
}

impl Controllers {
    /// Takes the next message for a stream, and the proxies whose reports it must include.
    fn take_pending(
        &mut self,
        stream: StreamId,
        store: &Store,
        local_name: &Arc<str>,
    ) -> Option<(ReceivedBy, ControllerReport, Vec<String>)> {
        let stream = self.streams.get_mut(&stream)?;
        if let Some(name) = stream.ended.pop_first() {
            let report = ControllerReport {
                controller: name.to_string(),
                ended: true,
                ..ControllerReport::default()
            };
            return Some((Some(name), report, Vec::new()));
        }
        for (controller, pending) in &mut stream.pending {
            let other = match controller {
                None => None,
                Some(name) => match self.others.get(name) {
                    Some(other) => Some(other),
                    None => continue,
                },
            };
            let mut report = ControllerReport {
                controller: controller.as_ref().unwrap_or(local_name).to_string(),
                ..ControllerReport::default()
            };
            let mut has_changes = false;
            if let Some(other) = other.filter(|_| !pending.has_started) {
                report.start = Some(start(&other.software));
                has_changes = true;
            }
            pending.has_started = true;
            for proxy in pop_up_to(&mut pending.proxies, MAX_ITEMS_PER_MESSAGE) {
                match other.and_then(|other| other.proxies.get(&proxy)) {
                    Some(proxy) => report
                        .proxies
                        .push(messages::encode_proxy(&proxy.current())),
                    None => report.disconnected.push(proxy),
                }
            }
            for key in pop_up_to(&mut pending.routes, MAX_ITEMS_PER_MESSAGE) {
                push_route(&mut report, &key, controller, store);
            }
            let reports = pop_up_to(&mut pending.reports, MAX_REPORTS_PER_MESSAGE);
            let is_source_complete = other.is_none_or(|other| other.is_complete);
            if is_source_complete && pending.is_empty() && !pending.is_complete {
                pending.is_complete = true;
                report.complete = true;
            }
            has_changes |= report.complete
                || !reports.is_empty()
                || !report.proxies.is_empty()
                || !report.disconnected.is_empty()
                || !report.routes.is_empty()
                || !report.removed_routes.is_empty();
            if has_changes {
                return Some((controller.clone(), report, reports));
            }
        }
        None
    }
}

impl PendingChanges {
    fn is_empty(&self) -> bool {
        self.proxies.is_empty() && self.reports.is_empty() && self.routes.is_empty()
    }
}

impl RemoteProxy {
    /// Returns the status as of now.
    pub fn current(&self) -> ProxyStatus {
        let age = self.received.elapsed();
        ProxyStatus {
            connected: self.status.connected + age,
            lag: self.status.lag.map(|lag| lag + age),
            ..ProxyStatus::clone(&self.status)
        }
    }
}

fn push_route(
    report: &mut ControllerReport,
    key: &ObjectKey,
    controller: &ReceivedBy,
    store: &Store,
) {
    let route = match controller {
        None => store.local_effect(key),
        Some(name) => store.remote_effect(name, key).cloned(),
    };
    match route {
        Some(route) => report.routes.push(messages::encode_route(key, &route)),
        None => report.removed_routes.push(key.into()),
    }
}

/// Streams to other controllers.
impl Server {
    /// Registers a stream. The complete state is sent first.
    pub(super) fn open_controller_stream(&self, forwards_others: bool) -> StreamId {
        let id = {
            let mut state = self.state();
            let ServerState {
                store, controllers, ..
            } = &mut *state;
            let id = controllers.open(forwards_others);
            let Controllers {
                others, streams, ..
            } = controllers;
            let pending = streams.get_mut(&id).into_iter();
            for (controller, pending) in pending.flat_map(|stream| &mut stream.pending) {
                match controller {
                    None => pending.routes.extend(store.local_routes().cloned()),
                    Some(name) => {
                        pending.routes.extend(store.remote_routes(name).cloned());
                        let proxies = others.get(name).map(|other| other.proxies.keys().cloned());
                        pending.proxies.extend(proxies.into_iter().flatten());
                    }
                }
            }
            id
        };
        let reported: Vec<(ReceivedBy, String)> = self.reports().received_reports().collect();
        let mut state = self.state();
        if let Some(stream) = state.controllers.streams.get_mut(&id) {
            for (controller, proxy) in reported {
                if let Some(pending) = stream.pending.get_mut(&controller) {
                    pending.reports.insert(proxy);
                }
            }
        }
        id
    }

    /// Closes a stream.
    pub(super) fn close_controller_stream(&self, stream: StreamId) {
        let now = Instant::now();
        let disconnected = {
            let mut state = self.state();
            let disconnected = state.controllers.close(stream, now);
            for name in &disconnected {
                state.store.record_remote_current(name, false, now);
            }
            disconnected
        };
        for name in &disconnected {
            self.reports().record_controller_disconnect(name, now);
        }
        self.notify();
    }

    /// Takes the next message for a stream.
    pub(super) fn next_report(&self, stream: StreamId) -> Option<ControllerReport> {
        let (controller, mut report, proxies) = {
            let mut state = self.state();
            let ServerState {
                store, controllers, ..
            } = &mut *state;
            controllers.take_pending(stream, store, self.name())?
        };
        if !proxies.is_empty() {
            let reports = self.reports();
            for proxy in proxies {
                match reports.reports_of(&controller, &proxy) {
                    Some(known) => report
                        .reports
                        .push(messages::encode_reports(&proxy, &known)),
                    None => report.expired.push(proxy),
                }
            }
        }
        Some(report)
    }

    /// Applies a message of another controller.
    pub(super) fn receive_report(
        &self,
        stream: StreamId,
        report: ControllerReport,
    ) -> Result<(), Status> {
        if report.controller.is_empty() {
            return Err(Status::invalid_argument(
                "a report must name its controller",
            ));
        }
        // The other side may not know yet that an earlier stream of this controller has ended.
        if report.controller == **self.name() {
            return Ok(());
        }
        let name: Arc<str> = report.controller.as_str().into();
        let now = Instant::now();
        if report.ended {
            if self
                .state()
                .controllers
                .get_by_stream(&name, stream)
                .is_some()
            {
                self.end_controller(&name, now);
            }
            return Ok(());
        }
        if report.start.is_some() {
            self.reports().record_controller_disconnect(&name, now);
        }
        if self.record_state(&name, stream, &report, now) {
            self.record_reports(&name, report, now);
            self.wake_controller_streams();
            self.notify();
        }
        Ok(())
    }

    /// Records the proxies and routes of a message. Returns false if the stream was superseded by another one of the same controller.
    fn record_state(
        &self,
        name: &Arc<str>,
        stream: StreamId,
        report: &ControllerReport,
        now: Instant,
    ) -> bool {
        let mut state = self.state();
        let ServerState {
            store, controllers, ..
        } = &mut *state;
        if let Some(start) = &report.start {
            controllers.start(name, start.software.clone(), stream);
            store.start_remote(name, start.software == SOFTWARE, now);
        }
        let Some(other) = controllers.get_by_stream(name, stream) else {
            return false;
        };
        let mut proxies = report.disconnected.clone();
        for gone in &report.disconnected {
            other.proxies.remove(gone);
        }
        for proxy in &report.proxies {
            if let Ok(status) = messages::decode_proxy(proxy.clone(), name) {
                proxies.push(status.key.clone());
                let (status, received) = (Arc::new(status), now);
                let proxy = RemoteProxy { status, received };
                other.proxies.insert(proxy.status.key.clone(), proxy);
            }
        }
        other.is_complete |= report.complete;
        let (is_complete, has_proxies) = (other.is_complete, !other.proxies.is_empty());
        if is_complete || has_proxies {
            store.record_remote_proxies(name, has_proxies, now);
        }
        // Routes of kinds unknown to this version are ignored.
        let routes = report.routes.iter();
        let routes = routes.filter_map(|route| messages::decode_route(route.clone()).ok());
        let routes = routes.map(|(key, effect)| (key, Some(effect)));
        let removed = report.removed_routes.iter();
        let removed = removed.filter_map(|key| Some((key.clone().try_into().ok()?, None)));
        let routes: Vec<(ObjectKey, _)> = routes.chain(removed).collect();
        controllers.for_each_stream(Some(name), |pending| {
            pending.proxies.extend(proxies.iter().cloned());
            pending
                .routes
                .extend(routes.iter().map(|(key, _)| key.clone()));
        });
        for (key, effect) in routes {
            store.record_remote_effect(name, key, effect, now);
        }
        if report.complete {
            store.record_remote_current(name, true, now);
        }
        true
    }

    /// Records reports of another controller's proxies.
    fn record_reports(&self, name: &Arc<str>, report: ControllerReport, now: Instant) {
        let mut changed = report.expired;
        {
            let mut reports = self.reports();
            for gone in &changed {
                reports.expire(name, gone);
            }
            for stored in report.reports {
                let Some((proxy, stored)) = messages::decode_reports(stored) else {
                    continue;
                };
                reports.replace(name, &proxy, stored, now);
                changed.push(proxy);
            }
        }
        let mut state = self.state();
        state.controllers.for_each_stream(Some(name), |pending| {
            pending.reports.extend(changed.iter().cloned());
        });
    }

    /// Removes a controller.
    fn end_controller(&self, name: &Arc<str>, now: Instant) {
        {
            let mut state = self.state();
            if !state.controllers.end(name) {
                return;
            }
            state.store.end_remote(name, now);
        }
        self.reports().record_controller_disconnect(name, now);
        self.wake_controller_streams();
        self.notify();
    }

    /// Removes controllers that did not reconnect in time, and expired reports of disconnected proxies.
    pub(in crate::server) fn expire_reports(&self) {
        let now = Instant::now();
        let expired = self.state().controllers.expired(now);
        for name in expired {
            tracing::warn!("replica {name} did not reconnect; its proxies are no longer counted");
            self.end_controller(&name, now);
        }
        let expired = self.reports().remove_expired(now);
        self.schedule_reports(&expired);
    }

    /// Schedules reports of this controller's proxies for sending.
    pub(in crate::server) fn schedule_reports(&self, proxies: &[String]) {
        if proxies.is_empty() {
            return;
        }
        self.state().controllers.for_each_stream(None, |pending| {
            pending.reports.extend(proxies.iter().cloned());
        });
        self.wake_controller_streams();
    }

    /// Returns the other controllers whose proxies are known.
    pub fn controllers(&self) -> Vec<ControllerStatus> {
        self.state().controllers.statuses()
    }

    /// Returns the number of open streams to other controllers.
    pub fn open_controller_streams(&self) -> usize {
        self.state().controllers.streams.len()
    }

    pub(super) fn controller_changes(&self) -> watch::Receiver<u64> {
        self.controller_changes.subscribe()
    }

    /// Wakes the streams to other controllers.
    pub(in crate::server) fn wake_controller_streams(&self) {
        self.controller_changes.send_modify(|changes| *changes += 1);
    }
}

/// Schedules changed routes for sending to other controllers. Returns whether there are any.
pub(in crate::server) fn schedule_changed_routes(state: &mut ServerState) -> bool {
    let changed = state.store.take_changed_routes();
    state.controllers.for_each_stream(None, |pending| {
        pending.routes.extend(changed.iter().cloned());
    });
    !changed.is_empty()
}
