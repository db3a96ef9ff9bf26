//! `explain --server`: the explanation of a running process, with the configuration that it has in effect.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::Value;

use super::{exit_status, of_flags};
use crate::cli::{Explain, Format};
use crate::client::ServerUrl;
use crate::output;

/// Time limit for a request to a server.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Prints a server's explanation.
pub fn run(server: &ServerUrl, arguments: &Explain) -> Result<ExitCode> {
    // Invalid arguments are errors here as well as there.
    arguments.description().parse().map_err(of_flags)?;
    if arguments.sni.as_deref() == Some("") {
        bail!(
            "--sni '' is not available with --server, which would use the host of the URL instead"
        );
    }
    let target = target(arguments);
    let explanation: Value = server.json(&format!("{target}&output=json"), TIMEOUT)?;
    match arguments.sources.output {
        Format::Text => {
            let text = server.text(&format!("{target}&output=text"), TIMEOUT)?;
            output::print(&text)?;
        }
        format => output::structured(format, &explanation)?,
    }
    Ok(ExitCode::from(exit_status(&explanation)))
}

/// Returns the page that explains the request of the arguments.
fn target(arguments: &Explain) -> String {
    let mut target = format!("/explain?url={}", encode(&arguments.url));
    let named = [
        ("method", &arguments.method),
        ("gateway", &arguments.gateway),
        ("from", &arguments.from),
        ("sni", &arguments.sni),
    ];
    let named = named
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let headers = arguments.headers.iter().map(|header| ("header", header));
    for (name, value) in named.chain(headers) {
        let _ = write!(target, "&{name}={}", encode(value));
    }
    target
}

/// Encodes a value of a query.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(byte.into());
            }
            byte => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_query_are_encoded() {
        assert_eq!(encode("x: a&b=/ü"), "x%3A%20a%26b%3D%2F%C3%BC");
    }
}
