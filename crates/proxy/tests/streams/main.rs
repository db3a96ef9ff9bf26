//! Tests from manifests to sockets, except for HTTP: TCP, TLS, UDP, the mesh, DNS names, and refused connections.

#![allow(clippy::disallowed_methods, reason = "tests have deadlines")]

mod certificates;
mod idle;
mod mesh;
mod refused;
mod support;
mod tcp;
mod tls;
mod udp;
