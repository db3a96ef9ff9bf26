//! Bytes in and out: buffers, the two halves of a connection, deadlines. What they carry is no concern of this module.

pub(crate) mod alarm;
pub(crate) mod bell;
pub(crate) mod buffer;
pub(crate) mod datagram;
pub(crate) mod frames;
pub(crate) mod io;
pub(crate) mod linger;
pub(crate) mod pipe;
pub(crate) mod relay;
pub(crate) mod task;
mod trailers;
