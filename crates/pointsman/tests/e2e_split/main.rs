//! The tests of `e2e` with control plane and data plane in two processes: whatever `run` does, `controller` and `proxy` do. And faults, which only two processes have.

include!("../e2e/suite.rs");

mod effect;
mod faults;
mod plane;
mod waiting;
