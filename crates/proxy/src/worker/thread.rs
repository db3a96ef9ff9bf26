//! The thread of a worker: what the control side tells it, and the tasks it runs.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_local;

use super::{ConfigSnapshot, EndpointSet, Socket, Worker, WorkerShared};
use crate::changed::Changed;
use crate::metrics::WorkerMetrics;
use crate::proxy::{SocketKey, SocketOwner};
use crate::server;

/// A socket that the control side has bound for a worker.
#[derive(Debug)]
pub(crate) enum BoundSocket {
    /// For streams.
    Stream(std::net::TcpListener),
    /// For datagrams.
    Datagrams(std::net::UdpSocket),
}

/// What a worker is told.
#[derive(Debug)]
pub(crate) enum Command {
    /// This holds from now on, and these sockets are new. Those that the version does not name are closed.
    Install {
        config: Arc<ConfigSnapshot>,
        endpoints: Arc<EndpointSet>,
        changed: Arc<Changed>,
        sockets: Vec<(SocketKey, SocketOwner, BoundSocket)>,
        /// Heard when it is so.
        done: Sender<()>,
    },
    /// Install other endpoints, of the backends that changed.
    InstallEndpoints {
        endpoints: Arc<EndpointSet>,
        changed: Arc<Changed>,
        /// Notified when they are installed.
        done: Sender<()>,
    },
    /// Stop accepting, and let what runs end by then. Says how many connections were cut.
    Drain {
        deadline: Duration,
        done: Sender<usize>,
    },
}

/// Runs a worker until the control side is gone.
pub(crate) fn run(
    shared: Arc<WorkerShared>,
    metrics: WorkerMetrics,
    index: usize,
    seed: u64,
    mut commands: UnboundedReceiver<Command>,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // How many tasks run before sockets are looked at: all that are ready.
        .event_interval(61)
        .build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async move {
        let worker = Rc::new(Worker::new(shared, metrics, index, seed));
        spawn_local(sweep(worker.clone()));
        spawn_local(worker.clone().close_idle_on_request());
        while let Some(command) = commands.recv().await {
            match command {
                Command::Install {
                    config,
                    endpoints,
                    changed,
                    sockets,
                    done,
                } => {
                    worker.install_endpoints(endpoints, &changed);
                    install(&worker, config, &changed, sockets);
                    let _ = done.send(());
                }
                Command::InstallEndpoints {
                    endpoints,
                    changed,
                    done,
                } => {
                    worker.install_endpoints(endpoints, &changed);
                    let _ = done.send(());
                }
                Command::Drain { deadline, done } => {
                    let cut = drain(&worker, deadline).await;
                    let _ = done.send(cut);
                }
            }
        }
    });
    Ok(())
}

/// Once a second, what is only kept for later is looked through.
async fn sweep(worker: Rc<Worker>) {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tick.tick().await;
        worker.sweep();
    }
}

fn install(
    worker: &Rc<Worker>,
    config: Arc<ConfigSnapshot>,
    changed: &Changed,
    fresh: Vec<(SocketKey, SocketOwner, BoundSocket)>,
) {
    // First the tables: whoever connects to a new socket finds its listeners.
    worker.install(config.clone(), changed);
    let mut sockets = worker.sockets.borrow_mut();
    sockets.retain(|key, socket| match config.sockets.get(key) {
        Some(owner) => {
            socket.owner.set(owner);
            true
        }
        None => {
            socket.closed.notify();
            false
        }
    });
    for (key, owner, bound) in fresh {
        let socket = Rc::new(Socket::new(key, owner, &worker.shared.ports));
        let listening = match bound {
            BoundSocket::Stream(listener) => TcpListener::from_std(listener).map(|listener| {
                spawn_local(server::accept(worker.clone(), socket.clone(), listener));
            }),
            BoundSocket::Datagrams(listener) => UdpSocket::from_std(listener).map(|listener| {
                spawn_local(server::datagrams(worker.clone(), socket.clone(), listener));
            }),
        };
        match listening {
            Ok(()) => drop(sockets.insert(key, socket)),
            Err(error) => tracing::error!(address = %key.address, %error, "listening"),
        }
    }
}

async fn drain(worker: &Rc<Worker>, deadline: Duration) -> usize {
    let end = Instant::now() + deadline;
    worker.draining.notify();
    for (_, socket) in worker.sockets.borrow_mut().drain() {
        socket.closed.notify();
    }
    let mut pause = Duration::from_millis(1);
    // Whoever only waits for a request hears the bell and ends, however little time there is.
    tokio::time::sleep(pause).await;
    while worker.open_connections() > 0 && Instant::now() < end {
        tokio::time::sleep(pause.min(end.saturating_duration_since(Instant::now()))).await;
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    worker.open_connections()
}
