//! Leader election on a cluster. `scripts/test-kubernetes` runs these tests.

mod common;

use std::sync::Arc;

use common::{Cluster, eventually};
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
        let lease = LeaseName {
            namespace: cluster.namespace.clone(),
            name: "pointsman".to_owned(),
        };
        let client = cluster.client.clone();
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
    tokio::time::sleep(std::time::Duration::from_secs(7)).await;
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
