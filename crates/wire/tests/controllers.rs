//! Two controllers that exchange what their proxies report, over the network.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pointsman_binding::bound::AddressRequest;
use pointsman_binding::{Change, Delta, Observation, OwnServers};
use pointsman_resources::{Age, Name};
use pointsman_wire::client::{Client, ClientOptions, Commit, Replica, ReportQueue, TokenFile};
use pointsman_wire::server::{
    self, AuthorizeController, CredentialValidity, FollowOptions, Leader, Peer, Refusal, Server,
    Subscription,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Accepts controllers with the token `controller`.
fn authorize() -> AuthorizeController {
    let decide = |peer: &Peer| match peer.token.as_ref().map(|token| token.secret()) {
        Some("controller") => Ok(CredentialValidity::default()),
        other => Err(Refusal::Forbidden(format!("not a controller: {other:?}"))),
    };
    Arc::new(move |peer| Box::pin(std::future::ready(decide(&peer))))
}

fn edge() -> Name {
    Name::new("infra", "edge")
}

struct Controller {
    server: Arc<Server>,
    address: SocketAddr,
    tasks: Vec<JoinHandle<()>>,
}

impl Controller {
    fn start(name: &str) -> Controller {
        let permit = server::authorize_by_certificate(|_| Subscription::Everything);
        let server = Server::new(name.to_owned(), permit, || {});
        let server = Arc::new(server.with_controllers(name.into(), authorize()));
        let request = AddressRequest {
            gateway: edge(),
            proxy: None,
            age: Age::At(0),
            addresses: Vec::new(),
            any: true,
            invalid: None,
        };
        let mut delta = Delta::default();
        delta.gateways.push((edge(), Some(Arc::new(request))));
        server.apply(server::encode_all(&delta));
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = server::bind(any, false).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let accept = server::accept(listener, server.clone(), None);
        Controller {
            server,
            address,
            tasks: vec![tokio::spawn(async { drop(accept.await) })],
        }
    }

    fn leader(&self) -> Leader {
        Leader {
            name: self.server.name().clone(),
            address: Some(self.address),
        }
    }

    fn follow(&mut self, token: &Path, leader: &watch::Sender<Option<Leader>>) {
        let options = FollowOptions {
            url: "http://127.0.0.1:1".parse().expect("a URL"),
            tls: Box::new(|| None),
            token: Some(TokenFile::new(token.to_owned())),
        };
        let follow = server::follow(self.server.clone(), options, leader.subscribe());
        self.tasks.push(tokio::spawn(follow));
    }

    /// Starts a proxy that has an address.
    fn proxy(&self, name: &str, address: [u8; 4]) {
        let (sender, mut commits) = mpsc::channel::<Commit>(1);
        let options = ClientOptions {
            control_planes: vec![format!("http://{}", self.address).parse().expect("a URL")],
            name: name.to_owned(),
            software: "test".to_owned(),
            tls: None,
            token: None,
            cache: None,
            subscription: Subscription::Everything,
            own_servers: OwnServers::default(),
            control_plane_servers: watch::Sender::default(),
        };
        let reports: Arc<ReportQueue> = Arc::default();
        let seen = Observation {
            addresses: vec![address.into()],
            ..Observation::default()
        };
        reports.put(vec![Change::Observe(edge(), Some(seen))]);
        tokio::spawn(Client::new(options, Replica::default(), reports, sender).run());
        tokio::spawn(async move {
            while let Some(commit) = commits.recv().await {
                let _ = commit.applied.send(());
            }
        });
    }

    fn proxies(&self) -> Vec<String> {
        let proxies = self.server.proxies().into_iter();
        let proxies = proxies.filter(|proxy| proxy.lag.is_none());
        proxies
            .map(|p| format!("{}@{}", p.name, p.controller))
            .collect()
    }

    /// The last reported number of addresses of the Gateway.
    fn addresses(&self, last: &mut usize) -> usize {
        for change in self.server.take_reports() {
            if let Change::Observe(_, seen) = change {
                *last = seen.map_or(0, |seen| seen.addresses.len());
            }
        }
        *last
    }

    /// Ends without a word, as a crash does.
    fn crash(self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not in time: {what}");
}

#[tokio::test]
async fn each_controller_lists_the_proxies_of_all_and_merges_their_reports() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    fs::write(&token, "controller").expect("written");
    let (mut one, mut other) = (Controller::start("one"), Controller::start("other"));
    let leader = watch::Sender::new(Some(one.leader()));
    one.follow(&token, &leader);
    other.follow(&token, &leader);
    one.proxy("edge-1", [192, 0, 2, 1]);
    other.proxy("edge-2", [192, 0, 2, 2]);
    let all = ["edge-1@one", "edge-2@other"];
    let (mut first, mut second) = (0, 0);
    until("both know both proxies", || {
        one.proxies() == all && other.proxies() == all
    })
    .await;
    until("both know the addresses of both", || {
        one.addresses(&mut first) == 2 && other.addresses(&mut second) == 2
    })
    .await;
    assert_eq!(other.server.controllers_error(), None);

    // Another leader.
    leader.send_replace(Some(other.leader()));
    until("the old leader follows", || {
        one.server.controllers().iter().all(|c| c.is_connected)
            && one.server.open_controller_streams() == 1
    })
    .await;
    one.proxy("edge-3", [192, 0, 2, 3]);
    until("the new leader knows its proxies", || {
        other.proxies() == ["edge-1@one", "edge-2@other", "edge-3@one"]
    })
    .await;

    // A controller that shuts down says so.
    one.server.shut_down();
    until("it is forgotten", || other.server.controllers().is_empty()).await;
    one.crash();
}

#[tokio::test]
async fn a_controller_that_crashes_is_expected_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    fs::write(&token, "controller").expect("written");
    let one = Controller::start("one");
    let mut other = Controller::start("other");
    let leader = watch::Sender::new(Some(one.leader()));
    other.follow(&token, &leader);
    until("the leader knows it", || {
        one.server.controllers().iter().any(|c| c.is_connected)
    })
    .await;
    other.crash();
    until("it is lost", || {
        one.server.controllers().iter().any(|c| !c.is_connected)
    })
    .await;
    assert!(one.server.has_expiring_reports(), "it will be forgotten");
    let mut again = Controller::start("other");
    again.follow(&token, &leader);
    until("it is back", || {
        one.server.controllers().iter().all(|c| c.is_connected)
    })
    .await;
    again.crash();
}

#[tokio::test]
async fn only_controllers_may_exchange_reports() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    fs::write(&token, "proxy").expect("written");
    let (one, mut other) = (Controller::start("one"), Controller::start("other"));
    let leader = watch::Sender::new(Some(one.leader()));
    other.follow(&token, &leader);
    until("it is refused", || {
        other.server.controllers_error().is_some()
    })
    .await;
    let error = other.server.controllers_error().unwrap_or_default();
    assert!(
        error.contains("the leader one: not a controller"),
        "{error}"
    );
    assert!(one.server.controllers().is_empty());
    assert!(one.server.refusals() > 0, "it is counted");
}
