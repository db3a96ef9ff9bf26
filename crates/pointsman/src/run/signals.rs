//! Signals, on a thread of their own: they are heard whatever the rest is busy with.

use std::io;
use std::sync::Arc;

use pointsman_control::Inbox;
use pointsman_control::files::Reloader;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Handles signals: SIGHUP reloads, SIGTERM and SIGINT stop the reconciler, and a second one ends the process at once.
pub fn start(reloader: Reloader, inbox: Arc<Inbox>) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let listen = move || {
        let mut ending = false;
        for signal in signals.forever() {
            match signal {
                SIGHUP => reloader.reload(),
                _ if ending => {
                    tracing::warn!("a second signal: ending at once");
                    std::process::exit(1)
                }
                _ => {
                    ending = true;
                    inbox.close();
                }
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(listen)?;
    Ok(())
}
