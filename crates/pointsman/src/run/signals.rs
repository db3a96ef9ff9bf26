//! Signal handling, on a separate thread so that signals are handled even while the control thread is busy.

use std::io;
use std::sync::Arc;

use pointsman_control::Inbox;
use pointsman_control::files::Reloader;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Handles signals: SIGHUP reloads, SIGTERM and SIGINT stop the reconciler, and a second one ends the process at once.
pub fn start(reloader: Reloader, inbox: Arc<Inbox>) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let run = move || {
        let mut stopping = false;
        for signal in signals.forever() {
            match signal {
                SIGHUP => reloader.reload(),
                _ if stopping => {
                    tracing::warn!("second signal received, exiting immediately");
                    std::process::exit(1)
                }
                _ => {
                    stopping = true;
                    inbox.close();
                }
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(run)?;
    Ok(())
}
