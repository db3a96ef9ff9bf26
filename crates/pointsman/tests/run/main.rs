//! The command `run`: arguments, changing files, addresses, signals and the admin server. `e2e` tests its traffic.

mod addresses;
mod admin;
mod arguments;
mod authors;
mod files;
mod golden;
mod log;
mod shutdown;
mod support;
