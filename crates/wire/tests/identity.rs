//! Mutual TLS, authorization, and the distribution of private keys.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pointsman_binding::bound::{
    AddressRequest, CertifiedKey, ClientValidation, Frontend, FrontendId, FrontendTls, PrivateKey,
    Protocol, SecretId,
};
use pointsman_binding::{Delta, OwnServers};
use pointsman_resources::gateway::FrontendValidationMode;
use pointsman_resources::{Age, Kind, Name, ObjectKey};
use pointsman_test_support::certificates::Authority;
use pointsman_wire::client::{Client, ClientOptions, Commit, Replica, StateReader};
use pointsman_wire::server::{self, Authorization, Server, Subscription};
use pointsman_wire::tls::{ClientTls, ServerTls, TlsFiles};
use tokio::sync::{mpsc, watch};

/// Issues a certificate for names and writes it to a folder.
fn issue(authority: &Authority, folder: &Path, file: &str, names: &[&str]) -> TlsFiles {
    let issued = authority.issue(names);
    let files = TlsFiles {
        certificate: folder.join(format!("{file}.crt")),
        key: folder.join(format!("{file}.key")),
        authorities: folder.join(format!("{file}.ca")),
    };
    fs::write(&files.certificate, issued.certificate).expect("written");
    fs::write(&files.key, issued.key).expect("written");
    fs::write(&files.authorities, &authority.pem).expect("written");
    files
}

/// Gateways, each with a server certificate, a client certificate for its backends, and an authority for client certificates.
fn gateways(names: &[&str]) -> Delta {
    let mut delta = Delta::default();
    for name in names {
        let gateway = Name::new("infra", *name);
        let id = FrontendId::Listener {
            gateway: gateway.clone(),
            owner: ObjectKey::new(Kind::Gateway, "infra", *name),
            listener: "https".into(),
        };
        let secret = SecretId::Object(gateway.clone());
        let client_secret = SecretId::Object(Name::new("infra", format!("{name}-client")));
        let frontend = Frontend {
            tls: Some(Arc::new(FrontendTls {
                certificates: vec![secret.clone()],
                clients: Some(ClientValidation {
                    authorities: vec![format!("authority of {name}").as_bytes().into()],
                    mode: FrontendValidationMode::AllowValidOnly,
                }),
            })),
            client_certificate: Some(client_secret.clone()),
            ..Frontend::new(id.clone(), Protocol::Https, 443)
        };
        let key = |id: &SecretId| CertifiedKey {
            chain: Vec::new(),
            key: PrivateKey::Pkcs8(format!("key of {id}").as_bytes().into()),
        };
        let request = AddressRequest {
            gateway: gateway.clone(),
            proxy: None,
            age: Age::At(0),
            addresses: Vec::new(),
            any: true,
            invalid: None,
        };
        delta.frontends.push((id, Some(Arc::new(frontend))));
        for id in [secret, client_secret] {
            let key = Some(Arc::new(key(&id)));
            delta.secrets.push((id, key));
        }
        delta.gateways.push((gateway, Some(Arc::new(request))));
    }
    delta
}

struct ControlPlane {
    server: Arc<Server>,
    address: SocketAddr,
}

impl ControlPlane {
    fn start(files: TlsFiles, authorize: &Path) -> ControlPlane {
        let file = Authorization::new(authorize.to_owned()).expect("a valid file");
        let authorize = server::authorize_by_certificate(move |peer| file.allowed(peer));
        let server = Arc::new(Server::new("test".to_owned(), authorize, || {}));
        let tls = ServerTls::new(files).expect("certificates");
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = server::bind(any, true).expect("a free port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(server::accept(
            listener,
            server.clone(),
            Some(Arc::new(tls)),
        ));
        ControlPlane { server, address }
    }
}

struct Proxy {
    commits: mpsc::Receiver<Commit>,
    state: StateReader,
    /// Names of the private keys that were received.
    keys: BTreeSet<String>,
    /// Authorities for client certificates that were received.
    authorities: BTreeSet<String>,
    gateways: BTreeSet<String>,
    /// Gateways that were removed.
    removed: BTreeSet<String>,
}

