//! The tests of `e2e` with control plane and data plane in two processes: whatever `run` does, `controller` and `proxy` do.

include!("../e2e/suite.rs");

mod effect;
mod plane;
mod waiting;
