//! Headers of the PROXY protocol, versions 1 and 2, by which a load balancer states the address of its client.
//!
//! [`read`] inspects received bytes without consuming them. The quoted sentences are those of the specification,
//! <https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::{FromStr, Split};

/// Number of bytes that are enough to read any header, except for its additional fields (TLVs), which are skipped.
///
/// "a 108-byte buffer is always enough to store all the line and a trailing zero for string processing"; the addresses of version 2 end earlier.
pub const MAX_READ: usize = 107;

/// A header of the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyHeader {
    /// Address of the client; `None` if it is the address of the connection.
    pub source: Option<SocketAddr>,
    /// Length of the whole header in bytes, which may be more than were read.
    pub len: usize,
}

/// Reason why there is no [`ProxyHeader`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProxyHeaderError {
    /// More bytes are needed. All bytes so far belong to the header.
    #[error("the PROXY protocol header is incomplete")]
    Incomplete,
    /// The connection does not begin with a header.
    #[error("the connection does not begin with a PROXY protocol header")]
    Missing,
    /// The header violates the protocol.
    #[error("malformed PROXY protocol header: {0}")]
    Malformed(&'static str),
}

use ProxyHeaderError::{Incomplete, Malformed, Missing};

const PREFIX_1: &[u8] = b"PROXY ";
const SIGNATURE_2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Length of the fixed part of version 2.
const FIXED_2: usize = 16;

/// Reads the header at the start of these bytes. If more bytes are needed, it has to be called again with all of them.
pub fn read(bytes: &[u8]) -> Result<ProxyHeader, ProxyHeaderError> {
    let begins_with = |start: &[u8]| {
        let common = start.len().min(bytes.len());
        bytes[..common] == start[..common]
    };
    if begins_with(PREFIX_1) {
        version_1(bytes)
    } else if begins_with(SIGNATURE_2) {
        version_2(bytes)
    } else {
        Err(Missing)
    }
}

/// Reads a line of text, such as `PROXY TCP4 192.0.2.1 198.51.100.2 4711 443`.
fn version_1(bytes: &[u8]) -> Result<ProxyHeader, ProxyHeaderError> {
    // "If the CRLF sequence is not found in the first 107 characters, the receiver should declare the line invalid."
    let line = &bytes[..bytes.len().min(MAX_READ)];
    let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
        return match line.len() {
            MAX_READ => Err(Malformed("the line is longer than 107 bytes")),
            _ => Err(Incomplete),
        };
    };
    let text = std::str::from_utf8(&line[PREFIX_1.len()..end]);
    let text = text.map_err(|_| Malformed("not ASCII"))?;
    // "The receiver must not tolerate a single CR or LF character to end the line when a complete CRLF sequence is expected."
    let text = text.strip_suffix('\r').filter(|text| !text.contains('\r'));
    let mut fields = text
        .ok_or(Malformed("the line does not end with CRLF"))?
        .split(' ');
    let source = match fields.next() {
        // "the receiver must ignore anything presented before the CRLF is found."
        Some("UNKNOWN") => None,
        Some("TCP4") => Some(addresses::<Ipv4Addr>(&mut fields)?),
        Some("TCP6") => Some(addresses::<Ipv6Addr>(&mut fields)?),
        _ => return Err(Malformed("the protocol is not TCP4, TCP6 or UNKNOWN")),
    };
    Ok(ProxyHeader {
        source,
        len: end + 1,
    })
}

/// Reads source address, destination address, source port and destination port.
fn addresses<A: FromStr + Into<IpAddr>>(
    fields: &mut Split<'_, char>,
) -> Result<SocketAddr, ProxyHeaderError> {
    let mut next = || fields.next().ok_or(Malformed("a field is missing"));
    let address = |text: &str| {
        let address = text.parse::<A>();
        address.map_err(|_| Malformed("an address is not one of its family"))
    };
    let source = address(next()?)?;
    address(next()?)?;
    let port = port(next()?)?;
    self::port(next()?)?;
    match fields.next() {
        None => Ok((source.into(), port).into()),
        Some(_) => Err(Malformed("there are more than two addresses and ports")),
    }
}

/// Reads "a decimal integer in the range [0..65535]"; "heading zeroes are not permitted in order to avoid any possible confusion with octal numbers".
fn port(text: &str) -> Result<u16, ProxyHeaderError> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = text == "0" || !text.starts_with('0');
    let port = text.parse().ok().filter(|_| is_decimal && is_plain);
    port.ok_or(Malformed("a port is not a number from 0 to 65535"))
}

/// Reads the binary form.
fn version_2(bytes: &[u8]) -> Result<ProxyHeader, ProxyHeaderError> {
    let byte = |at: usize| bytes.get(at).copied().ok_or(Incomplete);
    let command = byte(12)?;
    if command >> 4 != 2 {
        return Err(Malformed("the version is not 2"));
    }
    let is_local = match command & 0xf {
        0 => true,
        1 => false,
        // "Receivers must drop connections presenting unexpected values here."
        _ => return Err(Malformed("the command is not LOCAL or PROXY")),
    };
    let family = byte(13)?;
    let length = usize::from(u16::from_be_bytes([byte(14)?, byte(15)?]));
    let whole = |source| {
        Ok(ProxyHeader {
            source,
            len: FIXED_2 + length,
        })
    };
    // "the receiver must accept this connection as valid and must use the real connection endpoints and discard the protocol block including the family
    // which is ignored".
    if is_local {
        return whole(None);
    }
    let address_length = match (family >> 4, family & 0xf) {
        (_, 3..) | (4.., _) => {
            return Err(Malformed("unassigned address family or transport protocol"));
        }
        (1, _) => 12,
        (2, _) => 36,
        (3, _) => 216,
        _ => 0,
    };
    if length < address_length {
        return Err(Malformed("too short for its addresses"));
    }
    let block = || {
        bytes
            .get(FIXED_2..FIXED_2 + address_length)
            .ok_or(Incomplete)
    };
    match family {
        0x11 => whole(Some(binary::<4>(block()?).into())),
        0x21 => whole(Some(binary::<16>(block()?).into())),
        // Datagrams and UNIX sockets: "A receiver is not required to implement other ones, provided that it automatically falls back to the UNSPEC mode for the
        // valid combinations above that it does not support."
        _ => whole(None),
    }
}

/// Returns the source address and port of a block with two addresses of this size, followed by two ports.
fn binary<const SIZE: usize>(block: &[u8]) -> (IpAddr, u16)
where
    IpAddr: From<[u8; SIZE]>,
{
    let mut address = [0; SIZE];
    address.copy_from_slice(&block[..SIZE]);
    let port = u16::from_be_bytes([block[2 * SIZE], block[2 * SIZE + 1]]);
    (address.into(), port)
}
