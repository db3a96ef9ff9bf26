//! I/O building blocks without protocol logic: buffers, connection halves, deadlines, byte relays, and counters for HTTP/2 frames.

pub(crate) mod buffer;
pub(crate) mod datagram_socket;
pub(crate) mod deadline;
pub(crate) mod flood_guard;
pub(crate) mod lingering_close;
pub(crate) mod relay;
pub(crate) mod signal;
pub(crate) mod splice;
pub(crate) mod stream;
pub(crate) mod task;
mod trailers;
