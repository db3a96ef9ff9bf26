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
const HOSTS_TTL: Duration = Duration::from_secs(5);

/// What was found for one family of addresses.
#[derive(Debug)]
pub(crate) enum DnsResponse {
    /// These, to be used for so long.
    Addresses(Vec<IpAddr>, Duration),
    /// That there are none.
    NoRecords,
    /// Nothing.
    Failed(String),
}

/// The files, and what was in them last.
pub(crate) struct LookupSource {
    hosts: CachedFile<Hosts>,
    servers: CachedFile<Result<TokioResolver, String>>,
}

impl LookupSource {
    /// The system's.
    pub(crate) fn system() -> Self {
        LookupSource::new("/etc/hosts".into(), "/etc/resolv.conf".into(), 53)
    }

    /// Those in these files; name servers are asked at this port.
    pub(crate) fn new(hosts: PathBuf, servers: PathBuf, port: u16) -> Self {
        LookupSource {
            hosts: CachedFile::new(hosts, Box::new(read_hosts)),
            servers: CachedFile::new(servers, Box::new(move |path| read_servers(path, port))),
        }
    }

    /// The addresses of a name, IPv4 and IPv6. If the hosts file has any, no server is asked.
    pub(crate) async fn look_up(&self, name: &str) -> (DnsResponse, DnsResponse) {
        let failed = |error: String| {
            (
                DnsResponse::Failed(error.clone()),
                DnsResponse::Failed(error),
            )
        };
        let mut query = match Name::from_utf8(name) {
            Ok(query) => query,
            Err(error) => return failed(error.to_string()),
        };
        let hosts = self.hosts.get();
        let entry = |kind| hosts.lookup_static_host(&Query::query(query.clone(), kind));
        match (entry(RecordType::A), entry(RecordType::AAAA)) {
            (None, None) => {}
            (v4, v6) => return (from_hosts(v4), from_hosts(v6)),
        }
        // A name with a dot in it is meant as it stands: it is somebody else's, and not to be sought in the domains of this machine.
        query.set_fqdn(query.num_labels() > 1);
        let servers = self.servers.get();
        match &*servers {
            Err(error) => failed(error.clone()),
            Ok(resolver) => tokio::join!(
                async { from_servers(resolver.lookup(query.clone(), RecordType::A).await) },
                async { from_servers(resolver.lookup(query.clone(), RecordType::AAAA).await) },
            ),
        }
    }
}

fn addresses(lookup: &Lookup) -> Vec<IpAddr> {
    let records = lookup.answers().iter();
    records.filter_map(|record| record.data.ip_addr()).collect()
}

fn from_hosts(found: Option<Lookup>) -> DnsResponse {
    match found {
        Some(lookup) => DnsResponse::Addresses(addresses(&lookup), HOSTS_TTL),
        None => DnsResponse::NoRecords,
    }
}

fn from_servers(found: Result<Lookup, NetError>) -> DnsResponse {
    match found {
        Ok(lookup) => {
            // The names on the way to the addresses count too.
            let ttl = lookup.answers().iter().map(|record| record.ttl).min();
            match addresses(&lookup) {
                none if none.is_empty() => DnsResponse::NoRecords,
                some => DnsResponse::Addresses(
                    some,
                    Duration::from_secs(ttl.unwrap_or_default().into()),
                ),
            }
        }
        Err(error) if error.is_no_records_found() => DnsResponse::NoRecords,
        Err(error) => DnsResponse::Failed(error.to_string()),
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
    let failed = |error: NetError| format!("{}: {error}", path.display());
    let text = fs::read(path).map_err(|error| failed(error.into()))?;
    let (mut config, mut options) = parse_resolv_conf(text).map_err(failed)?;
    for server in &mut config.name_servers {
        for connection in &mut server.connections {
            connection.port = port;
        }
    }
    // What is known is kept elsewhere, and asked for when it is to be asked for.
    options.cache_size = 0;
    let provider = TokioRuntimeProvider::default();
    let builder = TokioResolver::builder_with_config(config, provider).with_options(options);
    builder.build().map_err(failed)
}

/// What is in a file, read again when that is another one.
struct CachedFile<T> {
    path: PathBuf,
    read: Box<dyn Fn(&Path) -> T>,
    last: RefCell<Option<(Option<FileStamp>, Rc<T>)>>,
}

/// What tells one version of a file from another.
type FileStamp = (Option<SystemTime>, u64, u64);

impl<T> CachedFile<T> {
    fn new(path: PathBuf, read: Box<dyn Fn(&Path) -> T>) -> Self {
        CachedFile {
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
fn stamp(path: &Path) -> Option<FileStamp> {
    use std::os::unix::fs::MetadataExt;
    let file = fs::metadata(path).ok()?;
    Some((file.modified().ok(), file.len(), file.ino()))
}
