//! `pointsman run` from manifests to real sockets: real clients, real backends, and what each of them saw. `e2e_split` runs the same tests on a controller and a proxy.

include!("suite.rs");
