//! `run`: manifests in, traffic carried, what is said of them served.
//!
//! The main thread is the control side. It sleeps until something is heard: of a file ([`watch`]), of a signal ([`signals`]), or that
//! something is due. [`control`] carries a change through; [`ground`] knows who listens where, [`addresses`] who has which
//! address, [`mesh`] which Services and Pods are here, [`identities`] what proxies of a mesh show each other.
//! [`admin`] answers those who ask, on threads of its own, from a snapshot ([`state`]).

pub mod control;
mod signals;
pub mod state;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use pointsman_control::clock;
use pointsman_control::files::Files;
use pointsman_control::files::watch::{self, FileEvent};
use pointsman_proxy::placement::{AddressPolicy, Dataplanes, Listeners};
use pointsman_proxy::{Limits, Options, Proxy, SocketFactory};
use pointsman_resources::Severity;

use control::Control;
use state::Shared;

use crate::cli::Run;
use crate::{admin, output};

/// Something that was heard.
pub enum Event {
    /// Something happened to these paths.
    Touched(BTreeSet<PathBuf>),
    /// So much happened that not all of it was heard.
    Overflow,
    /// Everything is to be read again.
    Reload,
    /// It is time to end.
    Stop,
}

/// When nothing more is heard for so long, a burst is over.
const QUIET: Duration = Duration::from_millis(1);
/// A burst is gathered for so long at most.
const BURST: Duration = Duration::from_millis(10);
/// How often addresses and ports are asked for again that could not be had.
const AGAIN: Duration = Duration::from_secs(5);

/// Runs `run`.
pub fn run(arguments: &Run) -> Result<ExitCode> {
    log(arguments.quiet);
    let options = options(arguments)?;
    let (sender, events) = channel();
    let notify = sender.clone();
    let notify = move |event| {
        let event = match event {
            FileEvent::Touched(paths) => Event::Touched(paths),
            FileEvent::Overflow => Event::Overflow,
        };
        notify.send(event).is_ok()
    };
    let watcher = watch::start(Box::new(notify)).context("files can't be watched")?;
    let mut files = Files::new(&arguments.paths, Some(watcher));
    let first = files.scan(true);
    if !files.is_readable() {
        for finding in files.findings() {
            if finding.severity == Severity::Error {
                output::complain(&finding.to_string());
            }
        }
        bail!("nothing could be read: -f takes files and folders of manifests");
    }
    let shared = Arc::new(Shared::default());
    let admin = match arguments.admin {
        Some(address) => Some(admin::start(address, shared.clone()).with_context(|| {
            format!("the admin server can't listen on {address} (--admin says where)")
        })?),
        None => None,
    };
    shared.set_proxy(Proxy::start(options).context("the data plane can't be started")?);
    signals::start(sender)?;

    let choice = match arguments.address {
        Some(address) => AddressPolicy::Fixed(address),
        None => AddressPolicy::Pool(arguments.address_pool.clone()),
    };
    let dataplanes = Dataplanes(arguments.dataplanes.iter().cloned().collect());
    let listeners = Listeners::new(choice, arguments.port_offset, dataplanes);
    let mut control = Control::new(files, listeners, shared.clone());
    control.take(first);
    if !arguments.quiet {
        announce(&control, admin)?;
    }
    shared.set_ready(true);
    follow(&mut control, &shared, &events);

    shared.set_ready(false);
    tracing::info!("ending: what runs may go on for {:?}", arguments.drain);
    let mut proxy = shared.proxy();
    let cut = proxy
        .as_mut()
        .map_or(0, |proxy| proxy.drain(arguments.drain));
    if cut > 0 {
        tracing::warn!("{cut} connections were cut");
    }
    // What is still to be written, such as the access log, is.
    drop(proxy.take());
    Ok(ExitCode::from(u8::from(cut > 0)))
}

/// Follows what happens until it is time to end.
fn follow(control: &mut Control, shared: &Shared, events: &Receiver<Event>) {
    let mut again = clock::instant() + AGAIN;
    loop {
        let now = clock::instant();
        let retry = control.wants_more().then_some(again);
        let wake = control.due().into_iter().chain(retry).min();
        let event = match wake {
            Some(at) => events.recv_timeout(at.saturating_duration_since(now)),
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match event {
            Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(first) => {
                let heard = gather(first, events);
                if heard.stop {
                    return;
                }
                if heard.reload {
                    tracing::info!("reading everything again");
                    if let Some(proxy) = &*shared.proxy()
                        && let Err(error) = proxy.reopen_log()
                    {
                        tracing::warn!("the access log can't be opened anew: {error}");
                    }
                }
                let changed = match heard.reload || heard.overflow {
                    true => control.files().scan(heard.reload),
                    false => control.files().touch(&heard.paths),
                };
                control.take(changed);
                if heard.reload {
                    control.reread();
                    control.look_again();
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        control.let_go();
        if clock::instant() >= again {
            if control.wants_more() {
                control.look_again();
            }
            again = clock::instant() + AGAIN;
        }
    }
}

#[derive(Default)]
struct Heard {
    paths: BTreeSet<PathBuf>,
    overflow: bool,
    reload: bool,
    stop: bool,
}

impl Heard {
    fn take(&mut self, event: Event) {
        match event {
            Event::Touched(paths) => self.paths.extend(paths),
            Event::Overflow => self.overflow = true,
            Event::Reload => self.reload = true,
            Event::Stop => self.stop = true,
        }
    }
}

/// Waits until a burst is over: what is written together is put in effect together.
fn gather(first: Event, events: &Receiver<Event>) -> Heard {
    let mut heard = Heard::default();
    heard.take(first);
    let end: Instant = clock::instant() + BURST;
    loop {
        let left = end.saturating_duration_since(clock::instant());
        match events.recv_timeout(left.min(QUIET)) {
            Ok(event) => heard.take(event),
            Err(_) => return heard,
        }
        if left.is_zero() || heard.stop {
            return heard;
        }
    }
}

fn announce(control: &Control, admin: Option<SocketAddr>) -> Result<()> {
    let mut text = control.places_text().join("\n");
    if text.is_empty() {
        text = "nothing to listen on yet: no Gateway of a GatewayClass with controllerName pointsman.io/controller, no Service with a clusterIP of this machine, and no \
                Dataplane of Kuma's (of those that --dataplane names)"
            .to_owned();
    }
    if let Some(address) = admin {
        text += &format!("\nadmin on http://{address}/");
    }
    output::print(&(text + "\n"))
}

fn options(arguments: &Run) -> Result<Options> {
    let mut limits = Limits::default();
    for (name, value) in &arguments.limits {
        if let Err(why) = limits.set(name, value) {
            bail!("--limit {name}={value}: {why}");
        }
    }
    Ok(Options {
        workers: arguments.workers.map(usize::from),
        limits,
        trusted_proxies: arguments.trusted_proxies.clone(),
        access_log: arguments.access_log.clone(),
        sockets: SocketFactory::default(),
    })
}

/// Logs to standard error what `RUST_LOG` asks for: by default our own few lines, and what others warn of.
fn log(quiet: bool) {
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
        output::complain(&format!("pointsman: nothing is logged: {error}"));
    }
}
