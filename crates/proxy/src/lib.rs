//! The data plane: what carries traffic once a rule is chosen.
//!
//! - [`http1`] is the HTTP/1 codec, for both sides: bytes come in, events and bytes go out.
//! - [`balance`] chooses: a backend by weight, an endpoint by load and health.
//! - [`tls`] makes what listeners show and ask for, and what backends must show, out of the bound form.
//!
//! None of them knows sockets, a runtime or a clock.

pub mod balance;
pub mod http1;
pub mod tls;
