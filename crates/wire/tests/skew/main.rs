//! Compatibility with other versions: recorded streams stay readable, unknown parts are never applied partially, and malformed resources do not affect others.

mod messages;
mod mutated;
mod recorded;
mod support;
