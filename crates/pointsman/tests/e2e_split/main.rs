//! The tests of `e2e` with control plane and data plane in two processes, because `controller` and `proxy` have all features of `run`; and tests of faults
//! between the two.

include!("../e2e/suite.rs");

mod drain_delay;
mod effect;
mod faults;
mod plane;
mod waiting;
