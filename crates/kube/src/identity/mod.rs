//! Identities of the control plane and of proxies on a cluster.
//!
//! - [`authority`] is a certificate authority in a Secret, which issues the control plane's serving certificate. Proxies trust its bundle.
//! - [`tokens`] verifies the ServiceAccount tokens that proxies present.

pub mod authority;
mod ca;
pub mod tokens;
