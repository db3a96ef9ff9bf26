//! Datagrams. Those of one client are a session: they go to one endpoint from a socket of their own, and what comes back there goes to the client, from
//! the address that it asked. A session ends when nothing has come or gone for a while.

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
use tokio::task::spawn_local;

use super::course::{Course, fault};
use super::report::Report;
use crate::downstream::ResolvedConnection;
use crate::io::datagram_socket::DatagramSocket;
use crate::io::deadline::DeadlineTimer;
use crate::io::signal::Signal;
use crate::upstream::SelectedEndpoint;
use crate::worker::{Admission, Socket, Worker, WorkerSnapshot};

/// The longest datagram.
const MOST: usize = 64 * 1024;

/// Datagrams that are passed on before others have their turn.
const BATCH: usize = 64;

/// How long an answer is waited for when the worker drains.
const LAST: Duration = Duration::from_secs(5);

/// Who sent a datagram and, where a socket has several addresses, to which: an answer comes from there.
type Ends = (SocketAddr, Option<IpAddr>);

type Sessions = RefCell<HashMap<Ends, Rc<Session>, foldhash::fast::RandomState>>;

/// What the datagrams of a port have in common.
struct Port {
    worker: Rc<Worker>,
    socket: Rc<Socket>,
    listener: DatagramSocket,
    sessions: Sessions,
}

/// A client and its endpoint.
struct Session {
    ends: Ends,
    socket: UdpSocket,
    pick: RefCell<SelectedEndpoint>,
    /// When something last came or went.
    last: Cell<Instant>,
    /// The client's last datagram has had no answer yet.
    awaiting: Cell<bool>,
    up: Cell<u64>,
    down: Cell<u64>,
    /// The version that it was last seen to be right under.
    checked: Cell<u64>,
    /// It has to end.
    over: Signal,
    _admission: Admission,
}

/// Serves datagrams until the socket is closed.
pub(crate) async fn datagrams(worker: Rc<Worker>, socket: Rc<Socket>, listener: UdpSocket) {
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

/// Passes on what clients have sent. Returns whether there may be more.
fn receive(port: &Rc<Port>) -> bool {
    let mut room = port.worker.datagram_buffer.borrow_mut();
    room.resize(MOST, 0);
    for _ in 0..BATCH {
        match port.listener.try_receive(&mut room) {
            Ok((count, client, at)) => pass(port, (client, at), &room[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            // Of something that was sent before: the session finds out on its own.
            Err(_) => {}
        }
    }
    true
}

fn pass(port: &Rc<Port>, ends: Ends, datagram: &[u8]) {
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
    // Sending does not wait for the runtime to know that there is room: of a new socket it does not know yet.
    match SockRef::from(&session.socket).send(datagram) {
        Ok(_) => session.moved(&session.up, datagram.len(), true),
        // A datagram may be lost.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) => session.broke(port, &error),
    }
}

impl Port {
    /// Resolves a client. It is done anew after each change: another client may have got the address.
    fn resolve(&self, held: &WorkerSnapshot, client: SocketAddr) -> ResolvedConnection {
        ResolvedConnection::accepted(&held.config, &self.socket, client)
    }

    /// The client's next datagram begins a new session.
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
    /// Begins a session; none if there is nowhere to go, or there are too many.
    fn begin(port: &Rc<Port>, ends: Ends) -> Option<Rc<Session>> {
        let (worker, client) = (&port.worker, ends.0);
        if port.sessions.borrow().len() >= worker.limits().udp_sessions {
            worker.metrics.count_refused_connection("TooManySessions");
            worker.overload.note("udp-sessions", client);
            return None;
        }
        let Some(admission) = worker.try_admit() else {
            // There may be room for the client's next datagram.
            worker.make_room();
            worker
                .metrics
                .count_refused_connection("TooManyConnections");
            worker.overload.note("connections", client);
            return None;
        };
        let mut report = Report::new(worker, client, "UDP", None);
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
        spawn_local(answers(port.clone(), session.clone(), report));
        Some(session)
    }

    /// Whether its endpoint is still one that the client's datagrams may go to. Nothing is to be found out unless something has changed.
    fn is_right(&self, port: &Port) -> bool {
        let worker = &port.worker;
        if self.over.is_notified() {
            return false;
        }
        if self.checked.replace(worker.generation()) == worker.generation() {
            return true;
        }
        let held = worker.pin_snapshot();
        let course = Course::of_datagrams(worker, &held, &port.resolve(&held, self.ends.0));
        let pick = self.pick.borrow();
        let upstream = pick.upstream();
        let plan = course.plan.ok().filter(|plan| plan.fault.is_none());
        plan.is_some_and(|plan| plan.contains(upstream) && upstream.contains(pick.address))
    }

    fn moved(&self, counter: &Cell<u64>, count: usize, awaiting: bool) {
        counter.set(counter.get() + count as u64);
        self.last.set(Instant::now());
        self.awaiting.set(awaiting);
    }

    /// Its endpoint is not there: the next datagram may go to another one.
    fn broke(self: &Rc<Self>, port: &Port, error: &io::Error) {
        let mut pick = self.pick.borrow_mut();
        tracing::debug!(endpoint = %pick.address, %error, "a datagram");
        pick.record_failure();
        drop(pick);
        port.forget(self);
    }
}

/// An endpoint for a session, and a socket that reaches it.
fn choose(
    port: &Port,
    client: SocketAddr,
    report: &mut Report,
) -> Result<(SelectedEndpoint, UdpSocket), Fault> {
    let worker = &port.worker;
    let held = worker.pin_snapshot();
    let course = Course::of_datagrams(worker, &held, &port.resolve(&held, client));
    report.listener(course.listener);
    let plan = course.plan?;
    report.decided(&plan);
    if let Some(fault) = &plan.fault {
        return Err(fault.clone());
    }
    let (_, target) = plan.select_backend()?;
    let upstream = target.upstream.as_ref().map_err(Clone::clone)?;
    let pick = upstream.select(worker, &[], Instant::now());
    let mut pick = pick.ok_or_else(|| fault(503, FaultReason::NoEndpoints, "no ready endpoint"))?;
    report.endpoint(upstream, pick.address);
    match upstream.sockets.connect_udp(pick.address) {
        Ok(socket) => Ok((pick, socket)),
        Err(error) => {
            pick.record_failure();
            Err(fault(503, FaultReason::ConnectFailed, &error.to_string()))
        }
    }
}

/// Passes on what comes back, until the session is over.
async fn answers(port: Rc<Port>, session: Rc<Session>, mut report: Report) {
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
                // Where nobody listens any more nothing is said, but for the last answers when all ends.
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

/// Passes on what an endpoint has sent. Returns whether there may be more.
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
        // A datagram may be lost.
        let (client, at) = session.ends;
        if port.listener.send(&room[..count], client, at).is_ok() {
            session.moved(&session.down, count, false);
        }
    }
    Ok(true)
}
