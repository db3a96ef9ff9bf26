//! Leader election by a Lease: of several replicas, one writes statuses. The others also serve proxies, and one of them takes over within seconds.
//!
//! Clocks of different machines are never compared: a Lease has expired when it has not changed for its duration, as measured locally.

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

/// Duration of a Lease.
const DURATION: Duration = Duration::from_secs(5);
/// Time after which a holder that can't renew its Lease stops acting as leader, before others may take over.
const RENEW_DEADLINE: Duration = Duration::from_secs(4);
/// Interval between renewals, and between reads of a Lease held by another.
const INTERVAL: Duration = Duration::from_secs(1);

/// A participant in an election.
pub struct Candidate {
    api: Api<Lease>,
    name: String,
    identity: String,
    owner: Option<OwnerReference>,
    metrics: Arc<Metrics>,
    observed: Option<Observed>,
}

/// The Lease as last seen.
struct Observed {
    lease: Lease,
    /// Time of its last change.
    since: Instant,
}

impl Candidate {
    /// Creates a participant. `identity` must differ between replicas.
    pub fn new(client: Client, lease: &LeaseName, identity: &str, metrics: Arc<Metrics>) -> Self {
        Candidate {
            api: Api::namespaced(client, &lease.namespace),
            name: lease.name.clone(),
            identity: identity.to_owned(),
            owner: None,
            metrics,
            observed: None,
        }
    }

    /// Sets the owner of a Lease that this participant creates.
    pub fn with_owner(mut self, owner: Option<OwnerReference>) -> Self {
        self.owner = owner;
        self
    }

    /// Takes part until `stop` is closed or true, and then releases a held Lease. `is_leader` has the current state.
    pub async fn run(mut self, is_leader: watch::Sender<bool>, mut stop: watch::Receiver<bool>) {
        let mut renewed: Option<Instant> = None;
        loop {
            // Other replicas measure from the time when the Lease was written, which is later.
            let started = clock::instant();
            let attempt = tokio::time::timeout(RENEW_DEADLINE - INTERVAL, self.acquire());
            match attempt.await {
                Ok(Ok(true)) => renewed = Some(started),
                Ok(Ok(false)) => renewed = None,
                Ok(Err(error)) => tracing::debug!("Lease {}: {error}", self.name),
                Err(_) => tracing::debug!("Lease {}: no response", self.name),
            }
            let expires = renewed.map(|renewed| renewed + RENEW_DEADLINE);
            let leads = expires.is_some_and(|expires| clock::instant() < expires);
            if is_leader.send_if_modified(|was| std::mem::replace(was, leads) != leads) {
                self.metrics.record_leadership(leads);
                let state = if leads { "leading" } else { "following" };
                tracing::info!("{state} by Lease {}", self.name);
            }
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
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
        let is_same = |observed: &Observed| observed.lease.spec == lease.spec;
        if !self.observed.as_ref().is_some_and(is_same) {
            let since = clock::instant();
            self.observed = Some(Observed { lease, since });
        }
    }

    /// The Lease as this participant would hold it.
    fn lease(&self, before: Option<&Lease>) -> Lease {
        let now = Timestamp::from_microsecond(clock::unix_micros()).map(MicroTime);
        let now = now.ok();
        let spec = before.and_then(|before| before.spec.clone());
        let spec = spec.unwrap_or_default();
        let is_own = spec.holder_identity.as_deref() == Some(&self.identity);
        let transitions = spec.lease_transitions.unwrap_or_default();
        let metadata = before.map(|before| before.metadata.clone());
        Lease {
            metadata: metadata.unwrap_or_else(|| ObjectMeta {
                name: Some(self.name.clone()),
                owner_references: self.owner.clone().map(|owner| vec![owner]),
                ..ObjectMeta::default()
            }),
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

/// Waits for the request to stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Ends when the value is true or the sender is dropped.
    let _ = stop.wait_for(|stop| *stop).await;
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
