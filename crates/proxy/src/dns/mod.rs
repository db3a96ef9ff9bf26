//! Resolution of backends' DNS names, off the request path.
//!
//! A [`Resolver`] runs on its own thread. It keeps the addresses of a set of names up to date and reports each change. A name is resolved again when the TTL of
//! its records has elapsed. A failed lookup keeps the known addresses in effect and is retried with increasing delays.

mod lookup;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{AbortHandle, LocalSet, spawn_local};

use lookup::{DnsResponse, LookupSource};

/// Bounds of the time for which records are used, regardless of their TTL.
const MIN_TTL: Duration = Duration::from_secs(1);
const MAX_TTL: Duration = Duration::from_secs(300);

/// Bounds of the delay after a failure. It doubles with each further failure.
const MIN_RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(30);

/// Called with the new addresses of a name.
type OnChange = dyn Fn(&Arc<str>, Vec<IpAddr>);

/// Names to resolve.
type Names = BTreeSet<Arc<str>>;

/// Keeps the addresses of names up to date. Dropping it stops its thread.
#[derive(Debug)]
pub(crate) struct Resolver {
    /// `None` only while it stops.
    names: Option<watch::Sender<Names>>,
    thread: Option<JoinHandle<()>>,
}

impl Resolver {
    /// Starts without names. `changed` is called on the resolver's thread with each change of a name's addresses, in order; it must not drop the resolver.
    pub(crate) fn start(
        changed: impl Fn(&Arc<str>, Vec<IpAddr>) + Send + 'static,
    ) -> io::Result<Resolver> {
        Resolver::with_source(LookupSource::system, changed)
    }

    fn with_source(
        source: impl FnOnce() -> LookupSource + Send + 'static,
        changed: impl Fn(&Arc<str>, Vec<IpAddr>) + Send + 'static,
    ) -> io::Result<Resolver> {
        let (sender, names) = watch::channel(Names::new());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let run = move || {
            let refresher = Refresher {
                source: source(),
                changed: Box::new(changed),
            };
            LocalSet::new().block_on(&runtime, refresh_names(names, Rc::new(refresher)));
        };
        let thread = thread::Builder::new().name("dns".to_owned()).spawn(run)?;
        Ok(Resolver {
            names: Some(sender),
            thread: Some(thread),
        })
    }

    /// Replaces the set of names. New names are resolved at once.
    pub(crate) fn set_names(&self, names: Names) {
        if let Some(sender) = &self.names {
            sender.send_if_modified(|old| {
                let changed = *old != names;
                *old = names;
                changed
            });
        }
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.names = None;
        if let Some(thread) = self.thread.take() {
            // The thread does not panic.
            let _ = thread.join();
        }
    }
}

/// Runs one task per name, until the resolver is dropped.
async fn refresh_names(mut receiver: watch::Receiver<Names>, refresher: Rc<Refresher>) {
    let mut tasks: BTreeMap<Arc<str>, AbortHandle> = BTreeMap::new();
    loop {
        {
            let names = receiver.borrow_and_update();
            tasks.retain(|name, task| {
                let keep = names.contains(name);
                if !keep {
                    task.abort();
                }
                keep
            });
            for name in names.iter() {
                tasks.entry(name.clone()).or_insert_with(|| {
                    spawn_local(refresher.clone().refresh_forever(name.clone())).abort_handle()
                });
            }
        }
        if receiver.changed().await.is_err() {
            return;
        }
    }
}

/// Resources shared by the tasks.
struct Refresher {
    source: LookupSource,
    changed: Box<OnChange>,
}

impl Refresher {
    /// Keeps one name up to date.
    async fn refresh_forever(self: Rc<Self>, name: Arc<str>) {
        let mut state = NameState::default();
        loop {
            let (v4, v6) = self.source.look_up(&name).await;
            let refresh = state.update([v4, v6]);
            if let Some(addresses) = refresh.changed {
                tracing::debug!(%name, ?addresses, "the addresses of a backend's DNS name changed");
                (self.changed)(&name, addresses);
            }
            if let Some(error) = refresh.failed {
                tracing::warn!(%name, %error, "can't resolve a backend's DNS name; its known addresses stay in effect");
            }
            tokio::time::sleep(refresh.wait).await;
        }
    }
}

/// State of a name.
#[derive(Debug, Default)]
struct NameState {
    /// IPv4 and IPv6 addresses.
    families: [Vec<IpAddr>; 2],
    /// Addresses as last reported.
    reported: Vec<IpAddr>,
    /// Consecutive failures.
    failures: u32,
}

/// The result of updating a name.
struct Refresh {
    /// The addresses, if they changed.
    changed: Option<Vec<IpAddr>>,
    /// The error, if it is the first one after a success.
    failed: Option<String>,
    /// Time until the next lookup.
    wait: Duration,
}

impl NameState {
    /// Applies the responses for both address families. A family whose lookup failed keeps its addresses. So does a name that has no addresses any more,
    /// because that is usually a mistake in its zone.
    fn update(&mut self, responses: [DnsResponse; 2]) -> Refresh {
        let mut min_ttl = MAX_TTL;
        let mut error = None;
        let mut families = self.families.clone();
        for (family, response) in families.iter_mut().zip(responses) {
            match response {
                DnsResponse::Addresses(addresses, ttl) => {
                    *family = addresses;
                    min_ttl = min_ttl.min(ttl);
                }
                DnsResponse::NoRecords => family.clear(),
                DnsResponse::Failed(why) => error = Some(why),
            }
        }
        let mut all: Vec<IpAddr> = families.iter().flatten().copied().collect();
        all.sort();
        all.dedup();
        if all.is_empty() {
            error.get_or_insert_with(|| "there are no addresses".to_owned());
        } else {
            self.families = families;
        }
        let changed = (!all.is_empty() && all != self.reported).then(|| {
            self.reported = all.clone();
            all
        });
        let mut wait = min_ttl.max(MIN_TTL);
        match &error {
            None => self.failures = 0,
            Some(_) => {
                wait = wait
                    .min(MIN_RETRY * 2u32.saturating_pow(self.failures.min(16)))
                    .min(MAX_RETRY);
                self.failures += 1;
            }
        }
        Refresh {
            changed,
            failed: error.filter(|_| self.failures == 1),
            wait,
        }
    }
}
