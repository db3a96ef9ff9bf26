//! Tests of TLS configurations with handshakes in memory: verification of peers and selection of certificates.

use std::sync::Arc;

use pointsman_binding::bound::{
    BackendTls, CertifiedKey, ClientValidation, PeerName, PrivateKey, SecretId, Trust,
};
use pointsman_proxy::TlsVersion;
use pointsman_proxy::tls::{BackendConfig, TlsError, backend_config, frontend_config};
use pointsman_resources::Name;
use pointsman_resources::gateway::FrontendValidationMode;
use pointsman_test_support::certificates;
use rustls::{ClientConnection, RootCertStore, ServerConfig, ServerConnection};

/// A certificate authority.
struct Authority {
    authority: certificates::Authority,
    der: Arc<[u8]>,
}

fn authority() -> Authority {
    let authority = certificates::Authority::new();
    let der = Arc::from(authority.der().as_ref());
    Authority { authority, der }
}

impl Authority {
    fn sign(&self, dns: &[&str], uris: &[&str]) -> Arc<CertifiedKey> {
        let issued = self.authority.issue(&[dns, uris].concat());
        Arc::new(CertifiedKey {
            chain: vec![Arc::from(issued.der().as_ref())],
            key: PrivateKey::Pkcs8(Arc::from(issued.key_der().secret_der())),
        })
    }

    fn trusted_for(&self, hostname: &str, names: Vec<PeerName>) -> BackendTls {
        BackendTls {
            hostname: hostname.into(),
            trust: Trust::Authorities(vec![self.der.clone()]),
            names,
            client_certificate: None,
            of_mesh: false,
        }
    }
}

fn listener(keys: &[&Arc<CertifiedKey>], clients: Option<ClientValidation>) -> Arc<ServerConfig> {
    let keys = keys.iter();
    let keys: Vec<_> = keys.map(|key| (id("server"), (*key).clone())).collect();
    frontend_config(
        &keys,
        clients.as_ref(),
        &[b"h2", b"http/1.1"],
        TlsVersion::V1_2,
    )
    .expect("a configuration")
}

fn id(name: &str) -> SecretId {
    SecretId::Object(Name::new("infra", name))
}

fn towards(tls: &BackendTls, gateway: Option<&Arc<CertifiedKey>>) -> BackendConfig {
    let system = Arc::new(RootCertStore::empty());
    let gateways = gateway.map(|_| id("gateway"));
    let secret = |_: &SecretId| gateway.cloned();
    backend_config(tls, gateways.as_ref(), secret, &system, &[b"h2"]).expect("a configuration")
}

/// Performs a handshake. Returns the server's connection, or the error of either side.
fn shake(server: &Arc<ServerConfig>, client: &BackendConfig) -> Result<ServerConnection, String> {
    let mut server = ServerConnection::new(server.clone()).map_err(|e| e.to_string())?;
    let name = client.server_name.clone();
    let mut client =
        ClientConnection::new(client.config.clone(), name).map_err(|e| e.to_string())?;
    for _ in 0..10 {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).map_err(|e| e.to_string())?;
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).map_err(|e| e.to_string())?;
            server
                .process_new_packets()
                .map_err(|e| format!("server: {e}"))?;
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).map_err(|e| e.to_string())?;
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).map_err(|e| e.to_string())?;
            client
                .process_new_packets()
                .map_err(|e| format!("client: {e}"))?;
        }
    }
    match server.is_handshaking() || client.is_handshaking() {
        true => Err("unfinished".to_owned()),
        false => Ok(server),
    }
}

#[test]
fn a_certificate_must_have_the_server_name_and_a_trusted_authority() {
    let (trusted, other) = (authority(), authority());
    let server = listener(&[&trusted.sign(&["abc.example.com"], &[])], None);
    let connection = shake(
        &server,
        &towards(&trusted.trusted_for("abc.example.com", vec![]), None),
    )
    .expect("a handshake");
    assert_eq!(connection.server_name(), Some("abc.example.com"));
    assert_eq!(connection.alpn_protocol(), Some(&b"h2"[..]));
    let mismatch = shake(
        &server,
        &towards(&trusted.trusted_for("other.example.com", vec![]), None),
    );
    assert!(mismatch.is_err_and(|error| error.contains("not valid for name")));
    let stranger = shake(
        &server,
        &towards(&other.trusted_for("abc.example.com", vec![]), None),
    );
    assert!(stranger.is_err_and(|error| error.starts_with("client: invalid peer certificate")));
}

