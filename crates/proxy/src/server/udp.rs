//! UDP. The datagrams of a client form a session: they are forwarded to one endpoint over a socket of the session, and responses are sent to the client from
//! the address that it used. A session ends after an idle timeout.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use pointsman_binding::bound::{Fault, FaultReason};
use socket2::SockRef;
use tokio::net::UdpSocket;

use super::report::StreamReport;
use super::stream_route::{StreamRoute, fault};
use crate::downstream::ResolvedConnection;
use crate::io::datagram_socket::DatagramSocket;
use crate::io::deadline::DeadlineTimer;
use crate::io::signal::Signal;
use crate::io::task::spawn_within;
use crate::limits::limit_name;
use crate::upstream::SelectedEndpoint;
use crate::worker::{Admission, Socket, Worker};

/// Bound for the size of a session's future.
const SESSION_BYTES: usize = 1056;

/// Maximum size of a datagram.
const MAX_DATAGRAM: usize = 64 * 1024;

/// Number of datagrams forwarded before other tasks run.
const BATCH: usize = 64;

/// Longest time for which a session stays open while the worker drains.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Key of a session: the client's address and, if the socket has several addresses, the local one, from which responses are sent.
type SessionKey = (SocketAddr, Option<IpAddr>);

type Sessions = RefCell<HashMap<SessionKey, Rc<Session>, foldhash::fast::RandomState>>;

/// A UDP socket with its sessions.
struct UdpPort {
    worker: Rc<Worker>,
    socket: Rc<Socket>,
    listener: DatagramSocket,
    sessions: Sessions,
}

/// A session of a client with an endpoint.
struct Session {
    key: SessionKey,
    socket: UdpSocket,
    endpoint: RefCell<SelectedEndpoint>,
    /// Time of the last datagram in either direction.
    last_datagram: Cell<Instant>,
    /// The endpoint has not responded to the client's last datagram yet.
    awaits_response: Cell<bool>,
    up: Cell<u64>,
    down: Cell<u64>,
    /// Generation of the worker's configuration, and version of the upstream's endpoints, for which the endpoint was last checked.
    checked: Cell<(u64, u64)>,
    /// Notified when the session has to end.
    ended: Signal,
    _admission: Admission,
}

/// Serves datagrams until the socket is closed.
pub(super) async fn serve_datagrams(worker: Rc<Worker>, socket: Rc<Socket>, listener: UdpSocket) {
    let listener = match DatagramSocket::new(listener, socket.key.address.ip()) {
        Ok(listener) => listener,
        Err(error) => {
            return tracing::error!(address = %socket.key.address, %error, "can't serve UDP");
        }
    };
    let port = Rc::new(UdpPort {
        worker,
        socket,
        listener,
        sessions: RefCell::default(),
    });
    loop {
        let mut closed = port.socket.closed.waiter();
        let ready = poll_fn(|cx| match port.listener.socket().poll_recv_ready(cx) {
            Poll::Ready(ready) => Poll::Ready(Some(ready)),
            Poll::Pending => closed.poll(cx).map(|()| None),
        });
        match ready.await {
            Some(Ok(())) if forward_to_endpoints(&port) => tokio::task::yield_now().await,
            Some(Ok(())) => {}
            Some(Err(_)) => port
                .worker
                .metrics
                .worker_series()
                .accept_errors
                .increment(),
            None => break,
        }
    }
}

