//! Tests of resolution, refreshing, and failures of name servers.
#![allow(clippy::disallowed_methods, reason = "tests have deadlines")]

use std::collections::HashMap;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use hickory_resolver::proto::op::{Message, MessageType, ResponseCode};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType, rdata::CNAME};

use super::*;

/// Deadline of every step, generous for slow machines.
const DEADLINE: Duration = Duration::from_secs(60);

/// A name server on loopback.
struct Server {
    address: SocketAddr,
    state: Arc<ServerState>,
    thread: Option<JoinHandle<()>>,
}

/// The data of a record and its TTL.
type Data = (RData, u32);

#[derive(Default)]
struct ServerState {
    records: Mutex<HashMap<(String, RecordType), Vec<Data>>>,
    /// Responds to all queries with SERVFAIL.
    broken: AtomicBool,
    end: AtomicBool,
    /// Queries with their times.
    asked: Mutex<Vec<(String, RecordType, Instant)>>,
}

impl Server {
    fn start() -> Server {
        Server::with_socket(UdpSocket::bind(loopback()).unwrap())
    }

    /// Starts two servers with the same port and different addresses.
    fn pair() -> [Server; 2] {
        let bind = || {
            let first = UdpSocket::bind(loopback())?;
            let port = first.local_addr()?.port();
            io::Result::Ok([first, UdpSocket::bind(("127.0.0.2", port))?])
        };
        // The port may be in use at the second address; then another one is tried.
        let found = (0..100).find_map(|_| bind().ok());
        found.expect("a port").map(Server::with_socket)
    }

    fn with_socket(socket: UdpSocket) -> Server {
        let address = socket.local_addr().unwrap();
        let state = Arc::new(ServerState::default());
        let thread = thread::spawn({
            let state = state.clone();
            move || serve(&socket, &state)
        });
        Server {
            address,
            state,
            thread: Some(thread),
        }
    }

    /// Sets the addresses of a name.
    fn set(&self, name: &str, addresses: &[&str], ttl: u32) {
        let mut records = self.state.records.lock().unwrap();
        for kind in [RecordType::A, RecordType::AAAA] {
            let of_kind = addresses
                .iter()
                .map(|address| RData::from(address.parse::<IpAddr>().unwrap()))
                .filter(|data| data.record_type() == kind)
                .map(|data| (data, ttl))
                .collect();
            records.insert((format!("{name}."), kind), of_kind);
        }
    }

    fn set_broken(&self, broken: bool) {
        self.state.broken.store(broken, Ordering::Relaxed);
    }

