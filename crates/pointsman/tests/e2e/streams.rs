//! TCPRoute, TLSRoute and UDPRoute.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UdpSocket;

use crate::agree::encoded;
use crate::support::backend::Backend;
use crate::support::certificates::{Authority, Handshake};
use crate::support::gateway::{Address, Gateway};
use crate::support::http1::Http1;
use crate::support::manifests::*;
use crate::support::within;

const PORT: u16 = 9000;

fn tcp() -> String {
    gateway(&[&format!("{{name: tcp, port: {PORT}, protocol: TCP}}")])
}

#[tokio::test]
async fn a_tcp_connection_can_be_half_closed_in_each_direction() {
    let backend = Backend::tcp("echo").await;
    let manifests = [
        tcp(),
        service("echo", &[&backend]),
        route_of("TCPRoute", "echo", "", &[&to("echo")]),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    let mut client = Http1::connect(gateway.at(PORT)).await;
    assert_eq!(client.exactly(5).await.expect("a greeting"), b"echo\n");
    client.send("ping").await;
    assert_eq!(client.exactly(4).await.expect("an answer"), b"ping");
    // The client has half-closed the connection; data from the backend still arrives.
    let large = vec![b'x'; 3_000_000];
    let stream = client.into_stream();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let sent = large.len();
    let writing = tokio::spawn(async move {
        writer.write_all(&large).await.expect("sent");
        writer.shutdown().await.expect("ended");
    });
    let mut got = Vec::new();
    within("the end of the stream", reader.read_to_end(&mut got))
        .await
        .expect("read");
    writing.await.expect("written");
    assert_eq!(got.len(), sent);
    backend.open(0).await;
}

#[tokio::test]
async fn tcp_connections_are_distributed_by_exact_weight() {
    let (one, two) = (Backend::tcp("one").await, Backend::tcp("two").await);
    let manifests = [
        tcp(),
        service("one", &[&one]),
        service("two", &[&two]),
        route_of(
            "TCPRoute",
            "web",
            "",
            &["backendRefs: [{name: one, port: 80, weight: 3}, {name: two, port: 80, weight: 1}]"],
        ),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    for _ in 0..20 {
        let mut client = Http1::connect(gateway.at(PORT)).await;
        client.exactly(4).await.expect("a greeting");
    }
    assert_eq!((one.count(), two.count()), (15, 5));
}

#[tokio::test]
async fn a_tcp_connection_without_a_backend_is_closed() {
    let manifests = [
        tcp(),
        service("empty", &[]),
        route_of("TCPRoute", "web", "", &[&to("empty")]),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    let mut client = Http1::connect(gateway.at(PORT)).await;
    assert_eq!(client.rest().await, b"");
}

#[tokio::test]
async fn tls_is_passed_through_by_sni_and_unknown_names_are_closed() {
    let authority = Authority::new();
    let server = |name: &str| authority.issue(&[name]).server(&["http/1.1"], None);
    let one = Backend::tls("one", server("one.example")).await;
    let two = Backend::tls("two", server("a.two.example")).await;
    let manifests = [
        gateway(&[&format!(
            "{{name: tls, port: {PORT}, protocol: TLS, tls: {{mode: Passthrough}}}}"
        )]),
        service("one", &[&one]),
        service("two", &[&two]),
        route_of(
            "TLSRoute",
            "one",
            "  hostnames: [one.example]\n",
            &[&to("one")],
        ),
        route_of(
            "TLSRoute",
            "two",
            "  hostnames: ['*.two.example']\n",
            &[&to("two")],
        ),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    for (name, expected) in [("one.example", "one"), ("a.two.example", "two")] {
        let stream = Handshake::new(&authority, name)
            .connect(gateway.at(PORT))
            .await;
        let response = Http1::over(stream)
            .ask(&crate::support::message::get("/"))
            .await;
        assert_eq!(response.backend(), Some(expected));
    }
    assert!(
        Handshake::new(&authority, "three.example")
            .try_connect(gateway.at(PORT))
            .await
            .is_err()
    );
    assert_eq!((one.connections(), two.connections()), (1, 1));
}

#[tokio::test]
async fn tls_is_terminated_for_a_tls_route_beside_passthrough_on_one_port() {
    let authority = Authority::new();
    let echo = Backend::tcp("echo").await;
    let through = Backend::tls(
        "through",
        authority.issue(&["through.example"]).server(&[], None),
    )
    .await;
    let manifests = [
        gateway(&[
            &format!(
                "{{name: ends, port: {PORT}, protocol: TLS, hostname: ends.example, tls: {{mode: Terminate, certificateRefs: [{{name: cert}}]}}}}"
            ),
            &format!(
                "{{name: through, port: {PORT}, protocol: TLS, hostname: through.example, tls: {{mode: Passthrough}}}}"
            ),
        ]),
        authority.issue(&["ends.example"]).secret("default/cert"),
        service("echo", &[&echo]),
        service("through", &[&through]),
        route_of(
            "TLSRoute",
            "ends",
            "  hostnames: [ends.example]\n",
            &[&to("echo")],
        ),
        route_of(
            "TLSRoute",
            "through",
            "  hostnames: [through.example]\n",
            &[&to("through")],
        ),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    let mut stream = Handshake::new(&authority, "ends.example")
        .connect(gateway.at(PORT))
        .await;
    stream.write_all(b"ping").await.expect("sent");
    let mut got = [0; 9];
    within("an answer", stream.read_exact(&mut got))
        .await
        .expect("read");
    assert_eq!(&got, b"echo\nping");
    let stream = Handshake::new(&authority, "through.example")
        .connect(gateway.at(PORT))
        .await;
    let response = Http1::over(stream)
        .ask(&crate::support::message::get("/"))
        .await;
    assert_eq!(response.backend(), Some("through"));
}

/// "Clients without SNI" (databases, MQTT) have a port that terminates TLS: TLSRoutes take connections by SNI, and a TCPRoute takes the rest.
#[tokio::test]
async fn a_tcp_route_gets_the_connections_that_no_tls_route_matches_on_a_terminating_port() {
    let authority = Authority::new();
    let (named, rest) = (Backend::tcp("named").await, Backend::tcp("rest").await);
    let names = ["db.example", "other.example", "192.0.2.1"];
    let manifests = [
        gateway(&[&format!(
            "{{name: tls, port: {PORT}, protocol: TLS, tls: {{certificateRefs: [{{name: cert}}]}}}}"
        )]),
        authority.issue(&names).secret("default/cert"),
        service("named", &[&named]),
        service("rest", &[&rest]),
        route_of("TCPRoute", "rest", "", &[&to("rest")]),
        route_of(
            "TLSRoute",
            "named",
            "  hostnames: [db.example]\n",
            &[&to("named")],
        ),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    let address = gateway.address.ip.to_string();
    // A client sends no SNI for an address.
    let clients = [
        ("db.example", "db.example", "named"),
        ("other.example", "other.example", "rest"),
        ("192.0.2.1", &address, "rest"),
    ];
    for (name, host, expected) in clients {
        let mut stream = Handshake::new(&authority, name)
            .connect(gateway.at(PORT))
            .await;
        let greeting = format!("{expected}\n");
        let mut got = vec![0; greeting.len()];
        within("a greeting", stream.read_exact(&mut got))
            .await
            .expect("read");
        assert_eq!(got, greeting.as_bytes(), "{name}");
        let url = encoded(&format!("tls://{host}:{PORT}"));
        let explained = gateway.ask_admin(&format!("/explain?url={url}")).await;
        let explained = explained.json();
        assert_eq!(explained["rule"]["name"], expected, "{explained:#}");
    }
}

/// Sends a datagram until a response arrives: datagrams may be lost, and a session may expire in the meantime.
async fn datagram(socket: &UdpSocket, text: &str) -> String {
    let mut buffer = vec![0; 65536];
    within("the answer to a datagram", async {
        loop {
            socket.send(text.as_bytes()).await.expect("sent");
            let patience = std::time::Duration::from_secs(2);
            while let Ok(length) = tokio::time::timeout(patience, socket.recv(&mut buffer)).await {
                let answer =
                    String::from_utf8_lossy(&buffer[..length.expect("received")]).into_owned();
                if answer.ends_with(text) {
                    return answer;
                }
            }
        }
    })
    .await
}

async fn udp_client(gateway: &Gateway) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    socket.connect(gateway.at(PORT)).await.expect("connected");
    socket
}

fn udp_manifests(backends: &[&Backend]) -> String {
    [
        gateway(&[&format!("{{name: udp, port: {PORT}, protocol: UDP}}")]),
        udp_service("echo", backends),
        route_of("UDPRoute", "echo", "", &[&to("echo")]),
    ]
    .concat()
}

#[tokio::test]
async fn datagrams_of_one_client_are_one_session() {
    let (one, two) = (Backend::udp("one").await, Backend::udp("two").await);
    let gateway = Gateway::of(&udp_manifests(&[&one, &two])).await;
    let (first, second) = (udp_client(&gateway).await, udp_client(&gateway).await);
    let answers: Vec<String> = [
        datagram(&first, "a").await,
        datagram(&first, "b").await,
        datagram(&second, "c").await,
    ]
    .into();
    let of_first = answers[0].split(':').next();
    assert_eq!(answers[1].split(':').next(), of_first, "{answers:?}");
    assert!(
        answers[0].ends_with(": a") && answers[2].ends_with(": c"),
        "{answers:?}"
    );
    let mut ports: Vec<usize> = Vec::new();
    for backend in [&one, &two] {
        if backend.count() > 0 {
            ports.extend(backend.saw(1).await.iter().map(|saw| saw.connection));
        }
    }
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 2, "a port of ours for each session: {ports:?}");
    let large = "x".repeat(60_000);
    assert!(datagram(&first, &large).await.ends_with(&large));
}

#[tokio::test]
async fn a_udp_session_expires() {
    let backend = Backend::udp("echo").await;
    let setup = Gateway::setup(&udp_manifests(&[&backend])).limit("udp-idle-time", "100ms");
    let gateway = setup.start().await;
    let client = udp_client(&gateway).await;
    // Repeats until there is a new session, which has another source port at the backend.
    within("a second session", async {
        for number in 0.. {
            datagram(&client, &format!("number {number}")).await;
            let mut ports: Vec<usize> = backend
                .saw(1)
                .await
                .iter()
                .map(|saw| saw.connection)
                .collect();
            ports.dedup();
            if ports.len() > 1 {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn endpoints_may_have_ipv6_addresses() {
    let Ok(listener) = tokio::net::TcpListener::bind("[::1]:0").await else {
        return;
    };
    let address = listener.local_addr().expect("an address");
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.write_all(b"six").await.expect("sent");
    });
    let manifests = [
        tcp(),
        service_at("six", "http", &[address]),
        route_of("TCPRoute", "six", "", &[&to("six")]),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    assert_eq!(Http1::connect(gateway.at(PORT)).await.rest().await, b"six");
    serving.await.expect("served");
}

/// Requests the test's own address with `spec.addresses`.
#[tokio::test]
async fn a_gateway_listens_on_the_addresses_that_it_requests() {
    let (first, second) = (Address::new(), Address::new());
    let backend = Backend::tcp("echo").await;
    let addresses = format!(
        "  addresses: [{{type: IPAddress, value: {}}}, {{type: IPAddress, value: {}}}]\n",
        first.ip, second.ip
    );
    let manifests = [
        gateway_with(
            &addresses,
            &[&format!("{{name: tcp, port: {PORT}, protocol: TCP}}")],
        ),
        service("echo", &[&backend]),
        route_of("TCPRoute", "echo", "", &[&to("echo")]),
    ];
    let _gateway = Gateway::of(&manifests.concat()).await;
    for address in [&first, &second] {
        let mut client = Http1::connect((address.ip, PORT).into()).await;
        assert_eq!(client.exactly(5).await.expect("a greeting"), b"echo\n");
    }
}

#[tokio::test]
async fn responses_to_datagrams_come_from_the_address_they_were_sent_to() {
    let backend = Backend::udp("echo").await;
    // An unused port, because it is bound on every address.
    let free = UdpSocket::bind("0.0.0.0:0").await.expect("a port");
    let port = free.local_addr().expect("an address").port();
    drop(free);
    let manifests = [
        gateway_with(
            "  addresses: [{type: IPAddress, value: 0.0.0.0}, {type: IPAddress, value: '::'}]\n",
            &[&format!("{{name: udp, port: {port}, protocol: UDP}}")],
        ),
        udp_service("echo", &[&backend]),
        route_of("UDPRoute", "echo", "", &[&to("echo")]),
    ];
    let _gateway = Gateway::of(&manifests.concat()).await;
    let (first, second) = (Address::new(), Address::new());
    // One socket sends to two addresses, and each responds from itself.
    let client = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    for address in [&first, &second, &first] {
        client.connect((address.ip, port)).await.expect("connected");
        assert_eq!(datagram(&client, "who").await, "echo: who");
    }
    if let Ok(client) = UdpSocket::bind("[::1]:0").await {
        client.connect(("::1", port)).await.expect("connected");
        assert_eq!(datagram(&client, "six").await, "echo: six");
    }
}
