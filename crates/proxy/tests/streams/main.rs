//! Everything that is not HTTP, from manifests to sockets: TCP, TLS, UDP, the mesh, names, and what is refused.

mod crypt;
mod mesh;
mod refused;
mod support;
mod tcp;
mod tls;
mod udp;
