//! Creation of sockets. The sockets of Gateways, loopback Services and captured Pods differ only in address, mark and network namespace.

use std::cell::OnceCell;
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use pointsman_binding::bound::Transport;
use pointsman_binding::is_reached_at;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

/// Creates listening and upstream sockets.
#[derive(Debug, Clone, Default)]
pub struct SocketFactory {
    mark: Option<u32>,
    namespace: Option<NetworkNamespace>,
    admin: Option<SocketAddr>,
}

/// A network namespace other than that of the process. Clones refer to the same namespace.
#[derive(Debug, Clone)]
pub struct NetworkNamespace(Arc<File>);

impl SocketFactory {
    /// Sets a mark on all packets (`SO_MARK`) for routing and firewall rules. Requires `CAP_NET_ADMIN`.
    pub fn with_mark(mut self, mark: u32) -> Self {
        self.mark = Some(mark);
        self
    }

    /// Creates the sockets in a network namespace. Requires `CAP_SYS_ADMIN`.
    pub fn in_namespace(mut self, namespace: NetworkNamespace) -> Self {
        self.namespace = Some(namespace);
        self
    }

    /// Refuses connections to the admin server of this process, which listens at this address.
    pub fn without_admin(mut self, admin: SocketAddr) -> Self {
        self.admin = Some(admin);
        self
    }

    /// True if a connection to an address reaches the admin server. All upstream connections pass this check, after name resolution and routing.
    fn reaches_admin(&self, address: SocketAddr) -> bool {
        let Some(admin) = self.admin.filter(|admin| admin.port() == address.port()) else {
            return false;
        };
        let ip = address.ip().to_canonical();
        // The loopback interface of another network namespace does not lead to the admin server.
        let elsewhere = self.namespace.is_some() && (ip.is_loopback() || ip.is_unspecified());
        let here = is_reached_at(admin, address);
        !elsewhere && (here || admin.ip().is_unspecified() && is_local(ip))
    }

    /// Binds a listening socket. A `shared` one allows other sockets of the same user that are shared too (`SO_REUSEPORT`).
    pub(crate) fn bind(
        &self,
        address: SocketAddr,
        transport: Transport,
        shared: bool,
    ) -> io::Result<Socket> {
        let socket = self.create(address, transport)?;
        if transport == Transport::Tcp {
            // Allows binding while old connections are in TIME_WAIT.
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
        if self.reaches_admin(address) {
            let message =
                format!("{address} is Pointsman's own admin server, which routes can't reach");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
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
            // A socket belongs to the namespace of the thread that creates it.
            Some(namespace) => namespace.run(create)?,
        };
        if let Some(mark) = self.mark {
            socket.set_mark(mark)?;
        }
        Ok(socket)
    }
}

/// True if an address belongs to this machine: only then can it be bound.
fn is_local(ip: IpAddr) -> bool {
    std::net::UdpSocket::bind((ip, 0)).is_ok()
}

thread_local! {
    /// The thread's own namespace.
    static HOME: OnceCell<File> = const { OnceCell::new() };
}

impl NetworkNamespace {
    /// Opens a namespace by its path, such as `/run/netns/NAME` or `/proc/PID/ns/net`.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(NetworkNamespace(Arc::new(File::open(path)?)))
    }

    /// Runs a function on this thread inside the namespace.
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
                tracing::error!(%error, "can't leave a network namespace");
                // All later sockets of this thread would be created in the wrong namespace.
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
    async fn no_spelling_of_the_admin_servers_address_can_be_connected_to() {
        let sockets = |admin: &std::net::TcpListener| {
            let address = admin.local_addr().expect("an address");
            (
                SocketFactory::default().without_admin(address),
                address.port(),
            )
        };
        let refused = async |sockets: &SocketFactory, ip: &str, port: u16| {
            let address = SocketAddr::new(ip.parse().expect(ip), port);
            match sockets.connect(address).await {
                Err(error) => error.to_string().contains("own admin server"),
                Ok(_) => false,
            }
        };
        let admin = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let (only_loopback, port) = sockets(&admin);
        for ip in [
            "127.0.0.1",
            "::ffff:127.0.0.1",
            "0.0.0.0",
            "::",
            "::ffff:0.0.0.0",
        ] {
            assert!(refused(&only_loopback, ip, port).await, "{ip}");
        }
        assert!(
            !refused(&only_loopback, "127.0.0.2", port).await,
            "another address"
        );
        assert!(
            !refused(&only_loopback, "127.0.0.1", port - 1).await,
            "another port"
        );

        let admin = std::net::TcpListener::bind("0.0.0.0:0").expect("a port");
        let (wildcard, port) = sockets(&admin);
        let mut own = vec![
            "127.0.0.1".to_owned(),
            "127.8.9.10".to_owned(),
            "0.0.0.0".to_owned(),
        ];
        own.extend(machine_address());
        for ip in own {
            assert!(refused(&wildcard, &ip, port).await, "{ip}");
        }
        assert!(!wildcard.reaches_admin(SocketAddr::new([192, 0, 2, 1].into(), port)));
    }

    /// An address of an interface of this machine, if it has a route to other networks. Sends nothing.
    fn machine_address() -> Option<String> {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
        socket.connect("192.0.2.1:9").ok()?;
        Some(socket.local_addr().ok()?.ip().to_string())
    }

    #[tokio::test]
    #[allow(clippy::print_stderr, reason = "a skipped test explains why")]
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