impl Proxy {
    fn start(control_plane: &ControlPlane, files: TlsFiles, subscribe: &[&str]) -> Proxy {
        let (sender, commits) = mpsc::channel(1);
        let names: Vec<String> = subscribe.iter().map(|name| (*name).to_owned()).collect();
        let url = format!("https://{}", control_plane.address);
        let options = ClientOptions {
            control_planes: vec![url.parse().expect("a URL")],
            name: "proxy".to_owned(),
            software: "test".to_owned(),
            tls: Some(Arc::new(ClientTls::new(files).expect("certificates"))),
            token: None,
            cache: None,
            subscription: Subscription::parse(&names).expect("a subscription"),
            own_servers: OwnServers::default(),
            control_plane_servers: watch::Sender::default(),
        };
        let client = Client::new(options, Replica::default(), Arc::default(), sender);
        let state = client.state();
        tokio::spawn(client.run());
        Proxy {
            commits,
            state,
            keys: BTreeSet::new(),
            authorities: BTreeSet::new(),
            gateways: BTreeSet::new(),
            removed: BTreeSet::new(),
        }
    }

    async fn receive(&mut self) {
        let commit = tokio::time::timeout(Duration::from_secs(30), self.commits.recv()).await;
        let commit = commit.expect("in time").expect("a commit");
        let keys = commit.delta.secrets.iter();
        self.keys.extend(keys.map(|(id, _)| id.to_string()));
        let frontends = commit.delta.frontends.iter();
        let tls = frontends.filter_map(|(_, frontend)| frontend.as_ref()?.tls.as_deref());
        let authorities = tls
            .flat_map(|tls| &tls.clients)
            .flat_map(|clients| &clients.authorities);
        let authorities = authorities.map(|der| String::from_utf8_lossy(der).into_owned());
        self.authorities.extend(authorities);
        for (name, gateway) in &commit.delta.gateways {
            let names = match gateway {
                Some(_) => &mut self.gateways,
                None => &mut self.removed,
            };
            names.insert(name.to_string());
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

/// Names of the private keys of Gateways: those of their listeners, and those for their backends.
fn keys_of(gateways: &[&str]) -> BTreeSet<String> {
    let names = gateways.iter();
    names
        .flat_map(|name| ["", "-client"].map(|suffix| format!("Secret infra/{name}{suffix}")))
        .collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn keys_and_authorities_reach_only_proxies_that_serve_a_gateway_that_names_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let authority = Authority::new();
    fs::write(
        path.join("authorize"),
        "edge-1.example gateway/infra/a\nspiffe://example/edge-2 gateway/infra/b gateway/infra/c\nall.example *\n",
    )
    .expect("written");
    let server = issue(&authority, path, "server", &["127.0.0.1"]);
    let control_plane = ControlPlane::start(server, &path.join("authorize"));
    let delta = gateways(&["a", "b", "c", "d"]);
    control_plane.server.apply(server::encode_all(&delta));
    let cases: [(&str, &[&str], &[&str], u64); 5] = [
        // The permitted Gateway, explicitly or as part of everything.
        ("edge-1.example", &["gateway/infra/a"], &["a"], 0),
        ("edge-1.example", &["*"], &["a"], 0),
        ("spiffe://example/edge-2", &["gateway/infra/b"], &["b"], 0),
        // The Gateway of another proxy.
        (
            "edge-1.example",
            &["gateway/infra/a", "gateway/infra/b"],
            &["a"],
            1,
        ),
        ("all.example", &["*"], &["a", "b", "c", "d"], 0),
    ];
    let mut refused = 0;
    for (identity, subscribe, wanted, refusals) in cases {
        let files = issue(&authority, path, "proxy", &[identity]);
        let mut proxy = Proxy::start(&control_plane, files, subscribe);
        proxy.receive().await;
        assert_eq!(proxy.keys, keys_of(wanted), "{identity} {subscribe:?}");
        let authorities = wanted.iter().map(|name| format!("authority of {name}"));
        assert_eq!(proxy.authorities, authorities.collect(), "{identity}");
        let own: Vec<String> = wanted.iter().map(|name| format!("infra/{name}")).collect();
        assert_eq!(proxy.gateways, own.into_iter().collect(), "{identity}");
        refused += refusals;
        assert_eq!(
            control_plane.server.refusals(),
            refused,
            "{identity} {subscribe:?}"
        );
        let identities = control_plane.server.proxies().remove(0).identities;
        assert_eq!(identities, [identity]);
        drop(proxy);
        let server = control_plane.server.clone();
        until("it is gone", || server.proxies().is_empty()).await;
    }
    // An unlisted proxy is refused, so that it does not apply an empty configuration.
    let files = issue(&authority, path, "proxy", &["unknown.example"]);
    let proxy = Proxy::start(&control_plane, files, &["gateway/infra/a"]);
    let state = proxy.state.clone();
    until("it is refused", || state.current().failures > 0).await;
    assert!(proxy.commits.is_empty());
    assert!(control_plane.server.refusals() > refused);
    drop(proxy);
    // It may not subscribe to everything either, which is counted too.
    let refused = control_plane.server.refusals();
    let files = issue(&authority, path, "proxy", &["unknown.example"]);
    let proxy = Proxy::start(&control_plane, files, &["*"]);
    until("it is refused", || {
        control_plane.server.refusals() > refused
    })
    .await;
    assert!(proxy.commits.is_empty());
    drop(proxy);
    // A key that is renewed or added later is distributed in the same way.
    let files = issue(&authority, path, "proxy", &["edge-1.example"]);
    let mut proxy = Proxy::start(&control_plane, files, &["*"]);
    proxy.receive().await;
    let mut renewed = gateways(&["a", "b", "e"]);
    for (_, secret) in &mut renewed.secrets {
        *secret = Some(Arc::new(CertifiedKey {
            chain: Vec::new(),
            key: PrivateKey::Pkcs8(b"renewed".as_slice().into()),
        }));
    }
    control_plane.server.apply(server::encode_all(&renewed));
    proxy.receive().await;
    assert_eq!(proxy.keys, keys_of(&["a"]));
}

// "reloaded on change": permissions change while the proxy is connected.
#[tokio::test]
async fn a_changed_permission_takes_effect_on_open_streams() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let authority = Authority::new();
    let permit = |one: &str| {
        let text = format!("{one}edge-2.example gateway/infra/a gateway/infra/b\n");
        fs::write(path.join("authorize"), text).expect("written");
    };
    permit("edge-1.example gateway/infra/a\n");
    let server = issue(&authority, path, "server", &["127.0.0.1"]);
    let control_plane = ControlPlane::start(server, &path.join("authorize"));
    let apply = |names: &[&str]| {
        let delta = server::encode_all(&gateways(names));
        control_plane.server.apply(delta);
    };
    apply(&["a", "b"]);
    // Another proxy has the same subscription as this one will have.
    let files = issue(&authority, path, "second", &["edge-2.example"]);
    let mut second = Proxy::start(&control_plane, files, &["*"]);
    second.receive().await;
    let files = issue(&authority, path, "first", &["edge-1.example"]);
    let mut first = Proxy::start(&control_plane, files, &["*"]);
    first.receive().await;
    assert_eq!(first.gateways, set(&["infra/a"]));
    // Another Gateway is permitted.
    permit("edge-1.example gateway/infra/a gateway/infra/b\n");
    first.receive().await;
    assert_eq!(first.gateways, set(&["infra/a", "infra/b"]));
    assert_eq!(first.keys, keys_of(&["a", "b"]));
    // A Gateway that is no longer permitted is removed.
    permit("edge-1.example gateway/infra/b\n");
    first.receive().await;
    assert_eq!(first.removed, set(&["infra/a"]));
    // A proxy without permissions is disconnected, and keeps its configuration.
    permit("");
    let server = control_plane.server.clone();
    until("its stream has ended", || server.proxies().len() == 1).await;
    assert_eq!(first.removed, set(&["infra/a"]));
    assert!(first.commits.is_empty());
    assert_eq!(server.proxies().remove(0).identities, ["edge-2.example"]);
    assert_eq!(second.state.current().failures, 0, "it was never dropped");
}

#[tokio::test]
async fn certificates_of_other_authorities_are_refused_on_both_sides() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let (own, other) = (Authority::new(), Authority::new());
    fs::write(path.join("authorize"), "edge-1.example *\n").expect("written");
    let server = issue(&own, path, "server", &["127.0.0.1"]);
    let control_plane = ControlPlane::start(server, &path.join("authorize"));
    // The control plane does not know the proxy's authority.
    let mut files = issue(&other, path, "stranger", &["edge-1.example"]);
    files.authorities = path.join("server.ca");
    let stranger = Proxy::start(&control_plane, files, &["*"]);
    // The proxy does not know the control plane's authority.
    let mut files = issue(&own, path, "wary", &["edge-1.example"]);
    files.authorities = path.join("stranger.ca");
    let wary = Proxy::start(&control_plane, files, &["*"]);
    for proxy in [&stranger, &wary] {
        until("it fails", || proxy.state.current().failures > 1).await;
        assert_eq!(proxy.state.current().version, None);
    }
    let server = control_plane.server.clone();
    until("it is counted", || server.handshake_failures() > 1).await;
    assert!(server.proxies().is_empty());
}

#[tokio::test]
async fn a_control_plane_must_carry_the_name_of_the_url() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let authority = Authority::new();
    fs::write(path.join("authorize"), "edge-1.example *\n").expect("written");
    let server = issue(&authority, path, "server", &["other.example"]);
    let control_plane = ControlPlane::start(server, &path.join("authorize"));
    let files = issue(&authority, path, "proxy", &["edge-1.example"]);
    let proxy = Proxy::start(&control_plane, files, &["*"]);
    until("it fails", || proxy.state.current().failures > 1).await;
    let error = proxy.state.current().error.expect("an error");
    assert!(error.contains("certificate"), "{error}");
}

