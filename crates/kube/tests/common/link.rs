//! A connection to the API server that a test can cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::{Client, Config};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A relay between a client and the API server.
pub struct Link {
    config: Config,
    is_up: watch::Sender<bool>,
    /// True while nothing is relayed, on open connections.
    is_stalled: watch::Sender<bool>,
    refused: Arc<AtomicUsize>,
}

impl Link {
    pub async fn start() -> Self {
        let mut config = Config::infer().await.expect("KUBECONFIG names a cluster");
        let host = config.cluster_url.host().expect("a host").to_owned();
        let server = format!("{host}:{}", config.cluster_url.port_u16().unwrap_or(443));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        config.tls_server_name = Some(host);
        config.cluster_url = format!("https://{address}").parse().expect("a URL");
        let (is_up, state) = watch::channel(true);
        let (is_stalled, stalled) = watch::channel(false);
        let refused: Arc<AtomicUsize> = Arc::default();
        let states = (state, stalled);
        tokio::spawn(relay(listener, server, states, refused.clone()));
        Link {
            config,
            is_up,
            is_stalled,
            refused,
        }
    }

    /// A client whose connections go through the relay.
    pub fn client(&self) -> Client {
        Client::try_from(self.config.clone()).expect("a client")
    }

    /// Closes all connections and accepts no more.
    pub fn cut(&self) {
        self.is_up.send_replace(false);
    }

    /// Keeps all connections and relays nothing.
    pub fn stall(&self) {
        self.is_stalled.send_replace(true);
    }

    pub fn restore(&self) {
        self.is_up.send_replace(true);
    }

    /// Number of connections that were not accepted.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }
}

async fn relay(
    listener: TcpListener,
    server: String,
    (is_up, is_stalled): (watch::Receiver<bool>, watch::Receiver<bool>),
    refused: Arc<AtomicUsize>,
) {
    while let Ok((client, _)) = listener.accept().await {
        if !*is_up.borrow() {
            refused.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let (server, mut is_up) = (server.clone(), is_up.clone());
        let mut is_stalled = is_stalled.clone();
        tokio::spawn(async move {
            let mut client = client;
            let mut server = TcpStream::connect(server).await.expect("the API server");
            let is_stalled = tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut client, &mut server) => false,
                _ = is_up.wait_for(|is_up| !is_up) => false,
                _ = is_stalled.wait_for(|is_stalled| *is_stalled) => true,
            };
            if is_stalled {
                std::future::pending::<()>().await;
            }
        });
    }
}
