//! The connection between a reconciler and a cluster, which starts all its parts together.

use std::sync::Arc;

use kube::Client;
use pointsman_control::{Inbox, StatusSink};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::events::{EventSink, Events};
use crate::gateways::{self, Applier, InfrastructureSink, Registry, Watches};
use crate::identity::authority::{CertificateRenewal, PublishedAuthority};
use crate::lease::{Candidate, Election, Holder};
use crate::requests::with_timeout;
use crate::{Metrics, Settings, Source, StatusWriter};

/// A connection to a cluster: objects arrive in an [`Inbox`], and [`StatusSink`]s receive statuses and Events. Dropping it stops all its parts.
pub struct Cluster {
    source: Source,
    metrics: Arc<Metrics>,
    is_leader: watch::Receiver<bool>,
    leader: watch::Receiver<Option<Holder>>,
    stop: watch::Sender<bool>,
    /// The election, which ends last: the Lease is released after the last write.
    election: JoinSet<()>,
    writers: JoinSet<()>,
    authority: Option<PublishedAuthority>,
    generated: Option<Generated>,
}

/// Objects that are generated for Gateways.
struct Generated {
    registry: Arc<Registry>,
    _watches: Watches,
}

impl Cluster {
    /// Connects to a cluster. Must be called within a tokio runtime. The sinks belong to the reconciler that empties the inbox.
    pub async fn start(
        client: Client,
        settings: &Settings,
        inbox: Arc<Inbox>,
    ) -> kube::Result<(Cluster, Vec<Box<dyn StatusSink>>)> {
        let client = with_timeout(client);
        let metrics: Arc<Metrics> = Arc::default();
        let events = Arc::new(Events::new(metrics.clone(), &settings.watch_namespaces));
        let source = Source::start(
            client.clone(),
            settings,
            inbox.clone(),
            events.clone(),
            metrics.clone(),
        );
        let source = source.await?;
        let (stop, stopped) = watch::channel(false);
        let state = Election::default();
        let (is_leader, leader) = (state.is_leader.subscribe(), state.holder.subscribe());
        let mut election = JoinSet::new();
        match &settings.lease {
            Some(lease) => {
                let own = (&*settings.instance, settings.address);
                let candidate = Candidate::new(client.clone(), lease, own, metrics.clone());
                let candidate = candidate.with_owner(settings.owner.clone());
                election.spawn(candidate.run(state, stopped));
            }
            None => drop(election.spawn(lead_alone(state.is_leader, stopped))),
        }
        let writer = StatusWriter::new(metrics.clone());
        let mut writers = JoinSet::new();
        let statuses = writer.clone();
        writers.spawn(statuses.run(client.clone(), is_leader.clone(), source.api()));
        let authority = settings.authority.clone().map(|authority| {
            let (renewal, published) =
                CertificateRenewal::new(client.clone(), authority, settings.owner.clone());
            writers.spawn(renewal.run(is_leader.clone()));
            published
        });
        let generated = match (&settings.infrastructure, &authority) {
            (Some(infrastructure), Some(authority)) => {
                let scopes = gateways::watch_scopes(&settings.watch_namespaces);
                let registry = Registry::new(inbox.clone(), scopes.iter().cloned());
                let registry = Arc::new(registry);
                let name = &settings.controller.name;
                let watches = Watches::start(&client, &registry, name, scopes);
                let applier = Applier::new(
                    client.clone(),
                    infrastructure.clone(),
                    registry.clone(),
                    authority.bundle.clone(),
                );
                writers.spawn(applier.run(is_leader.clone()));
                Some(Generated {
                    registry,
                    _watches: watches,
                })
            }
            _ => None,
        };
        let (controller, instance) = (&settings.controller.name, &settings.instance);
        writers.spawn(events.clone().run(
            client,
            is_leader.clone(),
            controller.clone(),
            instance.clone(),
        ));
        let cluster = Cluster {
            source,
            metrics,
            is_leader,
            leader,
            stop,
            election,
            writers,
            authority,
            generated,
        };
        Ok((cluster, vec![Box::new(writer), Box::new(EventSink(events))]))
    }

    /// Returns the source.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Returns the kinds that have not been listed yet; empty once the reconciler has everything.
    pub fn pending_watches(&self) -> Vec<String> {
        let mut pending_watches = self.source.pending_watches();
        let generated = self.generated.iter();
        pending_watches
            .extend(generated.flat_map(|generated| generated.registry.pending_watches()));
        pending_watches
    }

    /// Returns the sink for the objects to generate for Gateways, if this installation generates any.
    pub fn infrastructure_sink(&self) -> Option<InfrastructureSink> {
        let generated = self.generated.as_ref()?;
        Some(InfrastructureSink(generated.registry.clone()))
    }

    /// Returns the metrics of all parts.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Returns whether this process writes statuses.
    pub fn is_leader(&self) -> bool {
        *self.is_leader.borrow()
    }

    /// Returns the replica that writes statuses, if it is elected.
    pub fn leader(&self) -> watch::Receiver<Option<Holder>> {
        self.leader.clone()
    }

    /// Returns the certificate authority of the control plane, if the settings ask for one.
    pub fn authority(&self) -> Option<&PublishedAuthority> {
        self.authority.as_ref()
    }

    /// Stops writing and releases the Lease.
    pub async fn stop(mut self) {
        self.writers.shutdown().await;
        self.stop.send_replace(true);
        while self.election.join_next().await.is_some() {}
    }
}

/// Leads without an election, for a process without replicas.
async fn lead_alone(leads: watch::Sender<bool>, mut stopped: watch::Receiver<bool>) {
    leads.send_replace(true);
    // Ends when the value is true or the sender is dropped.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
