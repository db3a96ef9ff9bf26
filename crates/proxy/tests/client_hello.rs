//! Tests of reading the SNI and ALPN protocols of a ClientHello.

use std::sync::Arc;

use pointsman_proxy::tls::client_hello::{ClientHello, HelloError, MAX_LEN, MAX_READ, read};
use proptest::collection::vec;
use proptest::prelude::*;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// Returns the ClientHello of a rustls client.
fn rustls_hello(
    name: &'static str,
    protocols: &[&[u8]],
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let name = ServerName::try_from(name).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

fn some_hello() -> Vec<u8> {
    rustls_hello(
        "Shop.Example.com",
        &[b"h2", b"http/1.1"],
        rustls::ALL_VERSIONS,
    )
}

fn hello(name: Option<&str>, protocols: &[&[u8]]) -> ClientHello {
    ClientHello {
        server_name: name.map(str::to_owned),
        protocols: protocols.iter().map(|name| name.to_vec()).collect(),
    }
}

/// Splits the message into records of this length.
fn in_records_of(bytes: &[u8], length: usize) -> Vec<u8> {
    bytes[5..].chunks(length).flat_map(record).collect()
}

fn record(part: &[u8]) -> Vec<u8> {
    let mut bytes = vec![22, 3, 1];
    bytes.extend((part.len() as u16).to_be_bytes());
    bytes.extend(part);
    bytes
}

/// Builds a ClientHello with these extensions.
fn with_extensions(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut list = Vec::new();
    for (kind, data) in extensions {
        list.extend(kind.to_be_bytes());
        list.extend(counted(data));
    }
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.push(0);
    body.extend(counted(&[0x13, 0x01]));
    body.extend([1, 0]);
    body.extend(counted(&list));
    whole(&body)
}

fn whole(body: &[u8]) -> Vec<u8> {
    let mut message = vec![1];
    message.extend(&(body.len() as u32).to_be_bytes()[1..]);
    message.extend(body);
    message.chunks(1 << 14).flat_map(record).collect()
}

/// Adds a length prefix of two bytes.
fn counted(data: &[u8]) -> Vec<u8> {
    let mut bytes = (data.len() as u16).to_be_bytes().to_vec();
    bytes.extend(data);
    bytes
}

fn server_name(name: &[u8]) -> Vec<u8> {
    counted(&[&[0][..], &counted(name)].concat())
}

#[test]
fn the_sni_and_protocols_are_read() {
    assert_eq!(
        read(&some_hello()),
        Ok(hello(Some("shop.example.com"), &[b"h2", b"http/1.1"]))
    );
    let old = rustls_hello("a.example", &[], &[&rustls::version::TLS12]);
    assert_eq!(read(&old), Ok(hello(Some("a.example"), &[])));
    let address = rustls_hello("127.0.0.1", &[b"h2"], rustls::ALL_VERSIONS);
    assert_eq!(read(&address), Ok(hello(None, &[b"h2"])));
}

#[test]
fn a_hello_without_extensions_has_no_server_name() {
    let body = [&[3, 3][..], &[7; 32], &[0], &counted(&[0, 47]), &[1, 0]].concat();
    assert_eq!(read(&whole(&body)), Ok(hello(None, &[])));
}

#[test]
fn every_prefix_is_incomplete() {
    let bytes = some_hello();
    for length in [1, 3, 4, 7, 100, 16_000] {
        let bytes = in_records_of(&bytes, length);
        for end in 0..bytes.len() {
            assert_eq!(
                read(&bytes[..end]),
                Err(HelloError::Incomplete),
                "{end} of {}",
                bytes.len()
            );
        }
        assert!(read(&bytes).is_ok());
        let followed = [&bytes[..], b"whatever"].concat();
        assert_eq!(read(&followed), read(&bytes));
    }
}

#[test]
fn other_protocols_are_recognized_at_once() {
    for bytes in [
        &b"G"[..],
        b"GET / HTTP/1.1\r\n",
        b"\x80\x2e\x01",
        b"\x16\x02",
        b"SSH-2.0",
        b"\x15\x03\x01\x00\x02\x01\x00",
    ] {
        assert_eq!(read(bytes), Err(HelloError::NotTls), "{bytes:?}");
    }
    // A ServerHello.
    assert_eq!(read(&record(&[2])), Err(HelloError::NotTls));
}

#[test]
fn names_are_validated() {
    let broken = Err(HelloError::Malformed("invalid server name"));
    let named = |name: &str| Ok(hello(Some(name), &[]));
    let none = Ok(hello(None, &[]));
    let long = [
        &[b'a'; 63][..],
        b".",
        &[b'b'; 63],
        b".",
        &[b'c'; 63],
        b".",
        &[b'd'; 61],
    ]
    .concat();
    let table: [(&[u8], Result<ClientHello, HelloError>); 22] = [
        (b"example.com", named("example.com")),
        (b"EXAMPLE.Com", named("example.com")),
        (b"example.com.", named("example.com")),
        (b"localhost", named("localhost")),
        (b"a_b.example", named("a_b.example")),
        (b"xn--bcher-kva.example", named("xn--bcher-kva.example")),
        (&long, named(str::from_utf8(&long).unwrap())),
        (b"", broken.clone()),
        (b".", broken.clone()),
        (b"example.com..", broken.clone()),
        (b".example.com", broken.clone()),
        (b"a..b", broken.clone()),
        (b"*.example.com", broken.clone()),
        (b"a b", broken.clone()),
        (b"a/b", broken.clone()),
        (b"a\0b", broken.clone()),
        ("b\u{fc}cher.example".as_bytes(), broken.clone()),
        (b"\xff", broken.clone()),
        (b"1.2.3", broken.clone()),
        (b"127.0.0.1", none.clone()),
        (b"::1", none.clone()),
        (b"[2001:db8::1]", none),
    ];
    for (name, wanted) in table {
        let bytes = with_extensions(&[(0, server_name(name))]);
        assert_eq!(read(&bytes), wanted, "{}", name.escape_ascii());
    }
    let longer = [&long[..], b"d"].concat();
    assert!(read(&with_extensions(&[(0, server_name(&longer))])).is_err());
    let label = [b'a'; 64];
    assert!(read(&with_extensions(&[(0, server_name(&label))])).is_err());
}

#[test]
fn duplicates_are_rejected() {
    let name = server_name(b"a.example");
    let protocols = counted(b"\x02h2");
    let twice = Err(HelloError::Malformed("duplicate extension"));
    assert_eq!(
        read(&with_extensions(&[(0, name.clone()), (0, name.clone())])),
        twice
    );
    assert_eq!(
        read(&with_extensions(&[
            (16, protocols.clone()),
            (16, protocols.clone())
        ])),
        twice
    );
    assert_eq!(
        read(&with_extensions(&[
            (99, vec![]),
            (0, name.clone()),
            (99, vec![])
        ])),
        twice
    );
    let entry = [&[0][..], &counted(b"a.example")].concat();
    let names = counted(&[entry.clone(), entry].concat());
    assert_eq!(
        read(&with_extensions(&[(0, names)])),
        Err(HelloError::Malformed("not exactly one server name"))
    );
}

#[test]
fn inconsistent_lengths_are_malformed() {
    let entry = |kind: u8| counted(&[&[kind][..], &counted(b"a.example")].concat());
    let extensions: [(u16, Vec<u8>); 12] = [
        (0, vec![]),
        (0, vec![0, 0]),
        (0, vec![0, 1, 0]),
        (0, vec![0, 5, 0, 0, 9, b'a', b'b']),
        (0, entry(1)),
        (0, [entry(0), vec![0]].concat()),
        (16, vec![]),
        (16, vec![0, 0]),
        (16, vec![0, 1, 0]),
        (16, vec![0, 2, 2, b'h']),
        (16, vec![0, 3, 2, b'h', b'2', 0]),
        (16, vec![0, 9, 2, b'h', b'2']),
    ];
    for extension in extensions {
        let found = read(&with_extensions(std::slice::from_ref(&extension)));
        assert!(
            matches!(found, Err(HelloError::Malformed(_))),
            "{extension:?}: {found:?}"
        );
    }
    let long_session = [
        &[3, 3][..],
        &[7; 32],
        &[33],
        &[0; 33],
        &counted(&[0, 47]),
        &[1, 0],
    ]
    .concat();
    let odd_ciphers = [&[3, 3][..], &[7; 32], &[0], &counted(&[0, 47, 0]), &[1, 0]].concat();
    let no_ciphers = [&[3, 3][..], &[7; 32], &[0], &counted(&[]), &[1, 0]].concat();
    let no_compression = [&[3, 3][..], &[7; 32], &[0], &counted(&[0, 47]), &[0]].concat();
    let trailing = [
        &[3, 3][..],
        &[7; 32],
        &[0],
        &counted(&[0, 47]),
        &[1, 0],
        &counted(&[]),
        &[0],
    ]
    .concat();
    for body in [
        &long_session[..],
        &odd_ciphers,
        &no_ciphers,
        &no_compression,
        &trailing,
        &[],
        &[3],
    ] {
        let found = read(&whole(body));
        assert!(
            matches!(found, Err(HelloError::Malformed(_))),
            "{body:?}: {found:?}"
        );
    }
}

#[test]
fn invalid_records_are_malformed() {
    let bytes = some_hello();
    let split = in_records_of(&bytes, 40);
    let mut alert = split.clone();
    alert[45] = 21;
    assert_eq!(
        read(&alert),
        Err(HelloError::Malformed("interrupted by another record"))
    );
    assert_eq!(
        read(&[22, 3, 1, 0, 0]),
        Err(HelloError::Malformed("empty record"))
    );
    assert_eq!(
        read(&[22, 3, 1, 0x40, 1]),
        Err(HelloError::Malformed("oversized record"))
    );
    let empty = [&split[..45], &[22, 3, 1, 0, 0], &split[45..]].concat();
    assert_eq!(read(&empty), Err(HelloError::Malformed("empty record")));
}

#[test]
fn oversized_messages_are_rejected_at_once() {
    let mut head = vec![1];
    head.extend(&(MAX_LEN as u32 + 1).to_be_bytes()[1..]);
    assert_eq!(read(&record(&head)), Err(HelloError::TooLong));
    // The maximum length, split into records whose headers exceed the number of bytes inspected.
    let filler = MAX_LEN - 2 - 32 - 1 - 4 - 2 - 2 - 4;
    let longest = with_extensions(&[(21, vec![0; filler])]);
    assert_eq!(read(&longest), Ok(hello(None, &[])));
    let message: Vec<u8> = [&longest[5..5 + (1 << 14)], &longest[10 + (1 << 14)..]].concat();
    let tiny: Vec<u8> = message.chunks(1).flat_map(record).collect();
    assert_eq!(read(&tiny), Err(HelloError::TooLong));
    assert_eq!(read(&tiny[..MAX_READ - 1]), Err(HelloError::Incomplete));
    assert_eq!(read(&tiny[..MAX_READ]), Err(HelloError::TooLong));
}

/// Verifies that more bytes do not change a final result.
fn settles(bytes: &[u8]) -> Result<(), TestCaseError> {
    let all = read(bytes);
    let mut settled = false;
    for end in 0..=bytes.len() {
        let found = read(&bytes[..end]);
        prop_assert!(!settled || found == all, "{end}: {found:?}, then {all:?}");
        settled |= found != Err(HelloError::Incomplete);
    }
    Ok(())
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..300)) {
        settles(&bytes)?;
        settles(&record(&bytes[..bytes.len().min(200)]))?;
        settles(&whole(&bytes))?;
        settles(&with_extensions(&[(0, bytes.clone())]))?;
        settles(&with_extensions(&[(16, bytes)]))?;
    }

    #[test]
    fn a_hello_with_a_changed_byte_does_not_panic(at: prop::sample::Index, to: u8, length in 1..200usize) {
        let mut bytes = in_records_of(&some_hello(), length);
        let at = at.index(bytes.len());
        bytes[at] = to;
        settles(&bytes[..bytes.len().min(600)])?;
        let _ = read(&bytes);
    }
}
