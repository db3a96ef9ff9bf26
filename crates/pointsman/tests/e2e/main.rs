//! `pointsman run` from manifests to real sockets: real clients, real backends, and what each of them saw.

mod filters;
mod grpc;
mod headers;
mod http2;
mod paths;
mod retries;
mod routing;
mod smuggling;
mod support;
mod timeouts;
mod tools;
mod upgrades;
mod weights;