#[tokio::test]
async fn renewed_certificates_are_used_for_new_connections_and_open_ones_stay_open() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let (old, new) = (Authority::new(), Authority::new());
    fs::write(path.join("authorize"), "edge-1.example *\n").expect("written");
    let server = issue(&old, path, "server", &["127.0.0.1"]);
    let control_plane = ControlPlane::start(server, &path.join("authorize"));
    control_plane
        .server
        .apply(server::encode_all(&gateways(&["a"])));
    let files = issue(&old, path, "first", &["edge-1.example"]);
    let mut first = Proxy::start(&control_plane, files, &["*"]);
    first.receive().await;
    issue(&new, path, "server", &["127.0.0.1"]);
    let files = issue(&new, path, "second", &["edge-1.example"]);
    let mut second = Proxy::start(&control_plane, files, &["*"]);
    second.receive().await;
    control_plane
        .server
        .apply(server::encode_all(&gateways(&["b"])));
    first.receive().await;
    assert_eq!(first.gateways, set(&["infra/a", "infra/b"]));
    assert_eq!(first.state.current().failures, 0, "its connection lived on");
    // While the file is broken, the last valid certificate stays in effect.
    fs::write(path.join("server.crt"), "broken").expect("written");
    let files = issue(&new, path, "third", &["edge-1.example"]);
    let mut third = Proxy::start(&control_plane, files, &["*"]);
    third.receive().await;
    assert_eq!(third.gateways, set(&["infra/a", "infra/b"]));
}

