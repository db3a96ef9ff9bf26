//! The command `run`: a standalone proxy that is configured by manifests.
//!
//! Connects the file source to the reconciler, and the reconciler to a data plane in this process ([`InProcessSink`]). The main thread reconciles. Separate
//! threads read files, handle signals and run the admin server.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use pointsman_control::{Inbox, Reconciler, Snapshots, status_log};
use pointsman_proxy::SocketFactory;

use crate::admin::AdminState;
use crate::cli::Run;
use crate::in_process::{InProcessSink, lock};
use crate::{logging, serving};

/// Runs `run` until a signal stops it.
pub fn run(arguments: &Run) -> Result<ExitCode> {
    logging::start(arguments.quiet);
    let mut permissions = arguments.permissions.permissions()?;
    let options = arguments.data_plane.options()?;
    let (source, first) = serving::read_manifests(&arguments.paths)?;
    let admin = serving::bind_admin(&arguments.admin)?;
    let admin_address = admin.admin_address();
    let own = admin.own();
    Arc::make_mut(&mut permissions.endpoints).refuse_own(&own);
    let sockets = SocketFactory::default().without_own(own);
    let endpoints = permissions.endpoints.clone();
    let placement = arguments.data_plane.placement();
    let data_plane = serving::start_data_plane(options, placement, endpoints, sockets)?;
    let snapshots: Arc<Snapshots> = Arc::default();
    let paths = arguments.data_plane.path_policy;
    let state = Arc::new(AdminState::of_run(snapshots.clone(), &data_plane, paths));
    admin.start(&state, &arguments.admin)?;
    let inbox: Arc<Inbox> = Arc::default();
    let (reloader, closing) = (source.reloader(), inbox.clone());
    serving::handle_signals(move || reloader.reload(), move || closing.close())?;

    let reports = inbox.clone();
    data_plane.on_report(move || {
        // Reports are dropped once the inbox is closed.
        let _ = reports.merge(|update| update.has_reports = true);
    });
    let data_plane = Arc::new(Mutex::new(data_plane));
    let sink = InProcessSink(data_plane.clone());
    let mut reconciler = Reconciler::new(vec![Box::new(sink)], snapshots.clone())
        .with_permissions(permissions)
        .with_effect_on_commit();
    reconciler.apply_changes(first);
    if !arguments.quiet {
        let mut listeners = lock(&data_plane).describe().join("\n");
        if listeners.is_empty() {
            listeners = format!(
                "not listening: {}",
                status_log::idle_reason(&snapshots.latest())
            );
        }
        serving::announce(&listeners, admin_address)?;
    }
    state.set_ready(true);
    source.start(inbox.clone())?;
    reconciler.run(&inbox);

    state.set_ready(false);
    drop(reconciler);
    // Dropping the data plane flushes the access log.
    Ok(serving::drain(
        &mut lock(&data_plane),
        &arguments.data_plane,
    ))
}
