//! Leader election on a cluster. `scripts/test-kubernetes` runs these tests.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::link::Link;
use common::{Cluster, eventually};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use pointsman_kube::LeaseName;
use pointsman_kube::lease::{Candidate, Election, Holder};
use tokio::sync::watch;
use tokio::task::JoinHandle;

struct Replica {
    election: Election,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Replica {
    fn start(cluster: &Cluster, identity: &str) -> Replica {
        Replica::with_client(cluster, cluster.client.clone(), identity)
    }

    fn with_client(cluster: &Cluster, client: Client, identity: &str) -> Replica {
        let lease = LeaseName {
            namespace: cluster.namespace.clone(),
            name: "pointsman".to_owned(),
        };
        let address = format!("{identity}:1")
            .replace("first", "192.0.2.1")
            .parse()
            .ok();
        let candidate = Candidate::new(client, &lease, (identity, address), Arc::default());
        let election = Election::default();
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(candidate.run(election.clone(), stopped));
        Replica {
            election,
            stop,
            task,
        }
    }

    fn leads(&self) -> bool {
        *self.election.is_leader.borrow()
    }

    /// The holder and whether it publishes an address.
    fn holder(&self) -> Option<(String, bool)> {
        let holder = self.election.holder.borrow();
        let name = |holder: &Holder| (holder.identity.to_string(), holder.address.is_some());
        holder.as_ref().map(name)
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn one_replica_leads_and_another_takes_over() {
    let cluster = Cluster::new("lease").await;
    let first = Replica::start(&cluster, "first");
    eventually("it leads", async || first.leads()).await;
    let second = Replica::start(&cluster, "second");
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(first.leads() && !second.leads(), "the Lease is renewed");
    assert_eq!(second.holder(), Some(("first".to_owned(), true)));
    // It ends without releasing the Lease.
    first.task.abort();
    eventually("its Lease expires", async || second.leads()).await;
    assert_eq!(second.holder(), Some(("second".to_owned(), false)));
    let third = Replica::start(&cluster, "third");
    second.stop.send_replace(true);
    second.task.await.expect("it ends");
    assert!(!*second.election.is_leader.borrow());
    eventually("it was released", async || third.leads()).await;
    cluster.clean_up().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn a_leader_stays_one_when_somebody_labels_its_lease() {
    let cluster = Cluster::new("lease-label").await;
    let first = Replica::start(&cluster, "first");
    eventually("it leads", async || first.leads()).await;
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let label = serde_json::json!({"metadata": {"labels": {"team": "edge"}}});
    let (params, label) = (PatchParams::default(), Patch::Merge(label));
    let labelled = leases.patch("pointsman", &params, &label).await;
    labelled.expect("the Lease exists");
    let mut losses = first.election.is_leader.subscribe();
    losses.mark_unchanged();
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(!losses.has_changed().expect("it runs") && first.leads());
    let lease = leases.get("pointsman").await.expect("the Lease exists");
    let labels = lease.metadata.labels.unwrap_or_default();
    assert_eq!(labels["team"], "edge", "the label stays");
    cluster.clean_up().await;
}

// Others may take over 5 s after the last renewal.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster"]
async fn a_leader_without_responses_steps_down_before_others_take_over() {
    let cluster = Cluster::new("lease-stall").await;
    let link = Link::start().await;
    let first = Replica::with_client(&cluster, link.client(), "first");
    eventually("it leads", async || first.leads()).await;
    let second = Replica::start(&cluster, "second");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    link.stall();
    let stalled = pointsman_control::clock::instant();
    while first.leads() {
        assert!(!second.leads(), "both lead");
        assert!(stalled.elapsed() < Duration::from_millis(4500));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    eventually("its Lease expires", async || second.leads()).await;
    assert!(!first.leads());
    cluster.clean_up().await;
}
