//! Who gets the next request: an endpoint of the backend that the rule chose, by load and health ([`Endpoints`]).
//!
//! All of it is plain state of one worker: no lock, no clock, no random numbers of its own. `now` is the time since any moment that the
//! caller keeps to; random numbers come from the caller.

mod health;
mod latency;
mod load_balancer;
#[cfg(test)]
mod tests;

pub use health::BalancerPolicy;
pub use load_balancer::{EndpointHandle, LoadBalancer, Readiness, RequestOutcome};
