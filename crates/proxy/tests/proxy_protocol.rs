//! Tests of reading PROXY protocol headers. Quoted sentences are those of the specification.

use std::net::SocketAddr;

use pointsman_proxy::proxy_protocol::ProxyHeaderError::{Incomplete, Malformed, Missing};
use pointsman_proxy::proxy_protocol::{MAX_READ, ProxyHeader, read};
use proptest::collection::vec;
use proptest::prelude::*;

fn address(text: &str) -> Option<SocketAddr> {
    Some(text.parse().expect("an address"))
}

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Returns a header of version 2.
fn binary(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
    let length = u16::try_from(block.len()).expect("a length").to_be_bytes();
    [SIGNATURE, &[command, family], &length, block].concat()
}

fn is_malformed(bytes: &[u8]) -> bool {
    matches!(read(bytes), Err(Malformed(_)))
}

#[test]
fn a_line_of_version_1_states_the_source() {
    let cases = [
        (
            "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n",
            address("192.168.0.1:56324"),
        ),
        (
            "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
            address("255.255.255.255:65535"),
        ),
        (
            "PROXY TCP6 2001:db8::1 ::1 1 0\r\n",
            address("[2001:db8::1]:1"),
        ),
        (
            "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
            address("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"),
        ),
        // "the receiver must ignore anything presented before the CRLF is found."
        ("PROXY UNKNOWN\r\n", None),
        (
            "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
            None,
        ),
    ];
    for (line, source) in cases {
        let len = line.len();
        assert!(len <= MAX_READ, "{line}");
        let more = format!("{line}GET / HTTP/1.1\r\n");
        assert_eq!(
            read(more.as_bytes()),
            Ok(ProxyHeader { source, len }),
            "{line}"
        );
    }
}

#[test]
fn any_line_that_does_not_exactly_match_the_protocol_is_malformed() {
    // "Any sequence which does not exactly match the protocol must be discarded and cause the receiver to abort the connection."
    for line in [
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
        "PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.256 1 2\r\n",
        "PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n",
        "PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n",
        "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP6 fe80::1%eth0 fe80::2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
        // "heading zeroes are not permitted in order to avoid any possible confusion with octal numbers."
        "PROXY TCP4 192.0.2.1 192.0.2.2 080 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 00\r\n",
        "PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY tcp4 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY \r\n",
        // "The receiver must not tolerate a single CR or LF character to end the line when a complete CRLF sequence is expected."
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n",
        "PROXY UNKNOWN\nGET / HTTP/1.1\r\n",
        "PROXY UNKNOWN\rGET / HTTP/1.1\r\n",
    ] {
        assert!(is_malformed(line.as_bytes()), "{line:?}");
    }
    // "If the CRLF sequence is not found in the first 107 characters, the receiver should declare the line invalid."
    let long = format!("PROXY UNKNOWN {:>93}", "\r\n");
    assert_eq!(long.len(), 107);
    assert!(read(long.as_bytes()).is_ok());
    let longer = long.replace("\r\n", " \r\n");
    assert!(is_malformed(longer.as_bytes()));
    assert!(is_malformed(&longer.as_bytes()[..MAX_READ]));
}

#[test]
fn a_header_of_version_2_states_the_source() {
    let four = [192, 0, 2, 1, 192, 0, 2, 2, 0x12, 0x34, 0, 80];
    let six: Vec<u8> = (1..=32).chain([0x12, 0x34, 0, 80]).collect();
    let unix = [b'/'; 216];
    let six_source = address("[102:304:506:708:90a:b0c:d0e:f10]:4660");
    let cases: [(u8, u8, &[u8], Option<SocketAddr>); 10] = [
        (0x21, 0x11, &four, address("192.0.2.1:4660")),
        (0x21, 0x21, &six, six_source),
        // "The receiver should ignore address information."
        (0x21, 0x00, &[], None),
        (0x21, 0x00, &four, None),
        // "only the UNSPEC protocol byte (\x00) is mandatory to implement on the receiver. A receiver is not required to implement other ones, provided that it
        // automatically falls back to the UNSPEC mode for the valid combinations above that it does not support."
        (0x21, 0x12, &four, None),
        (0x21, 0x22, &six, None),
        (0x21, 0x31, &unix, None),
        (0x21, 0x32, &unix, None),
        // "The receiver must accept this connection as valid and must use the real connection endpoints and discard the protocol block including the family
        // which is ignored."
        (0x20, 0x11, &four, None),
        (0x20, 0xff, &[7], None),
    ];
    for (command, family, block, source) in cases {
        // "Receivers MUST always consider this field to skip the appropriate number of bytes": additional fields follow the addresses.
        for extra in [&b""[..], &[4, 0, 3, 1, 2, 3]] {
            let block = [block, extra].concat();
            let bytes = binary(command, family, &block);
            let len = bytes.len();
            assert_eq!(
                read(&bytes),
                Ok(ProxyHeader { source, len }),
                "{command:x} {family:x}"
            );
        }
    }
}

