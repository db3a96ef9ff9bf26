//! Load generator for cases that wrk and h2load don't support. Prints a line of JSON with the number of operations and the seconds they took.
//!
//! ```text
//! load tcp-down ADDRESS CONNECTIONS SECONDS     bytes read
//! load tcp-up ADDRESS CONNECTIONS SECONDS       bytes written
//! load tcp-short ADDRESS CONNECTIONS SECONDS    connections, each with one small message that is echoed
//! load tcp-messages ADDRESS CONNECTIONS SECONDS small messages that are echoed
//! load handshakes ADDRESS CONNECTIONS SECONDS   full TLS 1.3 handshakes
//! load upload ADDRESS CONNECTIONS SECONDS       requests with bodies of 1 MiB
//! load connections ADDRESS CONNECTIONS SECONDS  HTTP/1 requests, each on a new connection
//! load idle-http1|idle-http2|idle-tls ADDRESS CONNECTIONS
//!     opens connections, sends one request on each, prints "open", and keeps them open until the end of its standard input
//! ```

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;
use tokio_rustls::TlsConnector;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: bench.example\r\n\r\n";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<f64>().ok());
    let (Some(mode), Some(Ok(address)), Some(connections)) = (
        arguments.first(),
        arguments.get(1).map(|text| text.parse::<SocketAddr>()),
        number(2),
    ) else {
        panic!("load MODE ADDRESS CONNECTIONS [SECONDS]");
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let tasks = LocalSet::new();
    if mode.starts_with("idle-") {
        return tasks.block_on(&runtime, idle(mode.clone(), address, connections as usize));
    }
    let count = Rc::new(Cell::new(0_u64));
    let started = Instant::now();
    for _ in 0..connections as usize {
        tasks.spawn_local(repeat(mode.clone(), address, count.clone()));
    }
    let time = Duration::from_secs_f64(number(3).unwrap_or(1.0));
    tasks.block_on(&runtime, async { tokio::time::sleep(time).await });
    println!(
        "{{\"count\": {}, \"seconds\": {}}}",
        count.get(),
        started.elapsed().as_secs_f64()
    );
}

/// Repeats an operation. Failed operations are retried and not counted.
async fn repeat(mode: String, address: SocketAddr, count: Rc<Cell<u64>>) {
    let tls = connector();
    loop {
        let done = match mode.as_str() {
            "tcp-down" => down(address, &count).await,
            "tcp-up" => up(address, &count).await,
            "tcp-short" => short(address, &count).await,
            "tcp-messages" => messages(address, &count).await,
            "handshakes" => shake(address, &tls, &count).await,
            "upload" => upload(address, &count).await,
            "connections" => single(address, &count).await,
            other => panic!("unknown mode {other}"),
        };
        if done.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn add(count: &Cell<u64>, more: usize) {
    count.set(count.get() + more as u64);
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn down(address: SocketAddr, count: &Cell<u64>) -> io::Result<()> {
    let mut stream = connect(address).await?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            length => add(count, length),
        }
    }
}

async fn up(address: SocketAddr, count: &Cell<u64>) -> io::Result<()> {
    let mut stream = connect(address).await?;
    let buffer = vec![0; 256 << 10];
    loop {
        let length = stream.write(&buffer).await?;
        add(count, length);
    }
}

async fn short(address: SocketAddr, count: &Cell<u64>) -> io::Result<()> {
    let mut stream = connect(address).await?;
    stream.write_all(&[b'x'; 64]).await?;
    let mut buffer = [0; 64];
    stream.read_exact(&mut buffer).await?;
    add(count, 1);
    Ok(())
}

async fn messages(address: SocketAddr, count: &Cell<u64>) -> io::Result<()> {
    let mut stream = connect(address).await?;
    let mut buffer = [0; 64];
    loop {
        stream.write_all(&[b'x'; 64]).await?;
        stream.read_exact(&mut buffer).await?;
        add(count, 1);
    }
}

async fn shake(address: SocketAddr, tls: &TlsConnector, count: &Cell<u64>) -> io::Result<()> {
    let stream = connect(address).await?;
    let name = ServerName::try_from("bench.example").expect("a name");
    let mut stream = tls.connect(name, stream).await?;
    add(count, 1);
    stream.shutdown().await
}

async fn upload(address: SocketAddr, count: &Cell<u64>) -> io::Result<()> {
    let mut stream = connect(address).await?;
    let head = format!(
        "POST /up HTTP/1.1\r\nHost: bench.example\r\nContent-Length: {}\r\n\r\n",
        1 << 20
    );
    let body = vec![b'x'; 1 << 20];
    let mut buffer = vec![0; 4096];
    loop {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&body).await?;
        response(&mut stream, &mut buffer).await?;
        add(count, 1);
    }
}

async fn single(address: SocketAddr, count: &Cell<u64>) -> io::Result<()> {
    let mut stream = connect(address).await?;
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: bench.example\r\nConnection: close\r\n\r\n")
        .await?;
    let mut buffer = vec![0; 4096];
    response(&mut stream, &mut buffer).await?;
    add(count, 1);
    Ok(())
}

/// Reads a small response, whose body is the text that the backend always sends.
async fn response(stream: &mut (impl AsyncRead + Unpin), buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    loop {
        let length = stream.read(&mut buffer[filled..]).await?;
        filled += length;
        if length == 0 || !buffer.starts_with(b"HTTP/1.1 200") {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let response = &buffer[..filled];
        if response.ends_with(b"hello, world\n") || response.ends_with(b"\r\n0\r\n\r\n") {
            return Ok(());
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

async fn idle(mode: String, address: SocketAddr, connections: usize) {
    let tls = connector();
    let mut kept: Vec<Box<dyn Stream>> = Vec::new();
    let mut kept2 = Vec::new();
    for _ in 0..connections {
        let stream = connect(address).await.expect("a connection");
        let mut stream: Box<dyn Stream> = match mode.as_str() {
            "idle-http2" => {
                let (mut requests, connection) =
                    h2::client::handshake(stream).await.expect("HTTP/2");
                tokio::task::spawn_local(connection);
                let request = http::Request::get("http://bench.example/")
                    .body(())
                    .expect("a request");
                let (response, _) = requests.send_request(request, true).expect("sent");
                let mut body = response.await.expect("a response").into_body();
                while let Some(Ok(_)) = body.data().await {}
                kept2.push((requests, Bytes::new()));
                continue;
            }
            "idle-tls" => {
                let name = ServerName::try_from("bench.example").expect("a name");
                Box::new(tls.connect(name, stream).await.expect("TLS"))
            }
            _ => Box::new(stream),
        };
        stream.write_all(GET).await.expect("sent");
        response(&mut stream, &mut [0; 4096])
            .await
            .expect("a response");
        kept.push(stream);
    }
    println!("open");
    // Reads on another thread, because this one has to drive the connections.
    let _ = tokio::task::spawn_blocking(|| io::copy(&mut io::stdin(), &mut io::sink())).await;
}

/// Creates a TLS client that accepts any certificate and does not resume sessions.
fn connector() -> TlsConnector {
    let mut config =
        rustls::ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate))
            .with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    TlsConnector::from(Arc::new(config))
}

#[derive(Debug)]
struct AcceptAnyCertificate;

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
