//! Signals, on a thread of their own: they are heard whatever the rest is busy with.

use std::io;
use std::sync::mpsc::Sender;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Event;

/// Starts to listen for signals. The second that asks for the end is one: who sends it does not want to wait.
pub fn start(events: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let listen = move || {
        let mut ending = false;
        for signal in signals.forever() {
            let event = match signal {
                SIGHUP => Event::Reload,
                _ if ending => {
                    tracing::warn!("a second signal: ending at once");
                    std::process::exit(1)
                }
                _ => {
                    ending = true;
                    Event::Stop
                }
            };
            if events.send(event).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(listen)?;
    Ok(())
}
