//! `controller`: configuration in, resources for proxies and statuses out.
//! Connects a source to the reconciler, and the reconciler to an xDS server. The main thread reconciles; a separate runtime serves proxies and
//! shares only the encoded resources with it.
//!
//! - [`files`] reads manifests.
//! - [`cluster`] watches a Kubernetes cluster and writes statuses to it; [`accounts`] decides which configuration a proxy may receive there.

mod accounts;
mod cluster;
mod files;

use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use pointsman_binding::{OwnServer, OwnServers};
use pointsman_control::{Inbox, ManifestPermissions, Reconciler, Snapshots, clock};
use pointsman_wire::server::{
    self, Authorization, Authorize, AuthorizeController, Server, Subscription, XdsSink,
};
use pointsman_wire::tls::ServerTls;
use tokio::runtime::Runtime;

use crate::admin::{AdminState, PeerState};
use crate::cli::Controller;
use crate::{logging, serving};

/// Threads that serve proxies.
const THREADS: usize = 2;

/// Time for streams to end when the controller shuts down.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval between looks at the streams that are to end.
const SHUTDOWN_INTERVAL: Duration = Duration::from_millis(20);

/// Runs `controller`.
pub fn run(arguments: &Controller) -> Result<ExitCode> {
    logging::start(false);
    // Huge pages keep memory that the allocator has freed in part, and save no time here. A failure only costs memory.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    match arguments.paths.is_empty() {
        true => cluster::run(arguments),
        false => files::run(arguments),
    }
}

/// Parts of a controller that do not depend on its source.
struct ControlPlane {
    snapshots: Arc<Snapshots>,
    server: Arc<Server>,
    state: Arc<AdminState>,
    admin_address: Option<SocketAddr>,
    /// Servers of this process, which no route may reach.
    own: OwnServers,
    listener: TcpListener,
    runtime: Runtime,
}

impl ControlPlane {
    /// Opens all sockets. Proxies are not accepted yet.
    fn new(
        arguments: &Controller,
        authorize: Authorize,
        has_tls: bool,
        inbox: Arc<Inbox>,
        snapshots: Arc<Snapshots>,
        controllers: Option<(Arc<str>, AuthorizeController)>,
    ) -> Result<Self> {
        let admin = serving::bind_admin(&arguments.admin)?;
        let (admin_address, mut own) = (admin.admin_address(), admin.own());
        let xds = arguments.xds();
        let listener = server::bind(xds, has_tls).with_context(|| {
            format!("proxies can't be served at {xds} (--xds sets the address)")
        })?;
        let reports = inbox.clone();
        let notify = move || {
            // Reports are dropped once the inbox is closed.
            let _ = reports.merge(|update| update.has_reports = true);
        };
        serving::add_own(&mut own, OwnServer::ControlPlane, listener.local_addr()?);
        let server = Server::new(instance(), authorize, notify).with_own_servers(own.clone());
        let server = match controllers {
            Some((name, authorize)) => server.with_controllers(name, authorize),
            None => server,
        };
        let server = Arc::new(server);
        let peer = PeerState::Proxies(server.clone());
        let state = Arc::new(AdminState::of_controller(snapshots.clone(), peer));
        admin.start(&state, &arguments.admin)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("xds")
            .enable_all()
            .build()?;
        Ok(ControlPlane {
            snapshots,
            server,
            state,
            admin_address,
            own,
            listener,
            runtime,
        })
    }

    /// Creates the reconciler, with the xDS server as its sink.
    fn reconciler(
        &self,
        mut permissions: ManifestPermissions,
        arguments: &Controller,
    ) -> Reconciler {
        Arc::make_mut(&mut permissions.endpoints).refuse_own(&self.own);
        let sink = XdsSink::new(self.server.clone(), permissions.endpoints.clone());
        Reconciler::new(vec![Box::new(sink)], self.snapshots.clone())
            .with_permissions(permissions)
            .with_controller(arguments.identity())
    }

    /// Prepares to accept proxies. Proxies must not be accepted before the first configuration is applied, because they would apply an empty one.
    fn acceptor(&self) -> Result<Acceptor> {
        Ok(Acceptor {
            listener: self.listener.try_clone()?,
            server: self.server.clone(),
            state: self.state.clone(),
            admin_address: self.admin_address,
        })
    }

    /// Ends all streams.
    fn shut_down(self) {
        self.state.set_ready(false);
        self.server.shut_down();
        // Waits until other replicas are notified, so that they do not wait for this one.
        let end = clock::instant() + SHUTDOWN_TIMEOUT;
        while self.server.open_controller_streams() > 0 && clock::instant() < end {
            std::thread::sleep(SHUTDOWN_INTERVAL);
        }
        self.runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    }
}

/// The socket for proxies, and the server behind it.
struct Acceptor {
    listener: TcpListener,
    server: Arc<Server>,
    state: Arc<AdminState>,
    admin_address: Option<SocketAddr>,
}

impl Acceptor {
    /// Prints the addresses of the controller, and accepts proxies forever.
    async fn run(self, tls: Option<Arc<ServerTls>>) -> Result<()> {
        let address = self.listener.local_addr()?;
        serving::announce(&format!("proxies on {address}"), self.admin_address)?;
        self.state.set_ready(true);
        Ok(server::accept(self.listener, self.server, tls).await?)
    }
}

/// Authorizes proxies by their certificates, according to the authorization file. Without a file, everything is permitted.
fn by_certificate(arguments: &Controller) -> Result<Authorize> {
    let Some(path) = &arguments.authorize else {
        return Ok(server::authorize_by_certificate(|_| {
            Subscription::Everything
        }));
    };
    let file = Authorization::new(path.clone())?;
    Ok(server::authorize_by_certificate(move |peer| {
        file.allowed(peer)
    }))
}

/// Returns a name for this process that differs from those of others, and from its name after a restart.
fn instance() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}
