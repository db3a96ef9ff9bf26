//! Binding sockets: one for each worker, all of the same address, among which the kernel spreads what comes.

use std::io;

use pointsman_binding::bound::Transport;

use crate::proxy::SocketKey;
use crate::sockets::SocketFactory;
use crate::worker::thread::BoundSocket;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// Binds a socket once for each worker.
pub(crate) fn bind(
    sockets: &SocketFactory,
    key: &SocketKey,
    workers: usize,
) -> io::Result<Vec<BoundSocket>> {
    let open = |shared| sockets.bind(key.address, key.transport, shared);
    // Sockets that share their port are shared with other processes of the same user too. One that does not share tells whether somebody is there.
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
