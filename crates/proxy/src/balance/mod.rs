//! Load balancing: [`LoadBalancer`] selects an endpoint of a backend by load and health.
//!
//! The state belongs to one worker: no lock, no clock and no random number generator. `now` is the time since an epoch of the caller's choice; random numbers are
//! arguments.

mod health;
mod latency;
mod load_balancer;
#[cfg(test)]
mod tests;

pub use health::BalancerPolicy;
pub use load_balancer::{EndpointHandle, LoadBalancer, Readiness, RequestOutcome};
