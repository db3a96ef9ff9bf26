//! What backends are told of the client: `x-forwarded-*` and a request id.

use std::fmt::Write;
use std::net::IpAddr;

use super::lines::Lines;
use super::request::Request;
use crate::server::Passage;
use crate::worker::Worker;

/// What is told of one request.
#[derive(Debug)]
pub(crate) struct Forwarded {
    /// The addresses that the request came through, the last one as it was seen here.
    addresses: String,
    /// Whether the client's word on the rest is believed.
    trusted: bool,
    /// A request id, if the client has named none.
    id: Option<String>,
}

impl Forwarded {
    /// For a request of this connection. What the client says of others is believed only from proxies that are trusted.
    pub(crate) fn new(worker: &Worker, passage: &Passage, request: &Request<'_>) -> Self {
        let client: IpAddr = passage.client.ip().to_canonical();
        let networks = &worker.shared.options.trusted_proxies;
        let trusted = networks.iter().any(|network| network.contains(client));
        let mut addresses = String::with_capacity(40);
        if trusted {
            for value in request.lines.all("x-forwarded-for") {
                addresses.push_str(&String::from_utf8_lossy(value));
                addresses.push_str(", ");
            }
        }
        let _ = write!(addresses, "{client}");
        let id = match request.lines.get("x-request-id") {
            Some(_) => None,
            None => Some(format!("{:016x}{:016x}", worker.random(), worker.random())),
        };
        Forwarded {
            addresses,
            trusted,
            id,
        }
    }

    /// Tells it.
    pub(crate) fn tell<'l>(
        &'l self,
        lines: &mut Lines<'l>,
        passage: &Passage,
        authority: Option<&'l str>,
    ) {
        lines.set(b"x-forwarded-for", self.addresses.as_bytes());
        if !self.trusted || lines.get("x-forwarded-proto").is_none() {
            lines.set(b"x-forwarded-proto", passage.scheme().as_bytes());
        }
        match authority {
            Some(authority) if !self.trusted || lines.get("x-forwarded-host").is_none() => {
                lines.set(b"x-forwarded-host", authority.as_bytes());
            }
            None if !self.trusted => lines.remove("x-forwarded-host"),
            _ => {}
        }
        if let Some(id) = &self.id {
            lines.add(b"x-request-id", id.as_bytes());
        }
    }

    /// The request's id, if it was made here.
    pub(crate) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}
