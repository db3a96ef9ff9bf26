//! `pointsman run` from manifests to real sockets: real clients, real backends, and what each of them saw.

mod filters;
mod headers;
mod paths;
mod routing;
mod smuggling;
mod support;
mod tools;
mod weights;
