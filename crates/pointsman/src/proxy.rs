//! `proxy`: a data plane that follows a control plane over the network.
//!
//! The main thread runs the [`ControlLoop`], which puts received changes into effect, as the reconciler does in `run`. The connection to the control plane runs
//! on a separate thread.

use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use anyhow::{Result, anyhow, bail};
use pointsman_binding::OwnServers;
use pointsman_control::{Snapshots, clock};
use pointsman_proxy::SocketFactory;
use pointsman_wire::client::{
    Client, ClientOptions, Commit, ControlLoop, Event, Replica, ReportQueue, TokenFile,
};
use pointsman_wire::tls::ClientTls;
use tokio::sync::{mpsc, watch};

use crate::admin::AdminState;
use crate::cli::ProxyArgs;
use crate::in_process::{InProcessSink, lock};
use crate::{logging, serving};

/// Runs `proxy`.
pub fn run(arguments: &ProxyArgs) -> Result<ExitCode> {
    logging::start(false);
    // A huge page stays as long as a byte of it is in use, which costs a third more memory after the first configuration, and saves no time per request. A
    // failure only costs memory.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let subscription = arguments.subscription();
    let subscription = subscription.map_err(|why| anyhow!("--dataplane {why}"))?;
    let mut options = arguments.data_plane.options()?;
    options.hidden_port_offset = arguments.low_port_offset;
    let tls = client_tls(arguments)?;
    let admin = serving::bind_admin(&arguments.admin)?;
    let admin_address = admin.admin_address();
    let mut endpoints = arguments.endpoints.policy()?;
    let own = admin.own();
    endpoints.refuse_own(&own);
    let (control_plane_servers, learned) = watch::channel(OwnServers::default());
    let sockets = SocketFactory::default()
        .without_own(own.clone())
        .without_control_plane(learned);
    let endpoints = Arc::new(endpoints);
    let placement = arguments.placement();
    let data_plane = serving::start_data_plane(options, placement, endpoints, sockets)?;

    let reports: Arc<ReportQueue> = Arc::default();
    let (commits, received) = mpsc::channel(1);
    let options = ClientOptions {
        control_planes: arguments.control_plane.clone(),
        name: arguments.name.clone(),
        software: env!("CARGO_PKG_VERSION").to_owned(),
        tls,
        token: arguments.token.clone().map(TokenFile::new),
        cache: arguments.cache(),
        subscription,
        own_servers: own,
        control_plane_servers,
    };
    let cached = cached(&options);
    let client = Client::new(options, cached, reports.clone(), commits);
    let snapshots: Arc<Snapshots> = Arc::default();
    let paths = arguments.data_plane.path_policy;
    let state = AdminState::of_proxy(snapshots.clone(), &data_plane, paths, client.state());
    let state = Arc::new(state);
    admin.start(&state, &arguments.admin)?;
    if let Some(address) = admin_address {
        tracing::info!("waiting for a configuration; admin on http://{address}/");
    }
    let (events, inbox) = channel();
    let (reload, stop) = (events.clone(), events.clone());
    // Sending fails once the main thread has ended.
    let reload = move || drop(reload.send(Event::Reload));
    serving::handle_signals(reload, move || drop(stop.send(Event::Stop)))?;
    let report = events.clone();
    data_plane.on_report(move || drop(report.send(Event::Report)));
    follow(client, received, events)?;

    let data_plane = Arc::new(Mutex::new(data_plane));
    let sink = InProcessSink(data_plane.clone());
    let mut control = ControlLoop::new(Box::new(sink), reports, snapshots);
    let announce = || {
        if !state.is_ready() {
            let mut listeners = lock(&data_plane).describe().join("\n");
            if listeners.is_empty() {
                listeners = "not listening".to_owned();
            }
            serving::announce(&listeners, admin_address)?;
            state.set_ready(true);
        }
        anyhow::Ok(())
    };
    control.run(&inbox, None, announce)?;
    if !arguments.drain_delay.is_zero() {
        tracing::info!("draining begins in {:?}", arguments.drain_delay);
        lock(&data_plane).announce_close();
        let end = clock::instant() + arguments.drain_delay;
        control.run(&inbox, Some(end), announce)?;
    }
    state.set_ready(false);
    drop(control);
    // Dropping the data plane flushes the access log.
    Ok(serving::drain(
        &mut lock(&data_plane),
        &arguments.data_plane,
    ))
}

/// Reads the certificates for TLS. Fails if they are missing, or if they have no effect.
fn client_tls(arguments: &ProxyArgs) -> Result<Option<Arc<ClientTls>>> {
    let is_used = arguments.control_plane.iter().any(|url| url.has_tls());
    if let Some(authorities) = &arguments.control_plane_ca {
        // A token is not sent in plaintext, not even over loopback.
        return match arguments.control_plane.iter().all(|url| url.has_tls()) {
            true => Ok(Some(Arc::new(ClientTls::anonymous(authorities.clone())?))),
            false => bail!("--token requires that every --control-plane begins with https://"),
        };
    }
    match arguments.tls.files() {
        Some(files) if is_used => Ok(Some(Arc::new(ClientTls::new(files)?))),
        Some(_) => bail!("--tls-cert has no effect: no --control-plane begins with https://"),
        None if is_used => bail!(
            "https:// requires --control-plane-ca and --token, or --tls-cert, --tls-key and --client-ca"
        ),
        None => Ok(None),
    }
}

/// Reads the last configuration from the cache. An unusable cache does not prevent the start.
fn cached(options: &ClientOptions) -> Replica {
    let cache = options.cache.as_ref();
    let replica = cache.map(|cache| cache.load(&options.subscription));
    match replica {
        None => Replica::default(),
        Some(Ok(replica)) => {
            if !replica.is_empty() {
                let resources = replica.len();
                tracing::warn!(
                    "starting with the cached configuration ({resources} resources) until a control plane is connected"
                );
            }
            replica
        }
        Some(Err(error)) => {
            tracing::warn!("the cached configuration is not used: {error}");
            Replica::default()
        }
    }
}

/// Starts the thread that follows the control plane.
fn follow(
    client: Client,
    mut received: mpsc::Receiver<Commit>,
    events: Sender<Event>,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let forward = async move {
        while let Some(commit) = received.recv().await {
            if events.send(Event::Commit(Box::new(commit))).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("control-plane".to_owned())
        .spawn(move || runtime.block_on(async { tokio::join!(client.run(), forward) }))?;
    Ok(())
}
