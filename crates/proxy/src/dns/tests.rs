//! Names are looked up, kept up to date, and not lost when their server is.
#![allow(
    clippy::disallowed_methods,
    reason = "tests wait no longer than a deadline"
)]

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

/// How long anything may take, on however slow a machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// A name server on loopback, for as long as it lives.
struct Server {
    address: SocketAddr,
    state: Arc<ServerState>,
    thread: Option<JoinHandle<()>>,
}

/// A record's data and how long it lives.
type Data = (RData, u32);

#[derive(Default)]
struct ServerState {
    records: Mutex<HashMap<(String, RecordType), Vec<Data>>>,
    /// All questions are answered with SERVFAIL.
    broken: AtomicBool,
    end: AtomicBool,
    /// Who asked for what when.
    asked: Mutex<Vec<(String, RecordType, Instant)>>,
}

impl Server {
    fn start() -> Server {
        Server::with_socket(UdpSocket::bind(loopback()).unwrap())
    }

    /// Two servers on one port, of two addresses.
    fn pair() -> [Server; 2] {
        let bind = || {
            let first = UdpSocket::bind(loopback())?;
            let port = first.local_addr()?.port();
            io::Result::Ok([first, UdpSocket::bind(("127.0.0.2", port))?])
        };
        // The port may be taken at the second address; another one is not.
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

    /// Its answers from now on.
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

    /// When it was asked for the IPv4 addresses of a name.
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
        // Anything wakes it.
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
        let Ok(question) = Message::from_vec(&buffer[..length]) else {
            continue;
        };
        let query = question.queries[0].clone();
        let name = query.name().to_lowercase().to_string();
        let kind = query.query_type();
        let asked = (name.clone(), kind, Instant::now());
        state.asked.lock().unwrap().push(asked);
        let mut answer = Message::response(question.metadata.id, question.metadata.op_code);
        answer.metadata.message_type = MessageType::Response;
        answer.metadata.recursion_desired = true;
        answer.metadata.recursion_available = true;
        answer.add_query(query.clone());
        let records = state.records.lock().unwrap_or_else(PoisonError::into_inner);
        if state.broken.load(Ordering::Relaxed) {
            answer.metadata.response_code = ResponseCode::ServFail;
        } else {
            match records.get(&(name, kind)) {
                None => answer.metadata.response_code = ResponseCode::NXDomain,
                Some(found) => {
                    for (data, ttl) in found {
                        let record = Record::from_rdata(query.name().clone(), *ttl, data.clone());
                        answer.add_answer(record);
                    }
                }
            }
        }
        drop(records);
        let _ = socket.send_to(&answer.to_vec().unwrap(), from);
    }
}

