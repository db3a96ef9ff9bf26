//! Leader election by a Lease: of several replicas, one writes statuses. The others also serve proxies, and one of them takes over within seconds.
//!
//! Clocks of different machines are never compared: a Lease has expired when it has not changed for its duration, as measured locally.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use pointsman_control::clock;
use tokio::sync::watch;

use crate::{LeaseName, Metrics};

/// Name of the Lease of an installation.
pub const LEASE_NAME: &str = "pointsman-controller";

/// Duration of a Lease.
const DURATION: Duration = Duration::from_secs(5);
/// Time after which a holder that can't renew its Lease stops acting as leader, before others may take over.
const RENEW_DEADLINE: Duration = Duration::from_secs(4);
/// Interval between renewals, and between reads of a Lease held by another.
const INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of an attempt to acquire or renew. A leader's also ends at its deadline.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Annotation with the address at which the holder serves proxies and other replicas.
const ADDRESS: &str = "pointsman.io/address";

/// The holder of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Name of the replica.
    pub identity: Arc<str>,
    /// Address at which it serves proxies and other replicas; `None` if it publishes none.
    pub address: Option<SocketAddr>,
}

/// State of an election.
#[derive(Clone, Debug, Default)]
pub struct Election {
    /// True while this process holds the Lease.
    pub is_leader: watch::Sender<bool>,
    /// The holder, as last seen.
    pub holder: watch::Sender<Option<Holder>>,
}

/// A participant in an election.
pub struct Candidate {
    api: Api<Lease>,
    name: String,
    identity: String,
    owner: Option<OwnerReference>,
    /// Address that is published in a held Lease.
    address: Option<SocketAddr>,
    metrics: Arc<Metrics>,
    observed: Option<Observed>,
}

/// The Lease as last seen.
struct Observed {
    lease: Lease,
    /// Time of the last change of its spec.
    since: Instant,
}

impl Candidate {
    /// Creates a participant. `identity` must differ between replicas.
    pub fn new(
        client: Client,
        lease: &LeaseName,
        (identity, address): (&str, Option<SocketAddr>),
        metrics: Arc<Metrics>,
    ) -> Self {
        Candidate {
            api: Api::namespaced(client, &lease.namespace),
            name: lease.name.clone(),
            identity: identity.to_owned(),
            owner: None,
            address,
            metrics,
            observed: None,
        }
    }

    /// Sets the owner of a Lease that this participant creates.
    pub fn with_owner(mut self, owner: Option<OwnerReference>) -> Self {
        self.owner = owner;
        self
    }

    /// Takes part until `stop` is closed or true, and then releases a held Lease.
    pub async fn run(mut self, election: Election, mut stop: watch::Receiver<bool>) {
        let Election { is_leader, holder } = election;
        let mut renewed: Option<Instant> = None;
        loop {
            // Other replicas measure from the time when the Lease was written, which is later.
            let started = clock::instant();
            let timeout = until_deadline(renewed).map_or(TIMEOUT, |left| left.min(TIMEOUT));
            let attempt = tokio::time::timeout(timeout, self.acquire());
            match attempt.await {
                Ok(Ok(true)) => renewed = Some(started),
                Ok(Ok(false)) => renewed = None,
                Ok(Err(error)) => tracing::debug!("Lease {}: {error}", self.name),
                Err(_) => tracing::debug!("Lease {}: no response", self.name),
            }
            let seen = self.observed.as_ref();
            let seen = seen.and_then(|observed| holder_of(&observed.lease));
            holder.send_if_modified(|known| {
                *known != seen && {
                    *known = seen;
                    true
                }
            });
            let left = until_deadline(renewed).filter(|left| !left.is_zero());
            let leads = left.is_some();
            if !leads {
                renewed = None;
            }
            if is_leader.send_if_modified(|was| std::mem::replace(was, leads) != leads) {
                self.metrics.record_leadership(leads);
                let state = if leads { "leading" } else { "following" };
                tracing::info!("{state} by Lease {}", self.name);
            }
            tokio::select! {
                () = tokio::time::sleep(left.map_or(INTERVAL, |left| left.min(INTERVAL))) => {}
                () = stopped(&mut stop) => {
                    self.metrics.record_leadership(false);
                    is_leader.send_replace(false);
                    if leads {
                        self.release().await;
                    }
                    return;
                }
            }
        }
    }

    /// Acquires or renews the Lease. Returns whether it is held.
    async fn acquire(&mut self) -> kube::Result<bool> {
        let Some(lease) = self.api.get_opt(&self.name).await? else {
            let lease = self.lease(None);
            return self.write(lease, true).await;
        };
        self.observe(lease);
        let Some(observed) = &self.observed else {
            return Ok(false);
        };
        let held_for = clock::instant() - observed.since;
        match may_acquire(&observed.lease, &self.identity, held_for) {
            true => {
                let lease = self.lease(Some(&observed.lease));
                self.write(lease, false).await
            }
            false => Ok(false),
        }
    }

    fn observe(&mut self, lease: Lease) {
        // Other changes, such as of labels, prolong no Lease, but requests need the resource version that they lead to.
        let since = match &self.observed {
            Some(observed) if observed.lease.spec == lease.spec => observed.since,
            _ => clock::instant(),
        };
        self.observed = Some(Observed { lease, since });
    }

