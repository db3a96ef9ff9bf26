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
use crate::upstream::SelectedEndpoint;
use crate::worker::{Admission, Socket, Worker, WorkerSnapshot};

/// Bound for the size of a session's future.
const SESSION_BYTES: usize = 4096;

/// Maximum size of a datagram.
const MOST: usize = 64 * 1024;

/// Number of datagrams forwarded before other tasks run.
const BATCH: usize = 64;

/// Time to wait for responses while the worker drains.
const LAST: Duration = Duration::from_secs(5);

/// Key of a session: the client's address and, if the socket has several addresses, the local one, from which responses are sent.
type SessionKey = (SocketAddr, Option<IpAddr>);

type Sessions = RefCell<HashMap<SessionKey, Rc<Session>, foldhash::fast::RandomState>>;

/// A UDP socket with its sessions.
struct Port {
    worker: Rc<Worker>,
    socket: Rc<Socket>,
    listener: DatagramSocket,
    sessions: Sessions,
}

/// A session of a client with an endpoint.
struct Session {
    ends: SessionKey,
    socket: UdpSocket,
    pick: RefCell<SelectedEndpoint>,
    /// Time of the last datagram in either direction.
    last: Cell<Instant>,
    /// The client's last datagram has got no response yet.
    awaiting: Cell<bool>,
    up: Cell<u64>,
    down: Cell<u64>,
    /// Version of the configuration for which the endpoint was last checked.
    checked: Cell<u64>,
    /// Signals that the session has to end.
    over: Signal,
    _admission: Admission,
}

