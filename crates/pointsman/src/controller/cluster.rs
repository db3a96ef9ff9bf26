//! A controller of a Kubernetes cluster.
//! It starts in several steps, each of which waits for the one before: the API server responds; every kind has been listed; the first configuration is applied;
//! the serving certificate exists. Then proxies are accepted, and the process is ready. A follower does the same as the leader, but writes nothing.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use pointsman_control::mailbox::Wake;
use pointsman_control::{Inbox, Reconciler, Snapshots, StatusSink};
use pointsman_kube::connect::{Connection, connect};
use pointsman_kube::gateways::{InfrastructureSettings, REPLACEMENT_DEADLINE};
use pointsman_kube::identity::authority::{
    AuthoritySettings, PublishedAuthority, Rotation, SECRET_NAME, ServingCertificate, service_names,
};
use pointsman_kube::identity::own_account;
use pointsman_kube::identity::tokens::Reviewer;
use pointsman_kube::{Cluster, LeaseName, Settings};
use pointsman_wire::client::TokenFile;
use pointsman_wire::server::{self, FollowOptions, Leader};
use pointsman_wire::tls::{ClientTls, IssuedCertificate, ServerTls};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::{Acceptor, ControlPlane, accounts, by_certificate, instance};
use crate::cli::{Controller, EndpointAddresses, XDS_PORT};
use crate::serving;

/// Threads that read objects and write statuses.
const THREADS: usize = 2;

/// Interval between attempts to reach the API server at the start.
const CONNECT_INTERVAL: Duration = Duration::from_secs(1);

/// Interval between checks whether all kinds have been listed, at the start.
const LIST_INTERVAL: Duration = Duration::from_millis(20);

/// Runs the controller until a signal stops it.
pub fn run(arguments: &Controller) -> Result<ExitCode> {
    let permissions = arguments
        .permissions
        .permissions_or(EndpointAddresses::Routable)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("kubernetes")
        .enable_all()
        .build()?;
    let flags = &arguments.cluster;
    let connection = connect(flags.kubeconfig.as_deref(), flags.context.as_deref());
    let connection = runtime.block_on(connection)?;
    let mutual = arguments.tls.files().map(ServerTls::new).transpose()?;
    let mut settings = settings(arguments, &connection, mutual.is_none());
    let (inbox, snapshots): (Arc<Inbox>, Arc<Snapshots>) = Default::default();
    let reviewer = Arc::new(Reviewer::new(connection.client.clone()));
    let authorize = match &mutual {
        Some(_) => by_certificate(arguments)?,
        None => accounts::authorize(reviewer.clone(), snapshots.clone()),
    };
    let replicas = accounts::authorize_controller(reviewer, flags.token.clone());
    let replicas = Some((settings.instance.clone(), replicas));
    let plane = ControlPlane::new(
        arguments,
        authorize,
        true,
        inbox.clone(),
        snapshots,
        replicas,
    )?;
    let port = plane.listener.local_addr()?.port();
    let address = flags.advertise_address;
    settings.address = address.map(|ip| SocketAddr::new(ip, port));
    let (reloads, closing) = (inbox.clone(), inbox.clone());
    let reload = move || {
        // Nothing is reloaded once the inbox is closed.
        let _ = reloads.merge(|update| update.reload = true);
    };
    serving::handle_signals(reload, move || closing.close())?;

    tracing::info!("cluster {}", describe(&connection));
    let Some((cluster, sinks)) = start(&runtime, &connection, &settings, &inbox) else {
        return Ok(ExitCode::SUCCESS);
    };
    plane
        .state
        .cluster_metrics
        .get_or_init(|| cluster.metrics().clone());
    let metrics = cluster.metrics().clone();
    let mut reconciler = plane
        .reconciler(permissions, arguments)
        .with_timing(move |took| metrics.record_reconcile(took));
    if let Some(sink) = cluster.infrastructure_sink() {
        reconciler = reconciler.with_sink(Box::new(sink));
    }
    for sink in sinks {
        reconciler = reconciler.with_status_sink(sink);
    }
    if apply_first(&mut reconciler, &inbox, &cluster) {
        plane
            .runtime
            .spawn(follow(arguments, &plane, &cluster, &settings)?);
        let acceptor = plane.acceptor()?;
        match (mutual, cluster.authority()) {
            (None, Some(authority)) => {
                let accept = accept_with_issued(acceptor, authority.clone());
                plane.runtime.spawn(accept);
            }
            (mutual, _) => drop(plane.runtime.spawn(acceptor.run(mutual.map(Arc::new)))),
        }
        reconciler.run(&inbox);
    }
    plane.shut_down();
    runtime.block_on(cluster.stop());
    Ok(ExitCode::SUCCESS)
}

fn settings(arguments: &Controller, connection: &Connection, has_authority: bool) -> Settings {
    let flags = &arguments.cluster;
    let namespace = flags.namespace.as_ref().unwrap_or(&connection.namespace);
    Settings {
        controller: arguments.identity(),
        watch_namespaces: flags.watch_namespaces.clone(),
        lease: Some(LeaseName {
            namespace: namespace.clone(),
            name: flags.lease.clone(),
        }),
        address: None,
        instance: flags.instance.clone().unwrap_or_else(instance).into(),
        owner: own_account::account(namespace),
        authority: has_authority.then(|| AuthoritySettings {
            namespace: namespace.clone(),
            secret: SECRET_NAME.to_owned(),
            names: service_names(&flags.service, namespace),
            rotation: Rotation::default(),
        }),
        infrastructure: flags
            .proxy_image
            .clone()
            .map(|image| InfrastructureSettings {
                image,
                pull_policy: flags.proxy_image_pull_policy.name().to_owned(),
                control_plane: format!("https://{}.{namespace}.svc:{XDS_PORT}", flags.service),
                probes: arguments.xds().ip(),
                controller_name: arguments.controller_name.clone(),
                endpoint_flags: arguments.permissions.endpoints.proxy_flags(),
                replacement_deadline: REPLACEMENT_DEADLINE,
            }),
    }
}