/// The two files, in a folder of their own.
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

    /// Asked once and for long: a server that is slow is not asked twice.
    fn set_server(&self, server: SocketAddr) {
        let text = format!(
            "nameserver {}\noptions timeout:30 attempts:1\n",
            server.ip()
        );
        self.write("resolv.conf", &text);
    }

    /// As programs do that change it: a new file in the place of the old one.
    fn write(&self, name: &str, text: &str) {
        let fresh = self.0.join(format!("{name}.new"));
        fs::write(&fresh, text).unwrap();
        fs::rename(&fresh, self.0.join(name)).unwrap();
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

/// What the resolver tells.
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
fn a_change_is_seen_when_the_records_have_lived() {
    let server = Server::start();
    server.set("api.example.com", &["192.0.2.1"], 2);
    let files = Files::new("", server.address);
    let (resolver, changes) = files.resolver(server.address.port());
    resolver.set_names(names(&["api.example.com"]));
    assert_eq!(changes.next(), reported("api.example.com", &["192.0.2.1"]));
    server.set("api.example.com", &["192.0.2.9"], 2);
    assert_eq!(changes.next(), reported("api.example.com", &["192.0.2.9"]));
    let asked = server.asked("api.example.com");
    // An answer was given after it was asked for, and used for two seconds.
    for two in asked.windows(2) {
        assert!(two[1] - two[0] >= Duration::from_secs(2), "{asked:?}");
    }
}

#[test]
fn what_fails_keeps_what_is_known_and_is_tried_again() {
    let server = Server::start();
    server.set("api.example.com", &["192.0.2.1"], 1);
    let files = Files::new("", server.address);
    let (resolver, changes) = files.resolver(server.address.port());
    resolver.set_names(names(&["api.example.com"]));
    assert_eq!(changes.next(), reported("api.example.com", &["192.0.2.1"]));
    server.set_broken(true);
    let before = server.asked("api.example.com").len();
    wait_until(|| server.asked("api.example.com").len() >= before + 2);
    assert!(
        changes.0.try_recv().is_err(),
        "nothing is reported of a failure"
    );
    server.set("api.example.com", &["192.0.2.2"], 1);
    server.set_broken(false);
    assert_eq!(changes.next(), reported("api.example.com", &["192.0.2.2"]));
}

fn wait_until(done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < DEADLINE, "not in time");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_hosts_file_comes_first_and_is_read_again() {
    let server = Server::start();
    server.set("api.example.com", &["192.0.2.1"], 60);
    let files = Files::new("192.0.2.77 api.example.com other\n", server.address);
    let (resolver, changes) = files.resolver(server.address.port());
    resolver.set_names(names(&["api.example.com"]));
    assert_eq!(changes.next(), reported("api.example.com", &["192.0.2.77"]));
    assert!(server.asked("api.example.com").is_empty());
    files.write("hosts", "# nothing is left\n");
    assert_eq!(changes.next(), reported("api.example.com", &["192.0.2.1"]));
}

#[test]
fn another_server_is_used_once_the_file_names_it() {
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
fn what_is_not_wanted_any_more_is_not_looked_up_any_more() {
    let server = Server::start();
    server.set("a.example", &["192.0.2.1"], 1);
    server.set("b.example", &["192.0.2.2"], 1);
    let files = Files::new("", server.address);
    let (resolver, changes) = files.resolver(server.address.port());
    resolver.set_names(names(&["a.example"]));
    assert_eq!(changes.next(), reported("a.example", &["192.0.2.1"]));
    resolver.set_names(names(&["b.example"]));
    assert_eq!(changes.next(), reported("b.example", &["192.0.2.2"]));
    // A question for `a` may have been on its way. Were it still kept, it would be asked for as often as `b`.
    let before = server.asked("a.example").len();
    let others = server.asked("b.example").len();
    wait_until(|| server.asked("b.example").len() >= others + 4);
    assert!(server.asked("a.example").len() <= before + 1);
    // Wanted again, it is told again.
    resolver.set_names(names(&["a.example", "b.example"]));
    assert_eq!(changes.next(), reported("a.example", &["192.0.2.1"]));
}

#[test]
fn the_names_on_the_way_count_too() {
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
fn without_any_server_nothing_is_told_and_it_can_still_end() {
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
fn an_answer_lives_a_second_at_least_and_five_minutes_at_most() {
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
fn failures_are_tried_again_later_each_time_and_said_once() {
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
    // One that has none any more loses them.
    let refresh = state.update([v4(), DnsResponse::NoRecords]);
    assert_eq!(refresh.changed, Some(vec!["192.0.2.1".parse().unwrap()]));
    // A name that has none at all keeps them.
    let refresh = state.update([DnsResponse::NoRecords, DnsResponse::NoRecords]);
    assert!(refresh.changed.is_none() && refresh.failed.is_some());
    let refresh = state.update([failed(), found(&["2001:db8::1"], 60)]);
    let both = ["192.0.2.1", "2001:db8::1"].map(|address| address.parse().unwrap());
    assert_eq!(refresh.changed, Some(both.to_vec()));
}
