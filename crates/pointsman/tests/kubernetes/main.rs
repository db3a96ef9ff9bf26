//! The controller on a real cluster, as a user starts it. `scripts/test-kubernetes` runs these tests; they need the cluster of `KUBECONFIG`, kubectl, and the
//! Gateway API's experimental CRDs.

mod check;
mod gateways;
mod identity;
mod install;
mod replicas;
mod support;
mod traffic;
