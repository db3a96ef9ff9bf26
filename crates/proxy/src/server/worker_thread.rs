//! The thread of a worker: commands of the control plane, and background tasks.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_local;

use super::accept::accept;
use super::udp::serve_datagrams;
use crate::metrics::WorkerMetrics;
use crate::socket_owner::SocketKey;
use crate::worker::{Installation, Worker, WorkerShared};

/// A listening socket for a worker.
#[derive(Debug)]
pub(crate) enum BoundSocket {
    Stream(std::net::TcpListener),
    Datagrams(std::net::UdpSocket),
}

/// A new socket for a worker.
pub(crate) type NewSocket = (SocketKey, BoundSocket);

/// A command to a worker.
#[derive(Debug)]
pub(crate) enum Command {
    /// Installs what has changed, and new sockets. Closes sockets that a new configuration does not have.
    Install {
        installation: Arc<Installation>,
        sockets: Vec<NewSocket>,
        /// Notified when everything is installed.
        done: Sender<()>,
    },
    /// Stops accepting and waits until connections end, or until the deadline. `done` gets the number of connections that are still open.
    Drain {
        deadline: Duration,
        done: Sender<usize>,
    },
}

/// Runs a worker until the control plane drops its sender.
pub(crate) fn run(
    shared: Arc<WorkerShared>,
    metrics: WorkerMetrics,
    index: usize,
    seed: u64,
    mut commands: UnboundedReceiver<Command>,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Tasks to poll between checks for I/O.
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
                    installation,
                    sockets,
                    done,
                } => {
                    install(&worker, &installation, sockets);
                    let _ = done.send(());
                }
                Command::Drain { deadline, done } => {
                    let still_open = drain(&worker, deadline).await;
                    let _ = done.send(still_open);
                }
            }
        }
    });
    Ok(())
}

/// Runs the worker's housekeeping once a second.
async fn sweep(worker: Rc<Worker>) {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tick.tick().await;
        worker.sweep();
    }
}

fn install(worker: &Rc<Worker>, installation: &Installation, new_sockets: Vec<NewSocket>) {
    worker.install_endpoints(&installation.endpoints, &installation.changed);
    if let Some(pods) = &installation.pods {
        worker.install_pods(pods.clone());
    }
    if let Some(config) = &installation.config {
        // The configuration first, so that connections to new sockets find their listeners.
        worker.install(config.clone(), &installation.changed);
        worker.close_sockets(&config.sockets);
    }
    for (key, bound) in new_sockets {
        if let Err(error) = listen(worker, key, bound) {
            tracing::error!(address = %key.address, %error, "can't listen");
        }
    }
}

/// Starts a task that serves a new socket.
fn listen(worker: &Rc<Worker>, key: SocketKey, bound: BoundSocket) -> std::io::Result<()> {
    match bound {
        BoundSocket::Stream(listener) => {
            let listener = TcpListener::from_std(listener)?;
            let socket = worker.add_socket(key);
            spawn_local(accept(worker.clone(), socket, listener));
        }
        BoundSocket::Datagrams(listener) => {
            let listener = UdpSocket::from_std(listener)?;
            let socket = worker.add_socket(key);
            spawn_local(serve_datagrams(worker.clone(), socket, listener));
        }
    }
    Ok(())
}

async fn drain(worker: &Rc<Worker>, deadline: Duration) -> usize {
    let end = Instant::now() + deadline;
    worker.start_draining();
    let mut pause = Duration::from_millis(1);
    // Lets connections without a request close, even if the deadline is immediate.
    tokio::time::sleep(pause).await;
    while worker.open_connections() > 0 && Instant::now() < end {
        tokio::time::sleep(pause.min(end.saturating_duration_since(Instant::now()))).await;
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    worker.open_connections()
}
