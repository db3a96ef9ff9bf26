//! `controller`: manifests in, configuration for proxies out.
//!
//! Wires a source of files to the reconciler, and the reconciler to an xDS server ([`sink`]). The main thread reconciles; proxies are served by a runtime of
//! their own, which shares nothing with it but the encoded resources.

mod sink;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use pointsman_control::{Inbox, Reconciler, Snapshots};
use pointsman_wire::server::{self, Authorization, Authorize, Server, Subscription};
use pointsman_wire::tls::ServerTls;

use crate::admin::AdminState;
use crate::cli::Controller;
use crate::{logging, serving};
use sink::XdsSink;

/// Threads that serve proxies.
const THREADS: usize = 2;

/// Time for streams to end when the controller does.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs `controller`.
pub fn run(arguments: &Controller) -> Result<ExitCode> {
    logging::start(false);
    let mut permissions = arguments.permissions.permissions()?;
    let (source, first) = serving::read_manifests(&arguments.paths)?;
    let admin = serving::bind_admin(&arguments.admin)?;
    let admin_address = admin.as_ref().map(|admin| admin.address());
    let tls = arguments.tls.files().map(ServerTls::new).transpose()?;
    let tls = tls.map(Arc::new);
    let listener = server::bind(arguments.xds, tls.is_some()).with_context(|| {
        format!(
            "proxies can't be served at {} (--xds sets the address)",
            arguments.xds
        )
    })?;
    let xds = listener.local_addr()?;

    let inbox: Arc<Inbox> = Arc::default();
    let reports = inbox.clone();
    let notify = move || {
        // Reports are dropped once the inbox is closed.
        let _ = reports.put(|update| update.reports = true);
    };
    let authorize: Authorize = match &arguments.authorize {
        Some(path) => {
            let file = Authorization::new(path.clone())?;
            Arc::new(move |peer| file.allowed(peer))
        }
        None => Arc::new(|_| Subscription::Everything),
    };
    let server = Arc::new(Server::new(instance(), authorize, notify));
    let snapshots: Arc<Snapshots> = Arc::default();
    let state = Arc::new(AdminState::of_controller(snapshots.clone(), server.clone()));
    if let Some(admin) = admin {
        admin.start(state.clone(), &arguments.admin.hosts)?;
    }
    let (reloader, closing) = (source.reloader(), inbox.clone());
    serving::handle_signals(move || reloader.reload(), move || closing.close())?;

    if let Some(address) = admin_address {
        Arc::make_mut(&mut permissions.endpoints).refuse_admin(address);
    }
    let sink = XdsSink::new(server.clone(), permissions.endpoints.clone());
    let mut reconciler =
        Reconciler::new(vec![Box::new(sink)], snapshots).with_permissions(permissions);
    // Proxies are accepted afterwards: they would take an empty configuration for the current one.
    reconciler.apply_changes(first);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("xds")
        .enable_all()
        .build()?;
    runtime.spawn(server::accept(listener, server.clone(), tls));
    serving::announce(&format!("proxies on {xds}"), admin_address)?;
    state.set_ready(true);
    source.start(inbox.clone())?;
    reconciler.run(&inbox);

    state.set_ready(false);
    server.shut_down();
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    Ok(ExitCode::SUCCESS)
}

/// A name for this process that differs from those of others, and from its own after a restart.
fn instance() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}
