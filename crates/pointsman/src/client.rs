//! A client of the admin server, for commands that query a running process. It sends one request per connection, without TLS.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::de::DeserializeOwned;

/// Address of the admin server, unless another one is given.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:15000";

/// Largest response. `/status` has all objects of a cluster that have a status.
const MAX_RESPONSE: u64 = 1024 * 1024 * 1024;

/// Follows an error that is typical for the xDS server, which accepts only HTTP/2, possibly over TLS.
const XDS_HINT: &str = " (is this the address of --xds instead of --admin?)";

/// URL of an admin server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    /// Host and port.
    authority: String,
}

impl FromStr for ServerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = format!("expected http://HOST:PORT, such as {DEFAULT_SERVER}");
        if text.starts_with("https://") {
            return Err(format!("admin servers have no TLS; {expected}"));
        }
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = authority.rsplit_once(':').ok_or_else(|| expected.clone())?;
        let is_host = |char: char| char.is_ascii_alphanumeric() || "-._[]:".contains(char);
        match !host.is_empty() && host.chars().all(is_host) && port.parse::<u16>().is_ok() {
            true => Ok(ServerUrl {
                authority: authority.to_owned(),
            }),
            false => Err(expected),
        }
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority)
    }
}

/// Response of an admin server.
#[derive(Debug, PartialEq, Eq)]
struct PageResponse {
    status: u16,
    body: Vec<u8>,
}

impl ServerUrl {
    /// Requests a page that is JSON.
    pub fn json<T: DeserializeOwned>(&self, target: &str, timeout: Duration) -> Result<T> {
        let body = self.page(target, timeout)?;
        let value = serde_json::from_slice(&body);
        value.with_context(|| {
            format!("{self} is not an admin server of Pointsman, or is one of an incompatible version: its response to {target} has another format")
        })
    }

    /// Requests a page that is text.
    pub fn text(&self, target: &str, timeout: Duration) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.page(target, timeout)?).into_owned())
    }

    fn page(&self, target: &str, timeout: Duration) -> Result<Vec<u8>> {
        let PageResponse { status, body } = self.get(target, timeout)?;
        if status != 200 {
            let body = String::from_utf8_lossy(&body);
            let first = body.lines().next().unwrap_or_default();
            bail!("{self} responded to {target} with {status}: {first}");
        }
        Ok(body)
    }

    fn get(&self, target: &str, timeout: Duration) -> Result<PageResponse> {
        let mut stream = self.connect(timeout).with_context(|| {
            format!("can't connect to {self} (--server names the admin server of a controller or of `run`)")
        })?;
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.authority
        );
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        let mut bytes = Vec::new();
        let sent = stream.write_all(request.as_bytes());
        let received = sent.and_then(|()| stream.take(MAX_RESPONSE).read_to_end(&mut bytes));
        received.map_err(|error| {
            let hint = match error.kind() {
                ErrorKind::ConnectionReset => XDS_HINT,
                _ => "",
            };
            anyhow!("{self} does not respond: {error}{hint}")
        })?;
        parse(&bytes).map_err(|error| {
            let hint = match bytes.starts_with(b"HTTP/1.") {
                true => "",
                false => XDS_HINT,
            };
            anyhow!("{self} is not an admin server: {error}{hint}")
        })
    }

    fn connect(&self, timeout: Duration) -> Result<TcpStream> {
        let mut last = None;
        for address in self.authority.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        match last {
            Some(error) => Err(error.into()),
            None => bail!("the host has no address"),
        }
    }
}

fn parse(bytes: &[u8]) -> Result<PageResponse> {
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(head) = response.parse(bytes)? else {
        bail!("the connection was closed before the end of the response");
    };
    let body = bytes[head..].to_vec();
    let mut lengths = response.headers.iter();
    let length = lengths.find(|field| field.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|field| std::str::from_utf8(field.value).ok()?.parse().ok());
    if length.is_some_and(|length: usize| length != body.len()) {
        bail!("the connection was closed before the end of the response");
    }
    let status = response.code.unwrap_or_default();
    Ok(PageResponse { status, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_host_and_a_port_and_no_tls() {
        for url in [
            "http://127.0.0.1:15000",
            "127.0.0.1:15000/",
            "http://[::1]:1",
            "http://a.example:80/",
        ] {
            assert!(url.parse::<ServerUrl>().is_ok(), "{url}");
        }
        for (url, expected) in [
            ("https://a:1", "no TLS"),
            ("http://a", "HOST:PORT"),
            ("http://a:1/status", "HOST:PORT"),
            ("http://a:1 b:2", "HOST:PORT"),
            ("http://:1", "HOST:PORT"),
        ] {
            let error = url.parse::<ServerUrl>().expect_err(url);
            assert!(error.contains(expected), "{url}: {error}");
        }
    }

    #[test]
    fn a_response_that_was_cut_is_an_error() {
        let whole = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        let response = parse(whole).expect("a response");
        assert_eq!((response.status, &*response.body), (200, &b"{}"[..]));
        for length in [10, whole.len() - 1] {
            assert!(parse(&whole[..length]).is_err(), "{length}");
        }
        assert!(parse(b"SSH-2.0-OpenSSH\r\n").is_err());
    }
}
