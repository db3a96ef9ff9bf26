//! The command `run`: a standalone proxy that is configured by manifests.
//!
//! Connects the file source to the reconciler, and the reconciler to a data plane in this process ([`in_process`]). The main thread reconciles. Reading files,
//! handling signals ([`signals`]) and the admin server each have a thread of their own.

mod in_process;
mod signals;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, bail};
use pointsman_binding::CONTROLLER_NAME;
use pointsman_control::{FileSource, Inbox, Reconciler, Snapshot, Snapshots, status_log};
use pointsman_proxy::placement::{AddressPolicy, DataplaneFilter, Placement};
use pointsman_proxy::{DataPlane, Proxy, SocketFactory};
use pointsman_resources::Kind;

use crate::admin::{AdminServer, AdminState};
use crate::cli::Run;
use crate::output;
use in_process::{InProcessSink, lock};

/// Runs `run` until a signal stops it.
pub fn run(arguments: &Run) -> Result<ExitCode> {
    start_logging(arguments.quiet);
    let mut options = arguments.data_plane.options()?;
    let mut permissions = arguments.permissions.permissions()?;
    let mut source = FileSource::new(&arguments.paths).context("can't watch files")?;
    let first = source.read_all();
    if !source.is_readable() {
        for error in source.errors() {
            output::print_error(&error.to_string());
        }
        bail!("no input could be read: -f expects files or directories of manifests");
    }
    let admin = match arguments.admin {
        Some(address) => Some(AdminServer::bind(address).with_context(|| {
            format!("the admin server can't listen on {address} (set by --admin)")
        })?),
        None => None,
    };
    let admin_address = admin.as_ref().map(AdminServer::address);
    if let Some(address) = admin_address {
        Arc::make_mut(&mut permissions.endpoints).refuse_admin(address);
        options.sockets = SocketFactory::default().without_admin(address);
    }
    options.endpoints = permissions.endpoints.clone();
    let proxy = Proxy::start(options).context("can't start the data plane")?;
    let data_plane = DataPlane::new(proxy, listeners(arguments));
    let snapshots: Arc<Snapshots> = Arc::default();
    let paths = arguments.data_plane.path_policy;
    let state = Arc::new(AdminState::new(snapshots.clone(), &data_plane, paths));
    if let Some(admin) = admin {
        admin.start(state.clone(), &arguments.admin_host)?;
    }
    let inbox: Arc<Inbox> = Arc::default();
    signals::start(source.reloader(), inbox.clone())?;

    let reports = inbox.clone();
    data_plane.on_report(move || {
        // Reports are dropped once the inbox is closed.
        let _ = reports.put(|update| update.reports = true);
    });
    let data_plane = Arc::new(Mutex::new(data_plane));
    let sink = InProcessSink(data_plane.clone());
    let mut reconciler =
        Reconciler::new(vec![Box::new(sink)], snapshots.clone()).with_permissions(permissions);
    reconciler.apply_changes(first);
    if !arguments.quiet {
        announce(&lock(&data_plane), &snapshots.latest(), admin_address)?;
    }
    state.set_ready(true);
    source.start(inbox.clone())?;
    reconciler.run(&inbox);

    state.set_ready(false);
    let drain = arguments.data_plane.drain;
    tracing::info!("shutting down; draining for up to {drain:?}");
    drop(reconciler);
    let unfinished = lock(&data_plane).drain(drain);
    if unfinished > 0 {
        tracing::warn!("{unfinished} connections were closed at the end of the drain period");
    }
    // Dropping the data plane flushes the access log.
    drop(data_plane);
    Ok(ExitCode::from(u8::from(unfinished > 0)))
}

fn listeners(arguments: &Run) -> Placement {
    let policy = match arguments.address {
        Some(address) => AddressPolicy::Fixed(address),
        None => AddressPolicy::Pool(arguments.address_pool.clone()),
    };
    let dataplanes = DataplaneFilter(arguments.dataplanes.iter().cloned().collect());
    Placement::new(policy, arguments.port_offset, dataplanes)
}

fn announce(data_plane: &DataPlane, snapshot: &Snapshot, admin: Option<SocketAddr>) -> Result<()> {
    let mut text = data_plane.describe().join("\n");
    if text.is_empty() {
        text = format!("not listening: {}", idle_reason(snapshot));
    }
    if let Some(address) = admin {
        text += &format!("\nadmin on http://{address}/");
    }
    output::print(&(text + "\n"))
}

/// Returns the reason why there is no listener: problems of Gateways, or no Gateway to serve.
fn idle_reason(snapshot: &Snapshot) -> String {
    let mut problems = Vec::new();
    for entry in snapshot.entries.values() {
        let key = entry.document.resource.key();
        let is_gateway = matches!(
            key.kind,
            Kind::Gateway | Kind::ListenerSet | Kind::MeshGateway
        );
        if let Some(status) = entry.status.as_ref().filter(|_| is_gateway) {
            let own = status_log::problems(status).into_iter();
            problems.extend(own.map(|problem| format!("\n    {key}: {}", problem.text)));
        }
    }
    if problems.is_empty() {
        return format!(
            "there is no Gateway of a GatewayClass with controllerName {CONTROLLER_NAME}, no Service with a clusterIP of this machine, and no Kuma Dataplane (or \
             none that --dataplane selects)"
        );
    }
    const MAX_PROBLEMS: usize = 10;
    let more = problems.len().saturating_sub(MAX_PROBLEMS);
    problems.truncate(MAX_PROBLEMS);
    if more > 0 {
        problems.push(format!("\n    and {more} more"));
    }
    format!("no listener can serve traffic{}", problems.concat())
}

/// Starts to log to standard error, at the levels in `RUST_LOG`. By default, logs Pointsman's messages, and warnings of its dependencies.
fn start_logging(quiet: bool) {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_default_env();
    let filter = filter.unwrap_or_else(|_| {
        EnvFilter::new(match quiet {
            true => "warn,h2=error",
            false => "warn,h2=error,pointsman=info",
        })
    });
    let logging = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_target(false)
        .try_init();
    if let Err(error) = logging {
        output::print_error(&format!("pointsman: logging is disabled: {error}"));
    }
}
