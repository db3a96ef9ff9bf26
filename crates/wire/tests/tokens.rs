//! Identity by token: proxies without a certificate, over TLS with a certificate that the control plane has issued.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pointsman_binding::bound::AddressRequest;
use pointsman_binding::{Delta, OwnServers};
use pointsman_resources::{Age, Name};
use pointsman_test_support::certificates::Authority;
use pointsman_wire::client::{Client, ClientOptions, Commit, Replica, StateReader, TokenFile};
use pointsman_wire::server::{
    self, Authorize, CredentialValidity, Grant, Peer, PermissionCheck, ProxyName, Refusal, Server,
    Subscription,
};
use pointsman_wire::tls::{ClientTls, IssuedCertificate, ServerTls};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Issues the control plane's certificate.
fn issue(authority: &Authority) -> IssuedCertificate {
    let issued = authority.issue(&["127.0.0.1"]);
    IssuedCertificate {
        chain: vec![issued.der().to_vec()],
        key: issued.key_der().secret_der().to_vec(),
    }
}

/// Accepts tokens of the form `GATEWAY`, and `GATEWAY:MILLISECONDS` for that time.
fn authorize() -> Authorize {
    let decide = |peer: &Peer| {
        let token = peer.token.as_ref();
        let token = token.ok_or_else(|| Refusal::Unauthenticated("no token".to_owned()))?;
        let (gateway, lifetime) = match token.secret().split_once(':') {
            Some((gateway, millis)) => (gateway, Some(millis.parse().expect("a number"))),
            None => (token.secret(), None),
        };
        if gateway == "expired" {
            return Err(Refusal::Unauthenticated("it expired 5 s ago".to_owned()));
        }
        let names = [format!("gateway/infra/{gateway}")];
        let subscription = Subscription::parse(&names).expect("a subscription");
        Ok(Grant {
            subscription: subscription.clone(),
            permission_check: PermissionCheck::new(move || Ok(subscription.clone())),
            identities: vec![gateway.to_owned()],
            name: ProxyName::Qualified(gateway.to_owned()),
            validity: CredentialValidity {
                expires: lifetime.map(|millis| Instant::now() + Duration::from_millis(millis)),
                verify: None,
            },
        })
    };
    Arc::new(move |peer| Box::pin(std::future::ready(decide(&peer))))
}

fn gateways(names: &[&str]) -> Delta {
    let mut delta = Delta::default();
    for name in names {
        let gateway = Name::new("infra", *name);
        let request = AddressRequest {
            gateway: gateway.clone(),
            proxy: None,
            age: Age::At(0),
            addresses: Vec::new(),
            any: true,
            invalid: None,
        };
        delta.gateways.push((gateway, Some(Arc::new(request))));
    }
    delta
}

struct ControlPlane {
    server: Arc<Server>,
    tls: Arc<ServerTls>,
    address: SocketAddr,
}

impl ControlPlane {
    fn start(authority: &Authority) -> ControlPlane {
        let server = Arc::new(Server::new("test".to_owned(), authorize(), || {}));
        server.apply(server::encode_all(&gateways(&["a", "b"])));
        let tls = Arc::new(ServerTls::issued(&issue(authority)).expect("a certificate"));
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = server::bind(any, true).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let accept = server::accept(listener, server.clone(), Some(tls.clone()));
        tokio::spawn(accept);
        ControlPlane {
            server,
            tls,
            address,
        }
    }
}

struct Proxy {
    commits: mpsc::Receiver<Commit>,
    state: StateReader,
    gateways: Vec<String>,
}

impl Proxy {
    fn start(
        control_plane: &ControlPlane,
        folder: &Path,
        token: Option<&Path>,
        subscribe: &str,
    ) -> Proxy {
        let (sender, commits) = mpsc::channel(1);
        let url = format!("https://{}", control_plane.address);
        let tls = ClientTls::anonymous(folder.join("ca.crt")).expect("certificates");
        let options = ClientOptions {
            control_planes: vec![url.parse().expect("a URL")],
            name: "proxy".to_owned(),
            software: "test".to_owned(),
            tls: Some(Arc::new(tls)),
            token: token.map(|path| TokenFile::new(path.to_owned())),
            cache: None,
            subscription: Subscription::parse(&[subscribe.to_owned()]).expect("a subscription"),
            own_servers: OwnServers::default(),
            control_plane_servers: watch::Sender::default(),
        };
        let client = Client::new(options, Replica::default(), Arc::default(), sender);
        let state = client.state();
        tokio::spawn(client.run());
        Proxy {
            commits,
            state,
            gateways: Vec::new(),
        }
    }

