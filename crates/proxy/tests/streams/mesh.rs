//! Tests of Service ports in the mesh: the client's address selects the routes; without routes, traffic goes to the Service itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};

use crate::certificates::{TestCertificate, any_client, tls_backend};
use crate::support::*;
use pointsman_binding::bound::Transport;
use pointsman_resources::Kind;
use rustls::pki_types::ServerName;

/// Connects from this address.
fn connect_from(from: Ipv4Addr, at: SocketAddr) -> TcpStream {
    let socket =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket
        .bind(&SocketAddr::from((from, 0)).into())
        .expect("bound");
    socket.connect(&at.into()).expect("connected");
    with_timeouts(TcpStream::from(socket))
}

/// Connects from this address, half-closes, and returns everything received.
fn send_and_read_from(from: Ipv4Addr, at: SocketAddr) -> String {
    let mut stream = connect_from(from, at);
    stream.shutdown(Shutdown::Write).expect("ended");
    let mut received = String::new();
    stream.read_to_string(&mut received).expect("read");
    received
}

/// Returns a route in this namespace whose parent is Service `infra/web`.
fn mesh_route(kind: &str, namespace: &str, backend: &str) -> String {
    format!(
        "\n---\n{{apiVersion: gateway.networking.k8s.io/v1, kind: {kind}, metadata: {{namespace: {namespace}, name: m}}, spec: {{parentRefs: [{{group: '', kind: Service, name: web, namespace: infra, port: 1000}}], rules: [{{backendRefs: [{{name: {backend}, namespace: infra, port: 1000}}]}}]}}}}"
    )
}

#[test]
fn consumer_routes_replace_producer_routes_for_clients_of_their_namespace() {
    let services = service("web", &[named_backend("web")])
        + &service("canary", &[named_backend("canary")])
        + &service("mine", &[named_backend("mine")]);
    let mut proxy = TestProxy::new(&services);
    let at = proxy.listen_on_service(("infra", "web"), 1000, Transport::Tcp);
    let (consumer, anybody) = (address(), address());
    proxy.add_pod(consumer, "team");
    assert_eq!(
        send_and_read_from(anybody, at),
        "web 0 bytes",
        "no route matches"
    );
    assert_eq!(send_and_read_from(consumer, at), "web 0 bytes");
    proxy.apply(&mesh_route("TCPRoute", "team", "mine"));
    assert_eq!(send_and_read_from(anybody, at), "web 0 bytes");
    assert_eq!(send_and_read_from(consumer, at), "mine 0 bytes");
    proxy.apply(&mesh_route("TCPRoute", "infra", "canary"));
    assert_eq!(send_and_read_from(anybody, at), "canary 0 bytes");
    assert_eq!(send_and_read_from(consumer, at), "mine 0 bytes");
    proxy.delete(Kind::TCPRoute, "team", "m");
    assert_eq!(send_and_read_from(consumer, at), "canary 0 bytes");
    proxy.delete(Kind::TCPRoute, "infra", "m");
    assert_eq!(send_and_read_from(anybody, at), "web 0 bytes");
    let labels = "kind=\"Service\",namespace=\"infra\",name=\"web\",port=\"1000\"";
    proxy.wait_for_metric("pointsman_listener_open_connections", labels, 0);
}

#[test]
fn the_sni_is_matched_where_a_tls_route_is_attached() {
    let theirs = TestCertificate::new("web.example");
    let services = service("web", &[tls_backend("web", &theirs)])
        + &service("other", &[tls_backend("other", &theirs)]);
    let mut proxy = TestProxy::new(&services);
    let at = proxy.listen_on_service(("infra", "web"), 1000, Transport::Tcp);
    let request_as = |name: &str| {
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let connection = rustls::ClientConnection::new(any_client(), name).expect("a connection");
        let mut stream = rustls::StreamOwned::new(connection, connect(at));
        stream.write_all(b"hi\n").expect("written");
        let mut received = String::new();
        stream.read_to_string(&mut received).expect("read");
        received
    };
    assert_eq!(request_as("web.example"), "web web.example hi");
    let route = "\n---\n{apiVersion: gateway.networking.k8s.io/v1, kind: TLSRoute, metadata: {namespace: infra, name: m}, spec: {parentRefs: [{group: '', kind: Service, name: web, port: 1000}], hostnames: [web.example], rules: [{backendRefs: [{name: other, port: 1000}]}]}}";
    proxy.apply(route);
    assert_eq!(request_as("web.example"), "other web.example hi");
}

#[test]
fn datagrams_go_to_the_service_itself_without_routes() {
    let echo = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = echo.local_addr().expect("an address");
    std::thread::spawn(move || {
        let mut buf = [0; 100];
        while let Ok((count, from)) = echo.recv_from(&mut buf) {
            let _ = echo.send_to(&buf[..count], from);
        }
    });
    let mut proxy = TestProxy::new(&udp_service("web", &[address]));
    let at = proxy.listen_on_service(("infra", "web"), 1000, Transport::Udp);
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    client.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    client.send_to(b"hello", at).expect("sent");
    let mut buf = [0; 100];
    let (count, from) = client.recv_from(&mut buf).expect("a response");
    assert_eq!((&buf[..count], from), (&b"hello"[..], at));
}

/// Starts an HTTP backend that responds with its name.
fn http_named(name: &'static str) -> SocketAddr {
    backend(move |stream| {
        let mut lines = BufReader::new(stream.try_clone().expect("a clone")).lines();
        while lines
            .by_ref()
            .map_while(Result::ok)
            .any(|line| line.is_empty())
        {
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}",
                name.len()
            );
            if (&stream).write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    })
}

/// Sends a request and keeps the connection open. Returns the body of the response.
fn request(stream: &mut BufReader<TcpStream>) -> String {
    let request = b"GET / HTTP/1.1\r\nhost: web.infra\r\n\r\n";
    stream.get_mut().write_all(request).expect("written");
    let mut length = 0;
    loop {
        let mut line = String::new();
        assert!(
            stream.read_line(&mut line).expect("a line") > 0,
            "unexpected end"
        );
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().expect("a length");
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("a body");
    String::from_utf8(body).expect("text")
}

#[test]
fn a_connection_keeps_its_source_and_its_requests_see_changed_routes() {
    let services = service("web", &[http_named("web")])
        + &service("canary", &[http_named("canary")])
        + &service("mine", &[http_named("mine")]);
    let mut proxy = TestProxy::new(&services);
    let at = proxy.listen_on_service(("infra", "web"), 1000, Transport::Tcp);
    proxy.apply(&mesh_route("HTTPRoute", "infra", "canary"));
    let consumer = address();
    let mut connection = BufReader::new(connect_from(consumer, at));
    assert_eq!(request(&mut connection), "canary");
    proxy.add_pod(consumer, "team");
    proxy.apply(&mesh_route("HTTPRoute", "team", "mine"));
    assert_eq!(request(&mut connection), "mine", "the address was reported");
    proxy.add_pod(consumer, "other");
    assert_eq!(
        request(&mut connection),
        "mine",
        "the first Pod's connection"
    );
    let mut later = BufReader::new(connect_from(consumer, at));
    assert_eq!(request(&mut later), "canary", "the other Pod's connection");
    proxy.delete(Kind::HTTPRoute, "team", "m");
    assert_eq!(request(&mut connection), "canary");
}
