//! Binding sockets: one for each worker, all of the same address, among which the kernel spreads what comes.

use std::io;
use std::net::SocketAddr;

use pointsman_binding::bound::Transport;
use socket2::{Domain, Protocol, Socket, Type};

use crate::proxy::SocketKey;
use crate::worker::thread::Bound;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// Binds a socket once for each worker.
pub(crate) fn bind(key: &SocketKey, workers: usize) -> io::Result<Vec<Bound>> {
    // Sockets that share their port are shared with other processes of the same user too. One that does not share tells whether somebody is there.
    drop(open(key.address, key.transport, false)?);
    (0..workers)
        .map(|_| {
            let socket = open(key.address, key.transport, true)?;
            Ok(match key.transport {
                Transport::Tcp => {
                    socket.listen(BACKLOG)?;
                    Bound::Stream(socket.into())
                }
                Transport::Udp => Bound::Datagrams(socket.into()),
            })
        })
        .collect()
}

fn open(address: SocketAddr, transport: Transport, shared: bool) -> io::Result<Socket> {
    let (kind, protocol) = match transport {
        Transport::Tcp => (Type::STREAM, Protocol::TCP),
        Transport::Udp => (Type::DGRAM, Protocol::UDP),
    };
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    if transport == Transport::Tcp {
        // A port whose last connections are still remembered may be bound again.
        socket.set_reuse_address(true)?;
    }
    socket.set_reuse_port(shared)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}
