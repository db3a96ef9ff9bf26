//! Everything that is not HTTP, from manifests to sockets: TCP, TLS, UDP, the mesh, names, and what is refused.

#![allow(clippy::disallowed_methods, reason = "tests wait, and not for ever")]

mod certificates;
mod idle;
mod mesh;
mod refused;
mod support;
mod tcp;
mod tls;
mod udp;
