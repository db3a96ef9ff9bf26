//! Leader election on a cluster. `scripts/test-kubernetes` runs these tests.

mod common;

use std::sync::Arc;

use common::{Cluster, eventually};
use pointsman_kube::LeaseName;
use pointsman_kube::lease::Candidate;
use tokio::sync::watch;
use tokio::task::JoinHandle;

struct Replica {
    is_leader: watch::Receiver<bool>,
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
        let candidate = Candidate::new(client, &lease, identity, Arc::default());
        let (sender, is_leader) = watch::channel(false);
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(candidate.run(sender, stopped));
        Replica {
            is_leader,
            stop,
            task,
        }
    }

    fn leads(&self) -> bool {
        *self.is_leader.borrow()
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
    // It ends without releasing the Lease.
    first.task.abort();
    eventually("its Lease expires", async || second.leads()).await;
    let third = Replica::start(&cluster, "third");
    second.stop.send_replace(true);
    second.task.await.expect("it ends");
    assert!(!*second.is_leader.borrow());
    eventually("it was released", async || third.leads()).await;
    cluster.clean_up().await;
}
