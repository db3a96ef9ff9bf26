//! Binding of listening sockets: one per worker with the same address, over which the kernel distributes connections (`SO_REUSEPORT`).

use std::io;

use pointsman_binding::bound::Transport;

use crate::server::worker_thread::BoundSocket;
use crate::socket_owner::SocketKey;
use crate::sockets::SocketFactory;

/// Length of the accept queue.
const BACKLOG: i32 = 4096;

/// Binds a socket for each worker.
pub(crate) fn bind(
    sockets: &SocketFactory,
    key: &SocketKey,
    workers: usize,
) -> io::Result<Vec<BoundSocket>> {
    let open = |shared| sockets.bind(key.address, key.transport, shared);
    // With SO_REUSEPORT, bind also succeeds if another process of the same user has the port. Without it, bind detects that.
    drop(open(false)?);
    (0..workers)
        .map(|_| {
            let socket = open(true)?;
            Ok(match key.transport {
                Transport::Tcp => {
                    socket.listen(BACKLOG)?;
                    BoundSocket::Stream(socket.into())
                }
                Transport::Udp => BoundSocket::Datagrams(socket.into()),
            })
        })
        .collect()
}
