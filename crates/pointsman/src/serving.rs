//! Parts that `run`, `controller` and `proxy` share: the admin server, the data plane's start and end, reading manifests, signals.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use pointsman_binding::{EndpointPolicy, OwnServer, OwnServers};
use pointsman_control::{FileSource, SourceUpdate};
use pointsman_proxy::placement::Placement;
use pointsman_proxy::{DataPlane, Options, Proxy, SocketFactory, reachable_at};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::admin::{AdminServer, AdminState, Pages};
use crate::cli::{AdminArgs, DataPlaneArgs};
use crate::output;

/// The admin server and the server for probes, if they are enabled. They listen, but do not accept connections yet.
pub struct AdminServers {
    admin: Option<AdminServer>,
    probes: Option<AdminServer>,
}

/// Listens for requests to the admin server and to the one for probes.
pub fn bind_admin(arguments: &AdminArgs) -> Result<AdminServers> {
    let bind = |address: Option<SocketAddr>, name: &str, flag: &str| {
        let server = address.map(AdminServer::bind).transpose();
        server.with_context(|| {
            let address = address.map(|address| address.to_string());
            let address = address.unwrap_or_default();
            format!("the {name} server can't listen on {address} (set by {flag})")
        })
    };
    Ok(AdminServers {
        admin: bind(arguments.listen, "admin", "--admin")?,
        probes: bind(arguments.probes, "probe", "--probes")?,
    })
}

impl AdminServers {
    /// Returns the addresses at which these servers can be reached, which routes must not reach.
    pub fn own(&self) -> OwnServers {
        let mut own = OwnServers::default();
        let admin = self.admin.as_ref().map(|server| (OwnServer::Admin, server));
        let probes = self.probes.as_ref();
        let probes = probes.map(|server| (OwnServer::Probes, server));
        for (kind, server) in admin.into_iter().chain(probes) {
            add_own(&mut own, kind, server.address());
        }
        own
    }

    /// Returns the address of the admin server.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(AdminServer::address)
    }

    /// Starts to serve requests.
    pub fn start(self, state: &Arc<AdminState>, arguments: &AdminArgs) -> io::Result<()> {
        if let Some(admin) = self.admin {
            let names = arguments.hosts.as_slice().into();
            admin.start(state.clone(), Pages::All(names))?;
        }
        match self.probes {
            Some(probes) => probes.start(state.clone(), Pages::Probes),
            None => Ok(()),
        }
    }
}

/// Adds the addresses at which a listener can be reached.
pub fn add_own(own: &mut OwnServers, kind: OwnServer, listener: SocketAddr) {
    for address in reachable_at(listener) {
        own.add(kind, address);
    }
}

/// Reads manifests for the first time. Fails if nothing can be read.
pub fn read_manifests(paths: &[std::path::PathBuf]) -> Result<(FileSource, SourceUpdate)> {
    let mut source = FileSource::new(paths).context("can't watch files")?;
    let first = source.read_all();
    if !source.is_readable() {
        for error in source.errors() {
            output::print_error(&error.to_string());
        }
        bail!("no input could be read: -f expects files or directories of manifests");
    }
    Ok((source, first))
}

/// Starts a data plane without configuration. It never connects to servers that its sockets refuse, or to endpoints that the policy refuses.
pub fn start_data_plane(
    mut options: Options,
    placement: Placement,
    endpoints: Arc<EndpointPolicy>,
    sockets: SocketFactory,
) -> Result<DataPlane> {
    options.sockets = sockets;
    options.endpoints = endpoints;
    let proxy = Proxy::start(options).context("can't start the data plane")?;
    Ok(DataPlane::new(proxy, placement))
}

/// Waits for open requests to finish. Returns the exit status.
pub fn drain(data_plane: &mut DataPlane, arguments: &DataPlaneArgs) -> ExitCode {
    let drain = arguments.drain;
    tracing::info!("shutting down; draining for up to {drain:?}");
    let unfinished = data_plane.drain(drain);
    if unfinished > 0 {
        tracing::warn!("{unfinished} connections were closed at the end of the drain period");
    }
    ExitCode::from(u8::from(unfinished > 0))
}

/// Prints the listeners and the address of the admin server.
pub fn announce(listeners: &str, admin: Option<SocketAddr>) -> Result<()> {
    let mut text = listeners.to_owned();
    if let Some(address) = admin {
        text += &format!("\nadmin on http://{address}/");
    }
    output::print(&(text + "\n"))
}

/// Handles signals on a separate thread, so that they are handled even while the control thread is busy: SIGHUP reloads, SIGTERM and SIGINT stop, and a second
/// one exits immediately.
pub fn handle_signals(
    reload: impl Fn() + Send + 'static,
    stop: impl Fn() + Send + 'static,
) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let run = move || {
        let mut stopping = false;
        for signal in signals.forever() {
            match signal {
                SIGHUP => reload(),
                _ if stopping => {
                    tracing::warn!("second signal received, exiting immediately");
                    std::process::exit(1)
                }
                _ => {
                    stopping = true;
                    stop();
                }
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(run)?;
    Ok(())
}
