//! One stream between two controllers, the same at both ends.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tonic::{Status, Streaming};

use super::reports::local_start;
use super::{StreamId, messages};
use crate::proto::{ConnectedProxy, ControllerReport};
use crate::server::service::Server;

/// Interval at which the progress of this controller's proxies is sent. Connecting and disconnecting proxies are reported immediately.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// Time to deliver the final message before the stream closes.
const GOODBYE_FLUSH_TIME: Duration = Duration::from_millis(200);

/// Closes a stream on drop.
struct StreamGuard<'s> {
    server: &'s Server,
    id: StreamId,
}

impl Drop for StreamGuard<'_> {
    fn drop(&mut self) {
        self.server.close_controller_stream(self.id);
    }
}

/// Sends and receives until one side ends the stream. `forwards_others` is true on the side that accepted it.
pub async fn run<T>(
    server: &Server,
    forwards_others: bool,
    mut incoming: Streaming<ControllerReport>,
    outgoing: &mpsc::Sender<T>,
    wrap: impl Fn(ControllerReport) -> T,
) -> Result<(), Status> {
    let guard = StreamGuard {
        server,
        id: server.open_controller_stream(forwards_others),
    };
    // Concurrent, to avoid a deadlock: each side may have to read before the other can continue sending.
    let receive = async {
        while let Some(report) = incoming.message().await? {
            let is_complete = report.complete;
            server.receive_report(guard.id, report)?;
            if is_complete && !forwards_others {
                server.set_controllers_error(None);
            }
        }
        Ok(())
    };
    let send = send(server, guard.id, outgoing, wrap);
    tokio::select! {
        result = receive => result,
        result = send => result,
    }
}

async fn send<T>(
    server: &Server,
    stream: StreamId,
    outgoing: &mpsc::Sender<T>,
    wrap: impl Fn(ControllerReport) -> T,
) -> Result<(), Status> {
    let send = async |report| {
        let sent = outgoing.send(wrap(report)).await;
        sent.map_err(|_| Status::cancelled("the other replica disconnected"))
    };
    let mut changes = server.controller_changes();
    let mut closing = server.closing();
    let mut tick = interval(STATUS_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut sent, mut events, mut is_due) = (BTreeMap::new(), 0, true);
    send(local_start(server)).await?;
    loop {
        // Not on every route change: building this takes time proportional to the number of proxies.
        let newest = server.state().proxies.events();
        if is_due || newest != events {
            events = newest;
            if let Some(report) = status_changes(server, &mut sent) {
                send(report).await?;
            }
        }
        while let Some(report) = server.next_report(stream) {
            send(report).await?;
        }
        tokio::select! {
            _ = tick.tick() => is_due = true,
            _ = changes.changed() => is_due = false,
            () = async { drop(closing.wait_for(|is_closed| *is_closed).await) } => {
                send(ControllerReport {
                    controller: server.name().to_string(),
                    ended: true,
                    ..ControllerReport::default()
                })
                .await?;
                sleep(GOODBYE_FLUSH_TIME).await;
                return Ok(());
            }
        }
    }
}

/// Returns the proxies of this controller whose status differs from what was sent.
pub(super) fn status_changes(
    server: &Server,
    sent: &mut BTreeMap<String, ConnectedProxy>,
) -> Option<ControllerReport> {
    let mut report = ControllerReport {
        controller: server.name().to_string(),
        ..ControllerReport::default()
    };
    let mut current = BTreeMap::new();
    for status in server.local_proxies() {
        let mut proxy = messages::encode_proxy(&status);
        // Two proxies may have the same name and identity.
        let mut number = 1;
        while current.contains_key(&proxy.key) {
            number += 1;
            proxy.key = format!("{} {number}", status.key);
        }
        // Durations change constantly and are not compared.
        let stable = ConnectedProxy {
            connected: 0,
            lag: proxy.lag.map(|_| 0),
            ..proxy.clone()
        };
        if sent.get(&proxy.key) != Some(&stable) {
            report.proxies.push(proxy);
        }
        current.insert(stable.key.clone(), stable);
    }
    let gone = sent.keys().filter(|key| !current.contains_key(*key));
    report.disconnected = gone.cloned().collect();
    *sent = current;
    let has_changes = !report.proxies.is_empty() || !report.disconnected.is_empty();
    has_changes.then_some(report)
}