/// Forwards a batch of datagrams to endpoints. Returns whether more may be waiting.
fn forward_to_endpoints(port: &Rc<UdpPort>) -> bool {
    let mut buffer = port.worker.datagram_buffer.borrow_mut();
    buffer.resize(MAX_DATAGRAM, 0);
    for _ in 0..BATCH {
        match port.listener.try_receive(&mut buffer) {
            Ok((count, client, local_address)) => {
                forward_to_endpoint(port, (client, local_address), &buffer[..count])
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            // An asynchronous error of an earlier send; the session's own socket reports it.
            Err(_) => {}
        }
    }
    true
}

fn forward_to_endpoint(port: &Rc<UdpPort>, key: SessionKey, datagram: &[u8]) {
    let known = port.sessions.borrow().get(&key).cloned();
    let known = known.filter(|session| {
        let valid = session.is_valid(port);
        if !valid {
            port.end_session(session);
        }
        valid
    });
    let session = match known {
        Some(session) => session,
        None => match Session::start(port, key) {
            Some(session) => session,
            None => return,
        },
    };
    // Bypasses tokio, whose readiness does not include a new socket yet.
    match SockRef::from(&session.socket).send(datagram) {
        Ok(_) => session.record_datagram(&session.up, datagram.len(), true),
        // Datagrams may be lost.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) => session.fail(port, &error),
    }
}

impl UdpPort {
    /// Resolves a client. Repeated after each change of the configuration or of Pods, because the address may have been reassigned to another Pod.
    fn resolve(&self, client: SocketAddr) -> ResolvedConnection {
        ResolvedConnection::accepted(&self.worker, &self.socket, client)
    }

    /// Ends a session, so that the client's next datagram starts a new one.
    fn end_session(&self, session: &Rc<Session>) {
        session.ended.notify();
        let mut sessions = self.sessions.borrow_mut();
        if let Some(known) = sessions.get(&session.key)
            && Rc::ptr_eq(known, session)
        {
            sessions.remove(&session.key);
        }
    }
}

impl Session {
    /// Starts a session. Returns `None` if there is no endpoint or a limit is exceeded.
    fn start(port: &Rc<UdpPort>, key: SessionKey) -> Option<Rc<Session>> {
        let (worker, client) = (&port.worker, key.0);
        if port.sessions.borrow().len() >= worker.limits().udp_sessions {
            worker.metrics.count_refused_connection("TooManySessions");
            worker
                .limit_log
                .record_refusal(limit_name::udp_sessions, client);
            return None;
        }
        let Some(admission) = worker.try_admit() else {
            // The next datagram may be admitted.
            worker.make_room();
            worker
                .metrics
                .count_refused_connection("TooManyConnections");
            worker
                .limit_log
                .record_refusal(limit_name::connections, client);
            return None;
        };
        let mut report = StreamReport::new(worker, client, "UDP", None);
        let (endpoint, socket) = match select_endpoint(port, client, &mut report) {
            Ok(selected) => selected,
            Err(fault) => {
                report.set_fault(&fault);
                report.finish();
                return None;
            }
        };
        let checked = (worker.generation(), endpoint.upstream().endpoints_version());
        let session = Rc::new(Session {
            key,
            socket,
            endpoint: RefCell::new(endpoint),
            last_datagram: Cell::new(Instant::now()),
            awaits_response: Cell::new(false),
            up: Cell::new(0),
            down: Cell::new(0),
            checked: Cell::new(checked),
            ended: Signal::default(),
            _admission: admission,
        });
        port.sessions.borrow_mut().insert(key, session.clone());
        spawn_within::<SESSION_BYTES, _>(forward_responses(port.clone(), session.clone(), report));
        Some(session)
    }

    /// Returns whether the endpoint is still valid for the client. The route is looked up again only after a change of the configuration or of Pods, and the
    /// endpoint only after a change of its backend's endpoints.
    fn is_valid(&self, port: &UdpPort) -> bool {
        let worker = &port.worker;
        if self.ended.is_notified() {
            return false;
        }
        let endpoint = self.endpoint.borrow();
        let upstream = endpoint.upstream();
        let (generation, version) = (worker.generation(), upstream.endpoints_version());
        let (checked, checked_version) = self.checked.replace((generation, version));
        if version != checked_version && !upstream.contains(endpoint.address) {
            return false;
        }
        if generation == checked {
            return true;
        }
        let snapshot = worker.pin_snapshot();
        let route = StreamRoute::of_datagrams(worker, &snapshot, &port.resolve(self.key.0));
        route.plan.is_ok_and(|plan| plan.contains(upstream))
    }

    fn record_datagram(&self, counter: &Cell<u64>, count: usize, awaits_response: bool) {
        counter.set(counter.get() + count as u64);
        self.last_datagram.set(Instant::now());
        self.awaits_response.set(awaits_response);
    }

    /// Records a failure of the endpoint and ends the session. The next datagram may go to another endpoint.
    fn fail(self: &Rc<Self>, port: &UdpPort, error: &io::Error) {
        let mut endpoint = self.endpoint.borrow_mut();
        tracing::debug!(endpoint = %endpoint.address, %error, "a datagram could not be forwarded");
        endpoint.record_failure();
        drop(endpoint);
        port.end_session(self);
    }
}

/// Selects an endpoint for a session, and opens a socket to it.
fn select_endpoint(
    port: &UdpPort,
    client: SocketAddr,
    report: &mut StreamReport,
) -> Result<(SelectedEndpoint, UdpSocket), Fault> {
    let worker = &port.worker;
    let snapshot = worker.pin_snapshot();
    let route = StreamRoute::of_datagrams(worker, &snapshot, &port.resolve(client));
    report.set_listener(route.listener);
    let plan = route.plan?;
    report.set_rule(&plan);
    let (_, target) = plan.select_backend()?;
    let upstream = target.upstream.as_ref().map_err(Clone::clone)?;
    let sockets = &port.socket.upstream_sockets;
    let endpoint = upstream.select(worker, sockets, &[], Instant::now());
    let mut endpoint =
        endpoint.ok_or_else(|| fault(503, FaultReason::NoEndpoints, "no ready endpoint"))?;
    report.set_endpoint(upstream, endpoint.address);
    match sockets.connect_udp(endpoint.address) {
        Ok(socket) => Ok((endpoint, socket)),
        Err(error) => {
            endpoint.record_failure();
            Err(fault(503, FaultReason::ConnectFailed, &error.to_string()))
        }
    }
}

/// Forwards responses until the session ends.
async fn forward_responses(port: Rc<UdpPort>, session: Rc<Session>, mut report: StreamReport) {
    let worker = &port.worker;
    let idle = worker.limits().udp_idle_time;
    let deadline = || {
        let idle = match worker.draining.is_notified() {
            true => idle.min(DRAIN_TIME),
            false => idle,
        };
        Some(session.last_datagram.get() + idle)
    };
    let forwarding = async {
        let mut ended = session.ended.waiter();
        let mut closed = port.socket.closed.waiter();
        loop {
            let ready = poll_fn(|cx| {
                if ended.poll(cx).is_ready() {
                    return Poll::Ready(None);
                }
                // After the socket was closed, only outstanding responses are forwarded, and only while the worker drains.
                let closed = closed.poll(cx).is_ready();
                if closed && !(worker.draining.is_notified() && session.awaits_response.get()) {
                    return Poll::Ready(None);
                }
                session.socket.poll_recv_ready(cx).map(Some)
            });
            match ready.await {
                None => return None,
                Some(Err(error)) => return Some(error),
                Some(Ok(())) => {}
            }
            match forward_to_client(&port, &session) {
                Ok(true) => tokio::task::yield_now().await,
                Ok(false) => {}
                Err(error) => return Some(error),
            }
        }
    };
    if let Ok(Some(error)) = DeadlineTimer::new().run_until(deadline, forwarding).await {
        session.fail(&port, &error);
        report.set_end_reason("BackendGone");
    }
    port.end_session(&session);
    let (up, down) = (session.up.get(), session.down.get());
    report.add_bytes(up, down);
    report.finish();
}

/// Forwards a batch of datagrams from an endpoint. Returns whether more may be waiting.
fn forward_to_client(port: &UdpPort, session: &Session) -> io::Result<bool> {
    let mut buffer = port.worker.datagram_buffer.borrow_mut();
    buffer.resize(MAX_DATAGRAM, 0);
    for _ in 0..BATCH {
        let count = match session.socket.try_recv(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        if session.down.get() == 0 {
            session.endpoint.borrow_mut().record_connect();
        }
        // Datagrams may be lost.
        let (client, local_address) = session.key;
        if port
            .listener
            .send(&buffer[..count], client, local_address)
            .is_ok()
        {
            session.record_datagram(&session.down, count, false);
        }
    }
    Ok(true)
}