#[test]
fn a_long_header_is_known_before_all_of_it_is_there() {
    let mut block = vec![0; usize::from(u16::MAX)];
    block[0] = 192;
    let bytes = binary(0x21, 0x11, &block);
    let header = ProxyHeader {
        source: address("192.0.0.0:0"),
        len: 65_551,
    };
    assert_eq!(read(&bytes[..28]), Ok(header));
    assert_eq!(read(&bytes[..27]), Err(Incomplete));
}

#[test]
fn unassigned_values_of_version_2_are_malformed() {
    let four = [0; 12];
    // "it must always be sent as \x2 and the receiver must only accept this value."
    assert!(is_malformed(&binary(0x11, 0x11, &four)));
    assert!(is_malformed(&binary(0x31, 0x11, &four)));
    // "Receivers must drop connections presenting unexpected values here."
    assert!(is_malformed(&binary(0x22, 0x11, &four)));
    // "other values are unspecified and must not be emitted in version 2 of this protocol and must be rejected as invalid by receivers."
    assert!(is_malformed(&binary(0x21, 0x41, &four)));
    assert!(is_malformed(&binary(0x21, 0x13, &four)));
    assert!(is_malformed(&binary(0x21, 0x11, &four[1..])));
    assert!(is_malformed(&binary(0x21, 0x21, &[0; 35])));
    assert!(is_malformed(&binary(0x21, 0x31, &[0; 215])));
}

#[test]
fn other_bytes_are_a_missing_header() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"PRI * HTTP/2.0\r\n",
        b"P ",
        b"proxy TCP4",
        b"\r\n\r\nGET",
        b"\x16\x03\x01",
    ] {
        assert_eq!(read(bytes), Err(Missing));
    }
    assert_eq!(read(b""), Err(Incomplete));
}

proptest! {
    #[test]
    fn more_bytes_never_change_a_result(bytes in prop_oneof![
        vec(any::<u8>(), 0..200),
        vec(any::<u8>(), 0..200).prop_map(|rest| [SIGNATURE, &rest].concat()),
        "PROXY (TCP4|TCP6|UNKNOWN)?[ 0-9.:a-f\r\n]{0,120}".prop_map(String::into_bytes),
    ]) {
        let whole = read(&bytes);
        for end in 0..bytes.len() {
            let beginning = read(&bytes[..end]);
            prop_assert!(beginning == Err(Incomplete) || beginning == whole, "{end}: {beginning:?}, then {whole:?}");
        }
        if bytes.len() >= MAX_READ {
            prop_assert_ne!(whole, Err(Incomplete), "this many bytes are always enough");
        }
    }

    #[test]
    fn every_address_survives_both_versions(source: SocketAddr, destination: SocketAddr) {
        prop_assume!(source.is_ipv4() == destination.is_ipv4());
        let source = SocketAddr::new(source.ip(), source.port());
        let (family, kind) = match source.is_ipv4() {
            true => (0x11, "TCP4"),
            false => (0x21, "TCP6"),
        };
        let (from, to) = (source.ip(), destination.ip());
        let line = format!("PROXY {kind} {from} {to} {} {}\r\n", source.port(), destination.port());
        prop_assert_eq!(read(line.as_bytes()).map(|header| header.source), Ok(Some(source)));
        let octets = |address: std::net::IpAddr| match address {
            std::net::IpAddr::V4(address) => address.octets().to_vec(),
            std::net::IpAddr::V6(address) => address.octets().to_vec(),
        };
        let ports = [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat();
        let bytes = binary(0x21, family, &[octets(from), octets(to), ports].concat());
        prop_assert_eq!(read(&bytes).map(|header| header.source), Ok(Some(source)));
    }
}
