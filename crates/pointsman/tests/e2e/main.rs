//! `pointsman run` from manifests to real sockets: real clients, real backends, and what each of them saw.

mod agree;
mod backends;
mod changes;
mod demo;
mod differential;
mod drain;
mod endpoints;
mod filters;
mod grpc;
mod h2spec;
mod headers;
mod http2;
mod limits;
mod mesh;
mod paths;
mod retries;
mod routing;
mod seeing;
mod smuggling;
mod streams;
mod support;
mod timeouts;
mod tls;
mod tools;
mod upgrades;
mod weights;
