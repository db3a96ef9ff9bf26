//! End-to-end tests of `pointsman run` with real clients and backends. `e2e_split` runs the same tests with a controller and a proxy.

include!("suite.rs");
