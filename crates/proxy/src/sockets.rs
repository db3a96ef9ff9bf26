//! Creation of sockets. A Gateway's listener, a loopback Service and a captured Pod differ in the address, mark and network namespace of their sockets, and in nothing else.

use std::cell::OnceCell;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use pointsman_binding::bound::Transport;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

/// Creates listening sockets and sockets to endpoints.
#[derive(Debug, Clone, Default)]
pub struct SocketFactory {
    mark: Option<u32>,
    namespace: Option<NetworkNamespace>,
}

/// A network namespace other than the process's own. A clone is the same namespace.
#[derive(Debug, Clone)]
pub struct NetworkNamespace(Arc<File>);

impl SocketFactory {
    /// Marks every packet of the sockets (`SO_MARK`), for routing and firewall rules. Needs `CAP_NET_ADMIN`.
    pub fn with_mark(mut self, mark: u32) -> Self {
        self.mark = Some(mark);
        self
    }

    /// Creates the sockets in a network namespace. Needs `CAP_SYS_ADMIN`.
    pub fn in_namespace(mut self, namespace: NetworkNamespace) -> Self {
        self.namespace = Some(namespace);
        self
    }

    /// Binds a socket that clients connect or send to. A `shared` one leaves its address to others of the same user that share it too.
    pub(crate) fn bind(
        &self,
        address: SocketAddr,
        transport: Transport,
        shared: bool,
    ) -> io::Result<Socket> {
        let socket = self.create(address, transport)?;
        if transport == Transport::Tcp {
            // A port whose last connections are still remembered may be bound again.
            socket.set_reuse_address(true)?;
        }
        socket.set_reuse_port(shared)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        Ok(socket)
    }

    /// Connects to an endpoint over TCP.
    pub(crate) async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let socket = self.create(address, Transport::Tcp)?;
        let socket = TcpSocket::from_std_stream(socket.into());
        socket.connect(address).await
    }

    /// Connects a UDP socket to an endpoint.
    pub(crate) fn connect_udp(&self, address: SocketAddr) -> io::Result<UdpSocket> {
        let socket = self.create(address, Transport::Udp)?;
        socket.connect(&address.into())?;
        UdpSocket::from_std(socket.into())
    }

    fn create(&self, address: SocketAddr, transport: Transport) -> io::Result<Socket> {
        let (kind, protocol) = match transport {
            Transport::Tcp => (Type::STREAM, Protocol::TCP),
            Transport::Udp => (Type::DGRAM, Protocol::UDP),
        };
        let create = || {
            Socket::new(
                Domain::for_address(address),
                kind.nonblocking(),
                Some(protocol),
            )
        };
        let socket = match &self.namespace {
            None => create()?,
            // A socket stays in the namespace that its thread was in when it was created.
            Some(namespace) => namespace.run(create)?,
        };
        if let Some(mark) = self.mark {
            socket.set_mark(mark)?;
        }
        Ok(socket)
    }
}

thread_local! {
    /// The namespace that a thread returns to.
    static HOME: OnceCell<File> = const { OnceCell::new() };
}

impl NetworkNamespace {
    /// Opens a namespace by its path, such as `/run/netns/NAME` or `/proc/PID/ns/net`.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(NetworkNamespace(Arc::new(File::open(path)?)))
    }

    /// Runs something on this thread inside the namespace.
    fn run<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        HOME.with(|home| {
            let home = match home.get() {
                Some(home) => home,
                None => {
                    let own = File::open("/proc/thread-self/ns/net")?;
                    home.get_or_init(|| own)
                }
            };
            enter(&self.0)?;
            let done = work();
            if let Err(error) = enter(home) {
                tracing::error!(%error, "a thread can't leave a network namespace");
                // Every later socket of the thread would belong to somebody else.
                std::process::abort();
            }
            done
        })
    }
}

fn enter(namespace: &File) -> io::Result<()> {
    let network = Some(LinkNameSpaceType::Network);
    Ok(move_into_link_name_space(namespace.as_fd(), network)?)
}

#[cfg(test)]
mod tests {
    use socket2::SockRef;

    use super::*;

    #[tokio::test]
    #[allow(clippy::print_stderr, reason = "a test that is skipped says why")]
    async fn every_socket_has_the_mark() {
        let sockets = SocketFactory::default().with_mark(77);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listening = match sockets.bind(any, Transport::Tcp, true) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return eprintln!("skipped: marking sockets is not permitted");
            }
            bound => bound.expect("a socket"),
        };
        listening.listen(1).expect("listening");
        let address = listening.local_addr().expect("an address");
        let address = address.as_socket().expect("of IP");
        let tcp = sockets.connect(address).await.expect("connected");
        let udp = sockets.connect_udp(address).expect("connected");
        let plain = SocketFactory::default().connect(address).await;
        let plain = plain.expect("connected");
        let marks = [
            listening.mark(),
            SockRef::from(&tcp).mark(),
            SockRef::from(&udp).mark(),
            SockRef::from(&plain).mark(),
        ];
        assert_eq!(marks.map(|mark| mark.expect("a mark")), [77, 77, 77, 0]);
    }
}
