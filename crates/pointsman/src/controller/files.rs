//! A controller whose source is manifests.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use pointsman_control::Inbox;
use pointsman_wire::tls::ServerTls;

use super::{ControlPlane, by_certificate};
use crate::cli::Controller;
use crate::serving;

/// Runs the controller until a signal stops it.
pub fn run(arguments: &Controller) -> Result<ExitCode> {
    let permissions = arguments.permissions.permissions()?;
    let (source, first) = serving::read_manifests(&arguments.paths)?;
    let tls = arguments.tls.files().map(ServerTls::new).transpose()?;
    let tls = tls.map(Arc::new);
    let authorize = by_certificate(arguments)?;
    let inbox: Arc<Inbox> = Arc::default();
    let plane = ControlPlane::new(
        arguments,
        authorize,
        tls.is_some(),
        inbox.clone(),
        Arc::default(),
        None,
    )?;
    let (reloader, closing) = (source.reloader(), inbox.clone());
    serving::handle_signals(move || reloader.reload(), move || closing.close())?;

    let mut reconciler = plane.reconciler(permissions, arguments);
    reconciler.apply_changes(first);
    plane.runtime.spawn(plane.acceptor()?.run(tls));
    source.start(inbox.clone())?;
    reconciler.run(&inbox);

    plane.shut_down();
    Ok(ExitCode::SUCCESS)
}
