//! A relay that passes bytes on later, as a slow network does: in order, whatever the delay. It needs neither privileges nor a kernel that can delay packets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

/// Chunks on their way in one direction. A sender waits for room, as it does for that of a window.
const IN_FLIGHT: usize = 64;

/// Bytes of a chunk.
const CHUNK: usize = 16 * 1024;

/// A relay to one address. Ends when dropped.
pub struct Relay {
    /// Delay of what is received from now on, in milliseconds.
    delay: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Relay {
    /// Listens on one address, and connects to the other for each connection.
    pub fn new(from: SocketAddr, to: SocketAddr) -> Relay {
        let delay: Arc<AtomicU64> = Arc::default();
        let shared = delay.clone();
        let listener = std::net::TcpListener::bind(from).expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let task = tokio::spawn(async move {
            let listener = TcpListener::from_std(listener).expect("a runtime");
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(relay(near, to, shared.clone()));
            }
        });
        Relay { delay, task }
    }

    /// Sets the delay in each direction.
    pub fn delay(&self, delay: Duration) {
        let millis = delay.as_millis().try_into().expect("a short time");
        self.delay.store(millis, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn relay(near: TcpStream, to: SocketAddr, delay: Arc<AtomicU64>) {
    let far = timeout(Duration::from_secs(5), TcpStream::connect(to)).await;
    let Ok(Ok(far)) = far else { return };
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    // An error in one direction ends both, as a reset does. A clean end is passed on.
    let there = pass(near_in, far_out, delay.clone());
    let back = pass(far_in, near_out, delay);
    let _ = tokio::try_join!(there, back);
}

/// Passes bytes on in one direction until they end.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    delay: Arc<AtomicU64>,
) -> std::io::Result<()> {
    let (sender, mut receiver) = mpsc::channel::<(Instant, Vec<u8>)>(IN_FLIGHT);
    let receive = async move {
        loop {
            let mut chunk = vec![0; CHUNK];
            let length = from.read(&mut chunk).await?;
            chunk.truncate(length);
            let due = Instant::now() + Duration::from_millis(delay.load(Ordering::Relaxed));
            if sender.send((due, chunk)).await.is_err() || length == 0 {
                return Ok(());
            }
        }
    };
    // Chunks leave in the order in which they came: a shorter delay of a later one has no effect.
    let send = async move {
        while let Some((due, chunk)) = receiver.recv().await {
            sleep_until(due).await;
            match chunk.is_empty() {
                true => to.shutdown().await?,
                false => to.write_all(&chunk).await?,
            }
        }
        std::io::Result::Ok(())
    };
    tokio::try_join!(receive, send).map(drop)
}

#[tokio::test]
async fn a_relay_delays_bytes_and_keeps_their_order() {
    let far = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let near = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let at = near.local_addr().expect("an address");
    drop(near);
    let relay = Relay::new(at, far.local_addr().expect("an address"));
    relay.delay(Duration::from_millis(100));
    let start = Instant::now();
    let mut client = TcpStream::connect(at).await.expect("it listens");
    client.write_all(b"slow ").await.expect("written");
    let (mut server, _) = far.accept().await.expect("a connection");
    let mut first = [0; 5];
    server.read_exact(&mut first).await.expect("five bytes");
    assert!(start.elapsed() >= Duration::from_millis(100), "it is late");
    client.write_all(b"late ").await.expect("written");
    tokio::time::sleep(Duration::from_millis(10)).await;
    relay.delay(Duration::ZERO);
    client.write_all(b"fast").await.expect("written");
    client.shutdown().await.expect("closed");
    let mut rest = String::new();
    server.read_to_string(&mut rest).await.expect("an end");
    assert_eq!(rest, "late fast");
    server.write_all(b"back").await.expect("written");
    drop(server);
    let mut back = String::new();
    client.read_to_string(&mut back).await.expect("an end");
    assert_eq!(back, "back", "a half-closed connection is passed on");
}
