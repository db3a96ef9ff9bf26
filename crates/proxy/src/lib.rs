//! The data plane: what carries traffic once a rule is chosen.
//!
//! [`http1`] is the HTTP/1 codec, for both sides. It knows no sockets, no runtime and no clock: bytes come in, events and bytes go out.

pub mod http1;
