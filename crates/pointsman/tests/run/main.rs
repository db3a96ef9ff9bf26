//! `pointsman run` as a user starts it: the command line, files that change, addresses, signals, the admin server. Traffic is left to `e2e`.

mod addresses;
mod admin;
mod arguments;
mod authors;
mod ends;
mod files;
mod log;
mod support;