#[test]
fn plaintext_is_refused_beyond_loopback() {
    let any = "0.0.0.0:0".parse().expect("an address");
    let error = server::bind(any, false).expect_err("refused");
    assert!(error.to_string().contains("loopback"), "{error}");
    assert!(server::bind(any, true).is_ok());
    assert!(
        "http://192.0.2.1:15010"
            .parse::<pointsman_wire::client::ControlPlaneUrl>()
            .is_err()
    );
}

// A resumed session is not verified again, so an expired certificate could be used for ever.
#[tokio::test]
async fn a_client_certificate_is_verified_for_each_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let authority = Authority::new();
    fs::write(path.join("authorize"), "edge-1.example *\n").expect("written");
    let server = issue(&authority, path, "server", &["127.0.0.1"]);
    let control_plane = ControlPlane::start(server, &path.join("authorize"));
    let own = authority.issue(&["edge-1.example"]);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.der()).expect("an authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("it is supported")
        .with_root_certificates(roots)
        .with_client_auth_cert(own.chain(), own.key_der())
        .expect("a key");
    config.alpn_protocols = vec![b"h2".to_vec()];
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    for _ in 0..2 {
        let stream = tokio::net::TcpStream::connect(control_plane.address).await;
        let name = "127.0.0.1".try_into().expect("a name");
        let stream = connector.connect(name, stream.expect("it is open")).await;
        let mut stream = stream.expect("TLS");
        let kind = stream.get_ref().1.handshake_kind();
        assert_eq!(kind, Some(rustls::HandshakeKind::Full));
        // Tickets precede the first bytes of HTTP/2.
        let mut frame = [0; 9];
        let read = tokio::io::AsyncReadExt::read_exact(&mut stream, &mut frame).await;
        read.expect("SETTINGS");
    }
}
