//! `pointsman run` from manifests to real sockets: real clients, real backends, and what each of them saw.

mod routing;
mod support;
mod tools;
