//! Where addresses come from: the system's hosts file, then the name servers that it is set to. Both files are read again when they change.

use std::cell::RefCell;
use std::fs::{self, File};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::parse_resolv_conf;
use hickory_resolver::{Hosts, TokioResolver, lookup::Lookup};

/// How long an entry of the hosts file is used before the file is looked at again.
const HOSTS_LIVE: Duration = Duration::from_secs(5);

/// What was found for one family of addresses.
#[derive(Debug)]
pub(crate) enum Answer {
    /// These, to be used for so long.
    Addresses(Vec<IpAddr>, Duration),
    /// That there are none.
    None,
    /// Nothing.
    Failed(String),
}

/// The files, and what was in them last.
pub(crate) struct Source {
    hosts: Watched<Hosts>,
    servers: Watched<Result<TokioResolver, String>>,
}

impl Source {
    /// The system's.
    pub(crate) fn system() -> Self {
        Source::of("/etc/hosts".into(), "/etc/resolv.conf".into(), 53)
    }

    /// Those in these files; name servers are asked at this port.
    pub(crate) fn of(hosts: PathBuf, servers: PathBuf, port: u16) -> Self {
        Source {
            hosts: Watched::new(hosts, Box::new(read_hosts)),
            servers: Watched::new(servers, Box::new(move |path| read_servers(path, port))),
        }
    }

    /// The addresses of a name, IPv4 and IPv6. If the hosts file has any, no server is asked.
    pub(crate) async fn look_up(&self, name: &str) -> (Answer, Answer) {
        let failed = |error: String| (Answer::Failed(error.clone()), Answer::Failed(error));
        let mut asked = match Name::from_utf8(name) {
            Ok(asked) => asked,
            Err(error) => return failed(error.to_string()),
        };
        let hosts = self.hosts.get();
        let entry = |kind| hosts.lookup_static_host(&Query::query(asked.clone(), kind));
        match (entry(RecordType::A), entry(RecordType::AAAA)) {
            (None, None) => {}
            (four, six) => return (from_hosts(four), from_hosts(six)),
        }
        // A name with a dot in it is meant as it stands: it is somebody else's, and not to be sought in the domains of this machine.
        asked.set_fqdn(asked.num_labels() > 1);
        let servers = self.servers.get();
        match &*servers {
            Err(error) => failed(error.clone()),
            Ok(resolver) => tokio::join!(
                async { from_servers(resolver.lookup(asked.clone(), RecordType::A).await) },
                async { from_servers(resolver.lookup(asked.clone(), RecordType::AAAA).await) },
            ),
        }
    }
}

fn addresses(lookup: &Lookup) -> Vec<IpAddr> {
    let records = lookup.answers().iter();
    records.filter_map(|record| record.data.ip_addr()).collect()
}

fn from_hosts(found: Option<Lookup>) -> Answer {
    match found {
        Some(lookup) => Answer::Addresses(addresses(&lookup), HOSTS_LIVE),
        None => Answer::None,
    }
}

fn from_servers(found: Result<Lookup, NetError>) -> Answer {
    match found {
        Ok(lookup) => {
            // The names on the way to the addresses count too.
            let ttl = lookup.answers().iter().map(|record| record.ttl).min();
            match addresses(&lookup) {
                none if none.is_empty() => Answer::None,
                some => {
                    Answer::Addresses(some, Duration::from_secs(ttl.unwrap_or_default().into()))
                }
            }
        }
        Err(error) if error.is_no_records_found() => Answer::None,
        Err(error) => Answer::Failed(error.to_string()),
    }
}

/// A file that can't be read has no entries.
fn read_hosts(path: &Path) -> Hosts {
    let mut hosts = Hosts::default();
    if let Err(error) = File::open(path).and_then(|file| hosts.read_hosts_conf(file)) {
        tracing::debug!(path = %path.display(), %error, "no hosts are read");
    }
    hosts
}

fn read_servers(path: &Path, port: u16) -> Result<TokioResolver, String> {
    let wrong = |error: NetError| format!("{}: {error}", path.display());
    let text = fs::read(path).map_err(|error| wrong(error.into()))?;
    let (mut config, mut options) = parse_resolv_conf(text).map_err(wrong)?;
    for server in &mut config.name_servers {
        for connection in &mut server.connections {
            connection.port = port;
        }
    }
    // What is known is kept elsewhere, and asked for when it is to be asked for.
    options.cache_size = 0;
    let provider = TokioRuntimeProvider::default();
    let builder = TokioResolver::builder_with_config(config, provider).with_options(options);
    builder.build().map_err(wrong)
}

/// What is in a file, read again when that is another one.
struct Watched<T> {
    path: PathBuf,
    read: Box<dyn Fn(&Path) -> T>,
    last: RefCell<Option<(Option<Stamp>, Rc<T>)>>,
}

/// What tells one version of a file from another.
type Stamp = (Option<SystemTime>, u64, u64);

impl<T> Watched<T> {
    fn new(path: PathBuf, read: Box<dyn Fn(&Path) -> T>) -> Self {
        Watched {
            path,
            read,
            last: RefCell::default(),
        }
    }

    fn get(&self) -> Rc<T> {
        let now = stamp(&self.path);
        let mut last = self.last.borrow_mut();
        match &*last {
            Some((then, content)) if *then == now => content.clone(),
            _ => {
                let content = Rc::new((self.read)(&self.path));
                *last = Some((now, content.clone()));
                content
            }
        }
    }
}

/// None if there is no such file.
fn stamp(path: &Path) -> Option<Stamp> {
    use std::os::unix::fs::MetadataExt;
    let file = fs::metadata(path).ok()?;
    Some((file.modified().ok(), file.len(), file.ino()))
}
