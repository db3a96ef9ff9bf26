//! A reverse proxy on hyper and rustls without routing, limits or metrics, on one thread. It shows the cost of the libraries alone.
//!
//! `plain-hyper ADDRESS BACKEND CERTIFICATE KEY` listens on the ports listed in `contestants.py`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::{Request, Uri};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

type Pool = Client<HttpConnector, Incoming>;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, backend, certificate, key] = arguments.as_slice() else {
        panic!("plain-hyper ADDRESS BACKEND CERTIFICATE KEY");
    };
    let address: IpAddr = address.parse().expect("an address");
    let backend: IpAddr = backend.parse().expect("an address");
    let chain = CertificateDer::pem_file_iter(certificate).expect("a file");
    let chain = chain.collect::<Result<_, _>>().expect("certificates");
    let key = PrivateKeyDer::from_pem_file(key).expect("a key");
    let tls = rustls::ServerConfig::builder().with_no_client_auth();
    let tls = tls
        .with_single_cert(chain, key)
        .expect("a certificate and its key");
    let tls = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let pool = Client::builder(TokioExecutor::new()).build::<_, Incoming>(connector.clone());
    let pool2 = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build::<_, Incoming>(connector);
    for (port, target) in [
        (8080, 7001),
        (8082, 7001),
        (8083, 7002),
        (8443, 7001),
        (9000, 7003),
        (9001, 7004),
        (9002, 7005),
    ] {
        let listener = TcpListener::bind(SocketAddr::new(address, port))
            .await
            .expect("a port");
        let target = SocketAddr::new(backend, target);
        let (tls, pool) = (
            tls.clone(),
            if port == 8083 {
                pool2.clone()
            } else {
                pool.clone()
            },
        );
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                let (tls, pool) = (tls.clone(), pool.clone());
                tokio::spawn(async move {
                    match port {
                        8080 => serve(stream, false, pool, target).await,
                        8082 | 8083 => serve(stream, true, pool, target).await,
                        8443 => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, false, pool, target).await;
                            }
                        }
                        _ => {
                            if let Ok(mut other) = TcpStream::connect(target).await {
                                let _ = other.set_nodelay(true);
                                let _ = tokio::io::copy_bidirectional_with_sizes(
                                    &mut stream,
                                    &mut other,
                                    96 << 10,
                                    96 << 10,
                                )
                                .await;
                            }
                        }
                    }
                });
            }
        });
    }
    std::future::pending::<()>().await;
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    http2: bool,
    pool: Pool,
    target: SocketAddr,
) {
    let forward = service_fn(move |mut request: Request<Incoming>| {
        let path = request
            .uri()
            .path_and_query()
            .map_or("/", |path| path.as_str());
        let uri = Uri::builder()
            .scheme("http")
            .authority(target.to_string())
            .path_and_query(path)
            .build();
        *request.uri_mut() = uri.expect("a URI");
        *request.version_mut() = http::Version::HTTP_11;
        let pool = pool.clone();
        async move { pool.request(request).await }
    });
    let stream = TokioIo::new(stream);
    if http2 {
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = server.serve_connection(stream, forward).await;
    } else {
        let server = hyper::server::conn::http1::Builder::new();
        let _ = server.serve_connection(stream, forward).await;
    }
}