    async fn receive(&mut self) {
        let commit = tokio::time::timeout(Duration::from_secs(30), self.commits.recv()).await;
        let commit = commit.expect("in time").expect("a commit");
        for (name, gateway) in &commit.delta.gateways {
            self.gateways.retain(|known| *known != name.to_string());
            self.gateways
                .extend(gateway.as_ref().map(|_| name.to_string()));
        }
        let _ = commit.applied.send(());
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not in time: {what}");
}

fn write(folder: &Path, file: &str, text: &str) -> std::path::PathBuf {
    let path = folder.join(file);
    fs::write(&path, text).expect("written");
    path
}

#[tokio::test]
async fn a_proxy_gets_only_the_configuration_that_its_token_permits() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let authority = Authority::new();
    write(path, "ca.crt", &authority.pem);
    let control_plane = ControlPlane::start(&authority);
    let server = control_plane.server.clone();
    let (own, expired) = (write(path, "own", "a\n"), write(path, "expired", "expired"));
    let mut good = Proxy::start(&control_plane, path, Some(&own), "*");
    good.receive().await;
    assert_eq!(good.gateways, ["infra/a"]);
    let status = server.proxies().remove(0);
    assert_eq!(status.identities, ["a"]);
    assert_eq!(status.name, "a:proxy", "the name is qualified by the token");
    let mut credentials = 0;
    for (token, reason) in [(None, "no token"), (Some(&*expired), "expired 5 s ago")] {
        let proxy = Proxy::start(&control_plane, path, token, "gateway/infra/a");
        let state = proxy.state.clone();
        until("it is refused", || state.current().failures > 1).await;
        let error = proxy.state.current().error.unwrap_or_default();
        assert!(error.contains(reason), "{error}");
        assert!(server.rejected_credentials() > credentials);
        credentials = server.rejected_credentials();
        assert!(proxy.commits.is_empty(), "not even an empty configuration");
    }
    // A valid token, and another Gateway.
    let proxy = Proxy::start(&control_plane, path, Some(&own), "gateway/infra/b");
    let state = proxy.state.clone();
    until("it is refused", || state.current().failures > 1).await;
    assert!(server.refusals() > 0);
    assert!(proxy.commits.is_empty(), "not even an empty configuration");
}

#[tokio::test]
async fn a_stream_ends_with_its_token_and_continues_with_the_next_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let authority = Authority::new();
    write(path, "ca.crt", &authority.pem);
    let control_plane = ControlPlane::start(&authority);
    let token = write(path, "token", "a:300");
    let mut proxy = Proxy::start(&control_plane, path, Some(&token), "*");
    proxy.receive().await;
    write(path, "token", "a");
    let state = proxy.state.clone();
    until("the token expires", || state.current().failures > 0).await;
    until("it is back", || {
        state.current().connected.is_some() || !proxy.commits.is_empty()
    })
    .await;
    let delta = gateways(&["b"]);
    control_plane.server.apply(server::encode_all(&delta));
    assert_eq!(proxy.gateways, ["infra/a"], "it kept its configuration");
}

// "rotation drops no proxy"
#[tokio::test]
async fn a_rotation_of_the_authority_drops_no_proxy() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let (old, new) = (Authority::new(), Authority::new());
    write(path, "ca.crt", &old.pem);
    let token = write(path, "token", "a");
    let control_plane = ControlPlane::start(&old);
    let mut first = Proxy::start(&control_plane, path, Some(&token), "*");
    first.receive().await;
    // Proxies trust both; then the new authority issues certificates.
    write(path, "ca.crt", &format!("{}{}", old.pem, new.pem));
    let mut second = Proxy::start(&control_plane, path, Some(&token), "*");
    second.receive().await;
    let renewed = control_plane.tls.replace(&issue(&new));
    renewed.expect("a certificate");
    let mut third = Proxy::start(&control_plane, path, Some(&token), "*");
    third.receive().await;
    assert_eq!(third.gateways, ["infra/a"]);
    // The old authority is no longer trusted.
    write(path, "ca.crt", &new.pem);
    let mut fourth = Proxy::start(&control_plane, path, Some(&token), "*");
    fourth.receive().await;
    for proxy in [&first, &second, &third, &fourth] {
        assert_eq!(proxy.state.current().failures, 0, "it was never dropped");
    }
}
