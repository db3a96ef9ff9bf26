//! The HTTP/1 codec: each rule of RFC 9110 and RFC 9112 with the bytes that it is about.

mod bodies;
mod connection;
mod properties;
mod requests;
mod responses;
mod smuggling;
mod support;
mod writing;