    /// Times of the queries for the IPv4 addresses of a name.
    fn asked(&self, name: &str) -> Vec<Instant> {
        let asked = self.state.asked.lock().unwrap();
        asked
            .iter()
            .filter(|(other, kind, _)| *other == format!("{name}.") && *kind == RecordType::A)
            .map(|(_, _, when)| *when)
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.end.store(true, Ordering::Relaxed);
        // Any datagram wakes the thread.
        let waker = UdpSocket::bind((self.address.ip(), 0)).unwrap();
        let _ = waker.send_to(&[], self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(socket: &UdpSocket, state: &ServerState) {
    let mut buffer = [0; 4096];
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        if state.end.load(Ordering::Relaxed) {
            return;
        }
        let Ok(request) = Message::from_vec(&buffer[..length]) else {
            continue;
        };
        let query = request.queries[0].clone();
        let name = query.name().to_lowercase().to_string();
        let kind = query.query_type();
        let asked = (name.clone(), kind, Instant::now());
        state.asked.lock().unwrap().push(asked);
        let mut response = Message::response(request.metadata.id, request.metadata.op_code);
        response.metadata.message_type = MessageType::Response;
        response.metadata.recursion_desired = true;
        response.metadata.recursion_available = true;
        response.add_query(query.clone());
        let records = state.records.lock().unwrap_or_else(PoisonError::into_inner);
        if state.broken.load(Ordering::Relaxed) {
            response.metadata.response_code = ResponseCode::ServFail;
        } else {
            match records.get(&(name, kind)) {
                None => response.metadata.response_code = ResponseCode::NXDomain,
                Some(found) => {
                    for (data, ttl) in found {
                        let record = Record::from_rdata(query.name().clone(), *ttl, data.clone());
                        response.add_answer(record);
                    }
                }
            }
        }
        drop(records);
        let _ = socket.send_to(&response.to_vec().unwrap(), from);
    }
}

/// A hosts file and a `resolv.conf` in a directory of their own.
struct Files(PathBuf);

impl Files {
    fn new(hosts: &str, server: SocketAddr) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "pointsman-dns-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let files = Files(std::env::temp_dir().join(name));
        fs::create_dir_all(&files.0).unwrap();
        files.write("hosts", hosts);
        files.set_server(server);
        files
    }

    /// Sets the name server, with a long timeout and without retries, so that a slow server is queried only once.
    fn set_server(&self, server: SocketAddr) {
        let text = format!(
            "nameserver {}\noptions timeout:30 attempts:1\n",
            server.ip()
        );
        self.write("resolv.conf", &text);
    }

    /// Replaces a file by renaming a new one over it, as programs do.
    fn write(&self, name: &str, text: &str) {
        let new = self.0.join(format!("{name}.new"));
        fs::write(&new, text).unwrap();
        fs::rename(&new, self.0.join(name)).unwrap();
    }

    fn resolver(&self, port: u16) -> (Resolver, Changes) {
        let (hosts, servers) = (self.0.join("hosts"), self.0.join("resolv.conf"));
        let (sender, receiver) = channel();
        let resolver = Resolver::with_source(
            move || LookupSource::new(hosts, servers, port),
            move |name, addresses| {
                let _ = sender.send((name.clone(), addresses));
            },
        );
        (resolver.unwrap(), Changes(receiver))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Changes reported by the resolver.
struct Changes(Receiver<(Arc<str>, Vec<IpAddr>)>);

impl Changes {
    fn next(&self) -> (String, Vec<String>) {
        let (name, addresses) = self.0.recv_timeout(DEADLINE).expect("a change in time");
        let addresses = addresses.iter().map(IpAddr::to_string).collect();
        (name.to_string(), addresses)
    }
}

fn names(names: &[&str]) -> Names {
    names.iter().map(|name| Arc::from(*name)).collect()
}

fn reported(name: &str, addresses: &[&str]) -> (String, Vec<String>) {
    (
        name.to_owned(),
        addresses.iter().map(|a| (*a).to_owned()).collect(),
    )
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

#[test]
fn both_families_are_found() {
    let server = Server::start();
    server.set(
        "api.example.com",
        &["192.0.2.2", "2001:db8::1", "192.0.2.1"],
        60,
    );
    let files = Files::new("", server.address);
    let (resolver, changes) = files.resolver(server.address.port());
    resolver.set_names(names(&["api.example.com"]));
    assert_eq!(
        changes.next(),
        reported(
            "api.example.com",
            &["192.0.2.1", "192.0.2.2", "2001:db8::1"]
        )
    );
}

#[test]
fn a_change_is_reported_when_the_ttl_has_elapsed() {
    let server = Server::start();
    server.set("api.example.com", &["192.0.2.1"], 2);
    let files = Files::new("", server.address);
    let (resolver, changes) = files.resolver(server.address.port());
    resolver.set_names(names(&["api.example.com"]));
    assert_eq!(changes.next(), reported("api.example.com", &["192.0.2.1"]));
    server.set("api.example.com", &["192.0.2.9"], 2);
    assert_eq!(changes.next(), reported("api.example.com", &["192.0.2.9"]));
    let asked = server.asked("api.example.com");
    // Each response was sent after its query, and used for two seconds.
    for two in asked.windows(2) {
        assert!(two[1] - two[0] >= Duration::from_secs(2), "{asked:?}");
    }
}

#[test]
fn a_failure_keeps_the_addresses_and_is_retried() {
    let server = Server::start();
    server.set("api.example.com", &["192.0.2.1"], 1);
    let files = Files::new("", server.address);
    let (resolver, changes) = files.resolver(server.address.port());
    resolver.set_names(names(&["api.example.com"]));
    assert_eq!(changes.next(), reported("api.example.com", &["192.0.2.1"]));
    server.set_broken(true);
    let before = server.asked("api.example.com").len();
    wait_until(|| server.asked("api.example.com").len() >= before + 2);
    assert!(changes.0.try_recv().is_err(), "a failure is not a change");
    server.set("api.example.com", &["192.0.2.2"], 1);
    server.set_broken(false);
    assert_eq!(changes.next(), reported("api.example.com", &["192.0.2.2"]));
}

fn wait_until(done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < DEADLINE, "not in time");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_hosts_file_has_precedence_and_is_read_again() {
    let server = Server::start();
    server.set("api.example.com", &["192.0.2.1"], 60);
    let files = Files::new("192.0.2.77 api.example.com other\n", server.address);
    let (resolver, changes) = files.resolver(server.address.port());
    resolver.set_names(names(&["api.example.com"]));
    assert_eq!(changes.next(), reported("api.example.com", &["192.0.2.77"]));
    assert!(server.asked("api.example.com").is_empty());
    files.write("hosts", "# no entries\n");
    assert_eq!(changes.next(), reported("api.example.com", &["192.0.2.1"]));
}

#[test]
fn another_name_server_is_used_once_resolv_conf_names_it() {
    let [first, second] = Server::pair();
    first.set("api.example.com", &["192.0.2.1"], 1);
    second.set("api.example.com", &["192.0.2.2"], 1);
    let files = Files::new("", first.address);
    let (resolver, changes) = files.resolver(first.address.port());
    resolver.set_names(names(&["api.example.com"]));
    assert_eq!(changes.next(), reported("api.example.com", &["192.0.2.1"]));
    files.set_server(second.address);
    assert_eq!(changes.next(), reported("api.example.com", &["192.0.2.2"]));
}

#[test]
fn a_removed_name_is_no_longer_resolved() {
    let server = Server::start();
    server.set("a.example", &["192.0.2.1"], 1);
    server.set("b.example", &["192.0.2.2"], 1);
    let files = Files::new("", server.address);
    let (resolver, changes) = files.resolver(server.address.port());
    resolver.set_names(names(&["a.example"]));
    assert_eq!(changes.next(), reported("a.example", &["192.0.2.1"]));
    resolver.set_names(names(&["b.example"]));
    assert_eq!(changes.next(), reported("b.example", &["192.0.2.2"]));
    // One query for `a` may have been in flight. If it were still refreshed, it would be queried as often as `b`.
    let before = server.asked("a.example").len();
    let others = server.asked("b.example").len();
    wait_until(|| server.asked("b.example").len() >= others + 4);
    assert!(server.asked("a.example").len() <= before + 1);
    // When it is added again, it is reported again.
    resolver.set_names(names(&["a.example", "b.example"]));
    assert_eq!(changes.next(), reported("a.example", &["192.0.2.1"]));
}

#[test]
fn aliases_are_followed() {
    let server = Server::start();
    {
        let mut records = server.state.records.lock().unwrap();
        let alias = RData::CNAME(CNAME(Name::from_utf8("api.example.com.").unwrap()));
        for kind in [RecordType::A, RecordType::AAAA] {
            records.insert(("www.example.com.".into(), kind), vec![(alias.clone(), 60)]);
        }
    }
    server.set("api.example.com", &["192.0.2.1"], 60);
    let files = Files::new("", server.address);
    let (resolver, changes) = files.resolver(server.address.port());
    resolver.set_names(names(&["www.example.com"]));
    assert_eq!(changes.next(), reported("www.example.com", &["192.0.2.1"]));
}

#[test]
fn without_a_name_server_nothing_is_reported_and_the_resolver_can_stop() {
    let files = Files::new("", loopback());
    fs::remove_file(files.0.join("resolv.conf")).unwrap();
    let (resolver, changes) = files.resolver(53);
    resolver.set_names(names(&["a.example", "not a name", ""]));
    drop(resolver);
    assert!(changes.0.recv().is_err());
}

fn found(addresses: &[&str], ttl: u64) -> DnsResponse {
    let addresses = addresses.iter().map(|address| address.parse().unwrap());
    DnsResponse::Addresses(addresses.collect(), Duration::from_secs(ttl))
}

fn failed() -> DnsResponse {
    DnsResponse::Failed("timed out".to_owned())
}

#[test]
fn a_ttl_is_at_least_a_second_and_at_most_five_minutes() {
    for (ttl, wanted) in [(0, 1), (1, 1), (60, 60), (86_400, 300)] {
        let refresh =
            NameState::default().update([found(&["192.0.2.1"], ttl), DnsResponse::NoRecords]);
        assert_eq!(refresh.wait, Duration::from_secs(wanted));
    }
    let refresh =
        NameState::default().update([found(&["192.0.2.1"], 60), found(&["2001:db8::1"], 7)]);
    assert_eq!(refresh.wait, Duration::from_secs(7));
}

#[test]
fn failures_are_retried_with_increasing_delays_and_reported_once() {
    let mut state = NameState::default();
    let mut waits = Vec::new();
    for number in 0..7 {
        let refresh = state.update([failed(), failed()]);
        assert_eq!(refresh.failed.is_some(), number == 0);
        assert!(refresh.changed.is_none());
        waits.push(refresh.wait.as_secs());
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    let refresh = state.update([found(&["192.0.2.1"], 60), DnsResponse::NoRecords]);
    assert_eq!((refresh.wait.as_secs(), refresh.failed), (60, None));
    let refresh = state.update([failed(), failed()]);
    assert_eq!(refresh.wait.as_secs(), 1);
    assert!(refresh.failed.is_some());
}

#[test]
fn a_family_that_fails_keeps_its_addresses() {
    let mut state = NameState::default();
    let v4 = || found(&["192.0.2.1"], 60);
    state.update([v4(), found(&["2001:db8::1"], 60)]);
    let refresh = state.update([v4(), failed()]);
    assert!(refresh.changed.is_none());
    assert_eq!(refresh.wait.as_secs(), 1);
    // A family without records loses its addresses.
    let refresh = state.update([v4(), DnsResponse::NoRecords]);
    assert_eq!(refresh.changed, Some(vec!["192.0.2.1".parse().unwrap()]));
    // A name without any records keeps them.
    let refresh = state.update([DnsResponse::NoRecords, DnsResponse::NoRecords]);
    assert!(refresh.changed.is_none() && refresh.failed.is_some());
    let refresh = state.update([failed(), found(&["2001:db8::1"], 60)]);
    let both = ["192.0.2.1", "2001:db8::1"].map(|address| address.parse().unwrap());
    assert_eq!(refresh.changed, Some(both.to_vec()));
}
