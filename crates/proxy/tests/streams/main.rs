//! Everything that is not HTTP, from manifests to sockets: TCP, TLS, UDP, and what is refused.

mod support;
mod tcp;
