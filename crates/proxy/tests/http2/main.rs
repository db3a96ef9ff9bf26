//! Tests of HTTP/2 from clients and to endpoints, over real sockets, with a proxy configured from YAML.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod floods;
mod limits;
mod malformed;
mod support;
mod upstream;
mod versions;
mod websocket;
