//! Backends that are named by a DNS name: their addresses, looked up off the request path.
//!
//! A [`Resolver`] has a thread of its own. It is told which names are wanted and tells when the addresses of one change. A name is looked up again
//! when what is known of it has lived as long as its records say. What fails keeps what was known, and is tried again, each time a little later.

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

/// How long an answer is used at least and at most, whatever its records say.
const MIN_TTL: Duration = Duration::from_secs(1);
const MAX_TTL: Duration = Duration::from_secs(300);

/// How long is waited after the first failure; twice as long after each further one, but never longer than this.
const MIN_RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(30);

/// Hears of a name's addresses.
type OnChange = dyn Fn(&Arc<str>, Vec<IpAddr>);

/// Names that are wanted.
type Names = BTreeSet<Arc<str>>;

/// Keeps the addresses of names up to date. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Resolver {
    /// None only while it ends.
    wanted: Option<watch::Sender<Names>>,
    thread: Option<JoinHandle<()>>,
}

impl Resolver {
    /// Starts with no names. `changed` is called on the resolver's own thread whenever a name has other addresses than before, in order and each
    /// once; it must not drop the resolver.
    pub(crate) fn start(
        changed: impl Fn(&Arc<str>, Vec<IpAddr>) + Send + 'static,
    ) -> io::Result<Resolver> {
        Resolver::with_source(LookupSource::system, changed)
    }

    fn with_source(
        source: impl FnOnce() -> LookupSource + Send + 'static,
        changed: impl Fn(&Arc<str>, Vec<IpAddr>) + Send + 'static,
    ) -> io::Result<Resolver> {
        let (wanted, names) = watch::channel(Names::new());
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
            wanted: Some(wanted),
            thread: Some(thread),
        })
    }

    /// These names are wanted from now on, and no others. One that was not wanted before is looked up at once.
    pub(crate) fn set_names(&self, names: Names) {
        if let Some(wanted) = &self.wanted {
            wanted.send_if_modified(|old| {
                let other = *old != names;
                *old = names;
                other
            });
        }
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.wanted = None;
        if let Some(thread) = self.thread.take() {
            // It has no way to panic that is worth telling here.
            let _ = thread.join();
        }
    }
}

/// Looks after one name for each that is wanted, until nobody can want any.
async fn refresh_names(mut names: watch::Receiver<Names>, refresher: Rc<Refresher>) {
    let mut tasks: BTreeMap<Arc<str>, AbortHandle> = BTreeMap::new();
    loop {
        {
            let wanted = names.borrow_and_update();
            tasks.retain(|name, task| {
                let keep = wanted.contains(name);
                if !keep {
                    task.abort();
                }
                keep
            });
            for name in wanted.iter() {
                tasks.entry(name.clone()).or_insert_with(|| {
                    spawn_local(refresher.clone().refresh_forever(name.clone())).abort_handle()
                });
            }
        }
        if names.changed().await.is_err() {
            return;
        }
    }
}

/// What all names share.
struct Refresher {
    source: LookupSource,
    changed: Box<OnChange>,
}

impl Refresher {
    /// Keeps one name up to date, for ever.
    async fn refresh_forever(self: Rc<Self>, name: Arc<str>) {
        let mut state = NameState::default();
        loop {
            let (v4, v6) = self.source.look_up(&name).await;
            let refresh = state.update([v4, v6]);
            if let Some(addresses) = refresh.changed {
                tracing::debug!(%name, ?addresses, "a backend's name has other addresses");
                (self.changed)(&name, addresses);
            }
            if let Some(error) = refresh.failed {
                tracing::warn!(%name, %error, "a backend's name can't be looked up; what is state of it stays");
            }
            tokio::time::sleep(refresh.wait).await;
        }
    }
}

/// What is known of a name.
#[derive(Debug, Default)]
struct NameState {
    /// Its addresses of either family.
    families: [Vec<IpAddr>; 2],
    /// What was told of them.
    reported: Vec<IpAddr>,
    /// Tries since one succeeded.
    failures: u32,
}

/// What comes of an answer.
struct Refresh {
    /// The addresses, if they are others than before.
    changed: Option<Vec<IpAddr>>,
    /// The first failure after a success.
    failed: Option<String>,
    /// How long to wait for the next try.
    wait: Duration,
}

impl NameState {
    /// Takes the answers for both families. A family whose question failed keeps what it had; so does a name that has no address at all any more:
    /// that is far more often a mistake in its zone than meant.
    fn update(&mut self, answers: [DnsResponse; 2]) -> Refresh {
        let mut min_ttl = MAX_TTL;
        let mut error = None;
        let mut families = self.families.clone();
        for (family, answer) in families.iter_mut().zip(answers) {
            match answer {
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
