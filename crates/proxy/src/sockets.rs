//! Creation of sockets. The sockets of Gateways, loopback Services and captured Pods differ only in address, mark and network namespace.

use std::cell::OnceCell;
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use pointsman_binding::bound::Transport;
use pointsman_binding::{OwnServer, OwnServers, is_reached_at};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::sync::watch;

/// Creates listening and upstream sockets.
#[derive(Debug, Clone, Default)]
pub struct SocketFactory {
    mark: Option<u32>,
    namespace: Option<NetworkNamespace>,
    own: Arc<OwnServers>,
    control_plane: Option<watch::Receiver<OwnServers>>,
}

/// A network namespace other than that of the process. Clones refer to the same namespace.
#[derive(Debug, Clone)]
pub struct NetworkNamespace(Arc<File>);

impl SocketFactory {
    /// Returns whether both create sockets in the same network namespace and with the same mark. Refused addresses are the same for all factories of a process.
    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        let same_namespace = match (&self.namespace, &other.namespace) {
            (None, None) => true,
            (Some(own), Some(other)) => Arc::ptr_eq(&own.0, &other.0),
            _ => false,
        };
        self.mark == other.mark && same_namespace
    }

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

    /// Refuses connections to servers of this process, which listen at these addresses.
    pub fn without_own(mut self, own: OwnServers) -> Self {
        self.own = Arc::new(own);
        self
    }

    /// Refuses connections to the servers of a control plane, whose addresses become known while the process runs.
    pub fn without_control_plane(mut self, servers: watch::Receiver<OwnServers>) -> Self {
        self.control_plane = Some(servers);
        self
    }

    /// Returns the server of Pointsman itself that a connection to an address reaches. All upstream connections pass this check, after name resolution and
    /// routing.
    pub(crate) fn own_server(&self, address: SocketAddr) -> Option<OwnServer> {
        let ip = address.ip().to_canonical();
        // These servers can't be reached over the loopback interface of another network namespace.
        if self.namespace.is_some() && (ip.is_loopback() || ip.is_unspecified()) {
            return None;
        }
        let reaches = |(_, listener): &(OwnServer, SocketAddr)| {
            let wildcard = listener.port() == address.port() && listener.ip().is_unspecified();
            is_reached_at(*listener, address) || wildcard && is_local(ip)
        };
        let here = self.own.iter().find(reaches).map(|(server, _)| server);
        // In a process without a control plane there is no lock.
        let remote = || self.control_plane.as_ref()?.borrow().reached_at(address);
        here.or_else(remote)
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
        if let Some(server) = self.own_server(address) {
            let message = format!("{address} is {server}, which routes can't reach");
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

/// Returns the addresses at which a listener can be reached, from other machines or from this one: those of all interfaces if it listens on a wildcard address.
pub fn reachable_at(listener: SocketAddr) -> Vec<SocketAddr> {
    let mut addresses = vec![listener];
    if listener.ip().is_unspecified() {
        // Without them connections are refused as well, but no condition reports why.
        let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
        let ips = interfaces.filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|address| address.ip().into());
            v4.or_else(|| Some(address.as_sockaddr_in6()?.ip().into()))
        });
        addresses.extend(ips.map(|ip: IpAddr| SocketAddr::new(ip, listener.port())));
    }
    addresses
}

/// Returns whether an address belongs to this machine, which is the case if it can be bound.
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

    #[test]
    fn factories_with_another_mark_or_namespace_are_not_equivalent() {
        let plain = SocketFactory::default();
        let marked = SocketFactory::default().with_mark(7);
        assert!(plain.is_equivalent(&SocketFactory::default()));
        assert!(marked.is_equivalent(&marked.clone()));
        assert!(!plain.is_equivalent(&marked));
        let own = NetworkNamespace::open(Path::new("/proc/self/ns/net")).expect("a namespace");
        let inside = SocketFactory::default().in_namespace(own);
        assert!(inside.is_equivalent(&inside.clone()));
        assert!(!plain.is_equivalent(&inside));
    }

    #[tokio::test]
    async fn no_spelling_of_the_admin_servers_address_can_be_connected_to() {
        let sockets = |admin: &std::net::TcpListener| {
            let address = admin.local_addr().expect("an address");
            let mut own = OwnServers::default();
            own.add(OwnServer::Admin, address);
            (SocketFactory::default().without_own(own), address.port())
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
        let elsewhere = SocketAddr::new([192, 0, 2, 1].into(), port);
        assert_eq!(wildcard.own_server(elsewhere), None);
    }

    #[tokio::test]
    async fn a_control_plane_whose_address_becomes_known_later_cannot_be_connected_to() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = server.local_addr().expect("an address");
        let (learned, servers) = watch::channel(OwnServers::default());
        let sockets = SocketFactory::default().without_control_plane(servers);
        assert!(sockets.connect(address).await.is_ok());
        learned.send_modify(|own| own.add(OwnServer::ControlPlane, address));
        let mapped = SocketAddr::new("::ffff:127.0.0.1".parse().expect("an IP"), address.port());
        for address in [address, mapped] {
            let error = sockets.connect(address).await.expect_err("refused");
            assert!(error.to_string().contains("own control plane"), "{error}");
        }
    }

    #[test]
    fn a_wildcard_listener_is_reached_at_all_interfaces() {
        let at = |text: &str| {
            let found = reachable_at(text.parse().expect(text));
            let texts = found.iter().map(ToString::to_string);
            texts.collect::<Vec<String>>()
        };
        assert_eq!(at("127.0.0.1:15000"), ["127.0.0.1:15000"]);
        let all = at("0.0.0.0:15000");
        assert!(all.contains(&"0.0.0.0:15000".to_owned()), "{all:?}");
        assert!(all.contains(&"127.0.0.1:15000".to_owned()), "{all:?}");
        if let Some(own) = machine_address() {
            assert!(all.contains(&format!("{own}:15000")), "{all:?}");
        }
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