#[test]
fn one_of_several_names_suffices_and_the_hostname_is_only_the_sni_then() {
    let authority = authority();
    let key = authority.sign(&["abc.example.com"], &["spiffe://abc.example.com/id"]);
    let server = listener(&[&key], None);
    let dns = |name: &str| PeerName::Hostname(name.into());
    let uri = |name: &str| PeerName::Uri(name.into());
    let prefix = |name: &str| PeerName::Prefix(name.into());
    for (names, accepted) in [
        (vec![uri("spiffe://abc.example.com/id")], true),
        (vec![prefix("spiffe://abc.example.com/")], true),
        (vec![prefix("spiffe://abd")], false),
        (
            vec![dns("no.example.com"), uri("spiffe://abc.example.com/id")],
            true,
        ),
        (vec![dns("abc.example.com")], true),
        (vec![dns("*.example.com")], true),
        (vec![uri("spiffe://abc.example.com/other")], false),
        (vec![dns("no.example.com")], false),
    ] {
        let result = shake(
            &server,
            &towards(
                &authority.trusted_for("sni.example.com", names.clone()),
                None,
            ),
        );
        assert_eq!(result.is_ok(), accepted, "{names:?}");
    }
    // The hostname is in the certificate, but other names are configured.
    let result = shake(
        &server,
        &towards(
            &authority.trusted_for("abc.example.com", vec![dns("no.example.com")]),
            None,
        ),
    );
    assert!(result.is_err());
}

#[test]
fn clients_are_verified_strictly_or_accepted_insecurely() {
    let (trusted, other) = (authority(), authority());
    let server_key = trusted.sign(&["a.example"], &[]);
    let (good, bad) = (trusted.sign(&[], &[]), other.sign(&[], &[]));
    let tls = trusted.trusted_for("a.example", vec![]);
    let with = |mode, shown: Option<&Arc<CertifiedKey>>| {
        let authorities = vec![trusted.der.clone()];
        let server = listener(&[&server_key], Some(ClientValidation { authorities, mode }));
        let connection = shake(&server, &towards(&tls, shown));
        connection.map(|connection| {
            connection
                .peer_certificates()
                .is_some_and(|list| !list.is_empty())
        })
    };
    use FrontendValidationMode::{AllowInsecureFallback as Fallback, AllowValidOnly as Strict};
    assert_eq!(with(Strict, Some(&good)), Ok(true));
    assert!(with(Strict, Some(&bad)).is_err());
    assert!(with(Strict, None).is_err());
    assert_eq!(with(Fallback, Some(&good)), Ok(true));
    assert_eq!(
        with(Fallback, Some(&bad)),
        Ok(true),
        "the certificate is requested, but not trusted"
    );
    assert_eq!(with(Fallback, None), Ok(false));
}

#[test]
fn a_backends_own_client_certificate_has_precedence_over_the_gateways() {
    let authority = authority();
    let server_key = authority.sign(&["a.example"], &[]);
    let clients = ClientValidation {
        authorities: vec![authority.der.clone()],
        mode: FrontendValidationMode::AllowValidOnly,
    };
    let server = listener(&[&server_key], Some(clients));
    let (own, gateways) = (
        authority.sign(&["own"], &[]),
        authority.sign(&["gateway"], &[]),
    );
    let mut tls = authority.trusted_for("a.example", vec![]);
    let shown = |tls: &BackendTls| {
        let secret = |wanted: &SecretId| match *wanted == id("own") {
            true => Some(own.clone()),
            false => Some(gateways.clone()),
        };
        let system = Arc::new(RootCertStore::empty());
        let client = backend_config(tls, Some(&id("gateway")), secret, &system, &[b"h2"]);
        let connection = shake(&server, &client.expect("a configuration")).expect("a handshake");
        connection
            .peer_certificates()
            .and_then(|list| list.first())
            .map(|leaf| leaf.to_vec())
    };
    assert_eq!(shown(&tls).as_deref(), Some(&*gateways.chain[0]));
    tls.client_certificate = Some(id("own"));
    assert_eq!(shown(&tls).as_deref(), Some(&*own.chain[0]));
}

#[test]
fn the_certificate_with_the_server_name_is_presented_otherwise_the_first() {
    let (first, second) = (authority(), authority());
    let server = listener(
        &[
            &first.sign(&["a.example"], &[]),
            &second.sign(&["*.b.example"], &[]),
        ],
        None,
    );
    assert!(
        shake(
            &server,
            &towards(&first.trusted_for("a.example", vec![]), None)
        )
        .is_ok()
    );
    assert!(
        shake(
            &server,
            &towards(&second.trusted_for("x.b.example", vec![]), None)
        )
        .is_ok()
    );
    let names = vec![PeerName::Hostname("a.example".into())];
    assert!(
        shake(
            &server,
            &towards(&first.trusted_for("unknown.example", names), None)
        )
        .is_ok()
    );
}

#[test]
fn the_error_for_a_mismatched_key_names_its_secret() {
    let authority = authority();
    let (one, other) = (
        authority.sign(&["a.example"], &[]),
        authority.sign(&["a.example"], &[]),
    );
    let mixed = CertifiedKey {
        key: other.key.clone(),
        ..(*one).clone()
    };
    let keys = [(id("a.example"), Arc::new(mixed))];
    let error = frontend_config(&keys, None, &[], TlsVersion::V1_2).expect_err("a refusal");
    assert!(matches!(error, TlsError::Key { .. }));
    assert!(
        error.to_string().starts_with("Secret infra/a.example: "),
        "{error}"
    );
}
