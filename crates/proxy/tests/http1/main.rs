//! Tests of the HTTP/1 codec: the rules of RFC 9110 and RFC 9112 with example bytes.

mod bodies;
mod connection;
mod properties;
mod requests;
mod responses;
mod smuggling;
mod support;
mod writing;
