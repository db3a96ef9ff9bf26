//! `pointsman run` from manifests to real sockets: real clients, real backends, and what each of them saw.

mod backends;
mod filters;
mod grpc;
mod headers;
mod http2;
mod limits;
mod mesh;
mod paths;
mod retries;
mod routing;
mod smuggling;
mod streams;
mod support;
mod timeouts;
mod tls;
mod tools;
mod upgrades;
mod weights;
