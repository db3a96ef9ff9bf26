//! Identities of the control plane and of proxies on a cluster.
//!
//! - [`authority`] is a certificate authority in a Secret, which issues the control plane's serving certificate. Proxies trust its bundle.
//! - [`own_account`] finds the ServiceAccount of the process, which owns what it creates for itself.
//! - [`tokens`] verifies the ServiceAccount tokens that proxies present.

pub mod authority;
mod ca;
pub mod own_account;
pub mod tokens;