fn describe(connection: &Connection) -> String {
    match &connection.context {
        Some(context) => format!("{} (context {context})", connection.url),
        None => connection.url.clone(),
    }
}

type Started = (Cluster, Vec<Box<dyn StatusSink>>);

/// Starts to watch as soon as the API server responds. Returns `None` if the process has to exit before.
fn start(
    runtime: &Runtime,
    connection: &Connection,
    settings: &Settings,
    inbox: &Arc<Inbox>,
) -> Option<Started> {
    let mut last = String::new();
    while !inbox.is_closed() {
        let started = Cluster::start(connection.client.clone(), settings, inbox.clone());
        let started = runtime.block_on(async {
            tokio::select! {
                started = started => Some(started),
                () = closed(inbox) => None,
            }
        });
        match started? {
            Ok(started) => return Some(started),
            Err(error) => {
                let error = error.to_string();
                if error != last {
                    tracing::warn!("the API server does not respond: {error}; retrying");
                    last = error;
                }
            }
        }
        runtime.block_on(tokio::time::sleep(CONNECT_INTERVAL));
    }
    None
}

/// Waits until the inbox is closed, because the process has to exit.
async fn closed(inbox: &Inbox) {
    while !inbox.is_closed() {
        tokio::time::sleep(LIST_INTERVAL).await;
    }
}

/// Applies the first complete list of all kinds. Returns false if the process has to exit before.
fn apply_first(reconciler: &mut Reconciler, inbox: &Inbox, cluster: &Cluster) -> bool {
    loop {
        if inbox.wait(None) == Wake::Closed {
            return false;
        }
        // Without the state of generated objects, statuses would briefly report that there are none.
        while !cluster.pending_watches().is_empty() {
            std::thread::sleep(LIST_INTERVAL);
            if inbox.is_closed() {
                return false;
            }
        }
        // Listed objects are put into the inbox before `pending_watches` omits them.
        let is_complete = cluster.pending_watches().is_empty();
        if let Some(update) = inbox.take() {
            reconciler.apply_changes(update);
        }
        if is_complete {
            return true;
        }
    }
}

/// Exchanges reports of proxies with the other replicas.
fn follow(
    arguments: &Controller,
    plane: &ControlPlane,
    cluster: &Cluster,
    settings: &Settings,
) -> Result<impl Future<Output = ()> + use<>> {
    let flags = &arguments.cluster;
    let namespace = settings.lease.as_ref().map(|lease| &*lease.namespace);
    let host = format!("{}.{}.svc", flags.service, namespace.unwrap_or_default());
    let url = format!("https://{host}:{XDS_PORT}").parse();
    let files = arguments.tls.files();
    let files = files.map(|files| ClientTls::new(files).map(Arc::new));
    let files = files.transpose()?;
    let bundle = cluster
        .authority()
        .map(|authority| authority.bundle.clone());
    let tls = move || {
        let issued = || ClientTls::trusting(&bundle.as_ref()?.borrow()).ok();
        files.clone().or_else(|| issued().map(Arc::new))
    };
    let options = FollowOptions {
        url: url.map_err(anyhow::Error::msg)?,
        tls: Box::new(tls),
        token: flags.token.clone().map(TokenFile::new),
    };
    let (leaders, leader) = watch::channel(None);
    let (server, mut holder) = (plane.server.clone(), cluster.leader());
    let translate = async move {
        loop {
            let newest = holder.borrow_and_update().clone();
            leaders.send_replace(newest.map(|holder| Leader {
                name: holder.identity,
                address: holder.address,
            }));
            if holder.changed().await.is_err() {
                return;
            }
        }
    };
    Ok(async move {
        tokio::join!(translate, server::follow(server, options, leader));
    })
}

/// Accepts proxies as soon as there is a certificate, and renews it.
async fn accept_with_issued(acceptor: Acceptor, authority: PublishedAuthority) -> Result<()> {
    let mut serving = authority.serving;
    let first = serving.wait_for(Option::is_some).await?.clone();
    let first = first.context("the controller has no serving certificate")?;
    let tls = Arc::new(ServerTls::issued(&certificate(&first))?);
    let renewed = tls.clone();
    let renew = async move {
        while serving.changed().await.is_ok() {
            let newest = serving.borrow_and_update().clone();
            if let Some(Err(error)) = newest.map(|newest| renewed.replace(&certificate(&newest))) {
                tracing::error!("the certificate for proxies can't be renewed: {error}");
            }
        }
        std::future::pending().await
    };
    tokio::select! {
        result = acceptor.run(Some(tls)) => result,
        () = renew => Ok(()),
    }
}

fn certificate(serving: &ServingCertificate) -> IssuedCertificate {
    IssuedCertificate {
        chain: serving.chain.clone(),
        key: serving.key.clone(),
    }
}