/// Serves datagrams until the socket is closed.
pub(super) async fn serve_datagrams(worker: Rc<Worker>, socket: Rc<Socket>, listener: UdpSocket) {
    let listener = match DatagramSocket::new(listener, socket.key.address.ip()) {
        Ok(listener) => listener,
        Err(error) => {
            return tracing::error!(address = %socket.key.address, %error, "listening");
        }
    };
    let port = Rc::new(Port {
        worker,
        socket,
        listener,
        sessions: RefCell::default(),
    });
    loop {
        let mut place = port.socket.closed.waiter();
        let ready = poll_fn(|cx| match port.listener.socket().poll_recv_ready(cx) {
            Poll::Ready(ready) => Poll::Ready(Some(ready)),
            Poll::Pending => place.poll(cx).map(|()| None),
        });
        match ready.await {
            Some(Ok(())) if receive(&port) => tokio::task::yield_now().await,
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

/// Forwards datagrams of clients. Returns whether there may be more.
fn receive(port: &Rc<Port>) -> bool {
    let mut room = port.worker.datagram_buffer.borrow_mut();
    room.resize(MOST, 0);
    for _ in 0..BATCH {
        match port.listener.try_receive(&mut room) {
            Ok((count, client, at)) => pass(port, (client, at), &room[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            // An error of an earlier send, which its session detects itself.
            Err(_) => {}
        }
    }
    true
}

fn pass(port: &Rc<Port>, ends: SessionKey, datagram: &[u8]) {
    let known = port.sessions.borrow().get(&ends).cloned();
    let known = known.filter(|session| {
        let right = session.is_right(port);
        if !right {
            port.forget(session);
        }
        right
    });
    let session = match known {
        Some(session) => session,
        None => match Session::begin(port, ends) {
            Some(session) => session,
            None => return,
        },
    };
    // Bypasses tokio, which does not know yet that a new socket is writable.
    match SockRef::from(&session.socket).send(datagram) {
        Ok(_) => session.moved(&session.up, datagram.len(), true),
        // Datagrams may be lost.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) => session.broke(port, &error),
    }
}

impl Port {
    /// Resolves a client. Repeated after each change, because another client may have got the address.
    fn resolve(&self, held: &WorkerSnapshot, client: SocketAddr) -> ResolvedConnection {
        ResolvedConnection::accepted(&held.config, &self.socket, client)
    }

    /// Ends a session, so that the client's next datagram starts a new one.
    fn forget(&self, session: &Rc<Session>) {
        session.over.notify();
        let mut sessions = self.sessions.borrow_mut();
        if let Some(known) = sessions.get(&session.ends)
            && Rc::ptr_eq(known, session)
        {
            sessions.remove(&session.ends);
        }
    }
}

impl Session {
    /// Starts a session. Returns `None` if there is no endpoint or a limit is exceeded.
    fn begin(port: &Rc<Port>, ends: SessionKey) -> Option<Rc<Session>> {
        let (worker, client) = (&port.worker, ends.0);
        if port.sessions.borrow().len() >= worker.limits().udp_sessions {
            worker.metrics.count_refused_connection("TooManySessions");
            worker.limit_log.record_refusal("udp-sessions", client);
            return None;
        }
        let Some(admission) = worker.try_admit() else {
            // There may be room for the client's next datagram.
            worker.make_room();
            worker
                .metrics
                .count_refused_connection("TooManyConnections");
            worker.limit_log.record_refusal("connections", client);
            return None;
        };
        let mut report = StreamReport::new(worker, client, "UDP", None);
        let (pick, socket) = match choose(port, client, &mut report) {
            Ok(chosen) => chosen,
            Err(fault) => {
                report.refused(&fault);
                report.end();
                return None;
            }
        };
        let session = Rc::new(Session {
            ends,
            socket,
            pick: RefCell::new(pick),
            last: Cell::new(Instant::now()),
            awaiting: Cell::new(false),
            up: Cell::new(0),
            down: Cell::new(0),
            checked: Cell::new(worker.generation()),
            over: Signal::default(),
            _admission: admission,
        });
        port.sessions.borrow_mut().insert(ends, session.clone());
        spawn_within::<SESSION_BYTES, _>(answers(port.clone(), session.clone(), report));
        Some(session)
    }

    /// Reports whether the endpoint is still valid for the client. The check is repeated only after changes of the configuration.
    fn is_right(&self, port: &Port) -> bool {
        let worker = &port.worker;
        if self.over.is_notified() {
            return false;
        }
        if self.checked.replace(worker.generation()) == worker.generation() {
            return true;
        }
        let held = worker.pin_snapshot();
        let route = StreamRoute::of_datagrams(worker, &held, &port.resolve(&held, self.ends.0));
        let pick = self.pick.borrow();
        let upstream = pick.upstream();
        let plan = route.plan.ok().filter(|plan| plan.fault.is_none());
        plan.is_some_and(|plan| plan.contains(upstream) && upstream.contains(pick.address))
    }

    fn moved(&self, counter: &Cell<u64>, count: usize, awaiting: bool) {
        counter.set(counter.get() + count as u64);
        self.last.set(Instant::now());
        self.awaiting.set(awaiting);
    }

    /// Records a failure of the endpoint and ends the session. The next datagram may go to another endpoint.
    fn broke(self: &Rc<Self>, port: &Port, error: &io::Error) {
        let mut pick = self.pick.borrow_mut();
        tracing::debug!(endpoint = %pick.address, %error, "a datagram");
        pick.record_failure();
        drop(pick);
        port.forget(self);
    }
}

/// Selects an endpoint for a session, and opens a socket to it.
fn choose(
    port: &Port,
    client: SocketAddr,
    report: &mut StreamReport,
) -> Result<(SelectedEndpoint, UdpSocket), Fault> {
    let worker = &port.worker;
    let held = worker.pin_snapshot();
    let route = StreamRoute::of_datagrams(worker, &held, &port.resolve(&held, client));
    report.listener(route.listener);
    let plan = route.plan?;
    report.decided(&plan);
    if let Some(fault) = &plan.fault {
        return Err(fault.clone());
    }
    let (_, target) = plan.select_backend()?;
    let upstream = target.upstream.as_ref().map_err(Clone::clone)?;
    let sockets = &port.socket.upstream_sockets;
    let pick = upstream.select(worker, sockets, &[], Instant::now());
    let mut pick = pick.ok_or_else(|| fault(503, FaultReason::NoEndpoints, "no ready endpoint"))?;
    report.endpoint(upstream, pick.address);
    match sockets.connect_udp(pick.address) {
        Ok(socket) => Ok((pick, socket)),
        Err(error) => {
            pick.record_failure();
            Err(fault(503, FaultReason::ConnectFailed, &error.to_string()))
        }
    }
}

/// Forwards responses until the session ends.
async fn answers(port: Rc<Port>, session: Rc<Session>, mut report: StreamReport) {
    let worker = &port.worker;
    let idle = worker.limits().udp_idle_time;
    let deadline = || {
        let idle = match worker.draining.is_notified() {
            true => idle.min(LAST),
            false => idle,
        };
        Some(session.last.get() + idle)
    };
    let carrying = async {
        let mut over = session.over.waiter();
        let mut closed = port.socket.closed.waiter();
        loop {
            let ready = poll_fn(|cx| {
                if over.poll(cx).is_ready() {
                    return Poll::Ready(None);
                }
                // After the socket was closed, only outstanding responses are forwarded, and only while the worker drains.
                let closed = closed.poll(cx).is_ready();
                if closed && !(worker.draining.is_notified() && session.awaiting.get()) {
                    return Poll::Ready(None);
                }
                session.socket.poll_recv_ready(cx).map(Some)
            });
            match ready.await {
                None => return None,
                Some(Err(error)) => return Some(error),
                Some(Ok(())) => {}
            }
            match send_back(&port, &session) {
                Ok(true) => tokio::task::yield_now().await,
                Ok(false) => {}
                Err(error) => return Some(error),
            }
        }
    };
    if let Ok(Some(error)) = DeadlineTimer::new().run_until(deadline, carrying).await {
        session.broke(&port, &error);
        report.cut("BackendGone");
    }
    port.forget(&session);
    let (up, down) = (session.up.get(), session.down.get());
    report.moved(up, down);
    report.end();
}

/// Forwards datagrams of an endpoint. Returns whether there may be more.
fn send_back(port: &Port, session: &Session) -> io::Result<bool> {
    let mut room = port.worker.datagram_buffer.borrow_mut();
    room.resize(MOST, 0);
    for _ in 0..BATCH {
        let count = match session.socket.try_recv(&mut room) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        if session.down.get() == 0 {
            session.pick.borrow_mut().record_connect();
        }
        // Datagrams may be lost.
        let (client, at) = session.ends;
        if port.listener.send(&room[..count], client, at).is_ok() {
            session.moved(&session.down, count, false);
        }
    }
    Ok(true)
}