    /// Returns the Lease as this participant would hold it.
    fn lease(&self, before: Option<&Lease>) -> Lease {
        let now = Timestamp::from_microsecond(clock::unix_micros()).map(MicroTime);
        let now = now.ok();
        let spec = before.and_then(|before| before.spec.clone());
        let spec = spec.unwrap_or_default();
        let is_own = spec.holder_identity.as_deref() == Some(&self.identity);
        let transitions = spec.lease_transitions.unwrap_or_default();
        let metadata = before.map(|before| before.metadata.clone());
        let mut metadata = metadata.unwrap_or_else(|| ObjectMeta {
            name: Some(self.name.clone()),
            owner_references: self.owner.clone().map(|owner| vec![owner]),
            ..ObjectMeta::default()
        });
        let annotations = metadata.annotations.get_or_insert_default();
        match self.address {
            Some(address) => annotations.insert(ADDRESS.to_owned(), address.to_string()),
            // That of the last holder.
            None => annotations.remove(ADDRESS),
        };
        Lease {
            metadata,
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: Some(DURATION.as_secs() as i32),
                acquire_time: match is_own {
                    true => spec.acquire_time,
                    false => now.clone(),
                },
                renew_time: now,
                lease_transitions: Some(transitions + i32::from(!is_own)),
                ..LeaseSpec::default()
            }),
        }
    }

    /// Writes a Lease. Returns false after a conflict with another participant.
    async fn write(&mut self, lease: Lease, is_new: bool) -> kube::Result<bool> {
        let params = PostParams::default();
        let written = match is_new {
            true => self.api.create(&params, &lease).await,
            false => self.api.replace(&self.name, &params, &lease).await,
        };
        match written {
            Ok(lease) => {
                self.observe(lease);
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Releases the Lease, so that others need not wait for its expiry.
    async fn release(&mut self) {
        let Some(Observed { lease, .. }) = &self.observed else {
            return;
        };
        let mut lease = lease.clone();
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = None;
        }
        let released = tokio::time::timeout(RENEW_DEADLINE, self.write(lease, false)).await;
        if !matches!(released, Ok(Ok(true))) {
            tracing::warn!("Lease {} could not be released", self.name);
        }
    }
}

/// Returns the time until a leader that renewed its Lease at `renewed` has to step down.
fn until_deadline(renewed: Option<Instant>) -> Option<Duration> {
    let deadline = renewed? + RENEW_DEADLINE;
    Some(deadline.saturating_duration_since(clock::instant()))
}

/// Waits for the request to stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Ends when the value is true or the sender is dropped.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Returns the holder of a Lease.
fn holder_of(lease: &Lease) -> Option<Holder> {
    let identity = lease.spec.as_ref()?.holder_identity.as_deref()?;
    let annotations = lease.metadata.annotations.as_ref();
    let address = annotations.and_then(|all| all.get(ADDRESS)?.parse().ok());
    (!identity.is_empty()).then(|| Holder {
        identity: identity.into(),
        address,
    })
}

/// Decides whether a Lease can be acquired or renewed. `held_for` is the time since its last change.
fn may_acquire(lease: &Lease, identity: &str, held_for: Duration) -> bool {
    let Some(spec) = &lease.spec else { return true };
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.unwrap_or_default();
    let duration = Duration::from_secs(seconds.try_into().unwrap_or_default());
    holder.is_empty() || holder == identity || held_for > duration
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_known_with_the_address_that_it_publishes() {
        let lease = |holder: &str, address: Option<&str>| Lease {
            metadata: ObjectMeta {
                annotations: address.map(|text| [(ADDRESS.to_owned(), text.to_owned())].into()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                ..LeaseSpec::default()
            }),
        };
        let known = |holder, address| {
            let holder = holder_of(&lease(holder, address))?;
            Some((holder.identity.to_string(), holder.address))
        };
        let address = "[2001:db8::1]:15010";
        let parsed = address.parse().ok();
        assert_eq!(known("a", Some(address)), Some(("a".to_owned(), parsed)));
        assert_eq!(known("a", Some("elsewhere")), Some(("a".to_owned(), None)));
        assert_eq!(known("a", None), Some(("a".to_owned(), None)));
        assert_eq!(known("", Some(address)), None);
        assert_eq!(holder_of(&Lease::default()), None);
    }

    #[test]
    fn a_lease_is_acquired_when_it_is_free_own_or_expired() {
        let lease = |holder: Option<&str>| Lease {
            spec: Some(LeaseSpec {
                holder_identity: holder.map(str::to_owned),
                lease_duration_seconds: Some(5),
                ..LeaseSpec::default()
            }),
            ..Lease::default()
        };
        let after =
            |holder, seconds| may_acquire(&lease(holder), "a", Duration::from_secs(seconds));
        assert!(after(Some("a"), 0) && after(None, 0) && after(Some(""), 0));
        assert!(!after(Some("b"), 5));
        assert!(after(Some("b"), 6));
        assert!(may_acquire(&Lease::default(), "a", Duration::ZERO));
    }
}
