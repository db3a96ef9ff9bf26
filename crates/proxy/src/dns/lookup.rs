//! Lookup of addresses in the hosts file and with the configured name servers. Both files are read again when they change.

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

/// TTL of entries of the hosts file.
const HOSTS_TTL: Duration = Duration::from_secs(5);

/// The response for one address family.
#[derive(Debug)]
pub(crate) enum DnsResponse {
    /// Addresses and their TTL.
    Addresses(Vec<IpAddr>, Duration),
    /// The name exists or not, but has no address of this family.
    NoRecords,
    /// The lookup failed.
    Failed(String),
}

/// The hosts file and the name servers.
pub(crate) struct LookupSource {
    hosts: CachedFile<Hosts>,
    servers: CachedFile<Result<TokioResolver, String>>,
}

impl LookupSource {
    /// Creates the source that reads the system's files.
    pub(crate) fn system() -> Self {
        LookupSource::new("/etc/hosts".into(), "/etc/resolv.conf".into(), 53)
    }

    /// Creates the source that reads these files, with name servers at this port.
    pub(crate) fn new(hosts: PathBuf, servers: PathBuf, port: u16) -> Self {
        LookupSource {
            hosts: CachedFile::new(hosts, Box::new(read_hosts)),
            servers: CachedFile::new(servers, Box::new(move |path| read_servers(path, port))),
        }
    }

    /// Resolves a name to IPv4 and IPv6 addresses. Name servers are queried only if the hosts file has no entry.
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
        // A name with a dot is fully qualified: the search domains of this machine do not apply to names in manifests.
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
            // Includes the TTLs of CNAME records.
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

/// Reads the hosts file. One that can't be read counts as empty.
fn read_hosts(path: &Path) -> Hosts {
    let mut hosts = Hosts::default();
    if let Err(error) = File::open(path).and_then(|file| hosts.read_hosts_conf(file)) {
        tracing::debug!(path = %path.display(), %error, "can't read the hosts file");
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
    // No cache: `NameState` has the addresses and decides when to query again.
    options.cache_size = 0;
    let provider = TokioRuntimeProvider::default();
    let builder = TokioResolver::builder_with_config(config, provider).with_options(options);
    builder.build().map_err(failed)
}

/// The parsed contents of a file, read again when the file changes.
struct CachedFile<T> {
    path: PathBuf,
    read: Box<dyn Fn(&Path) -> T>,
    last: RefCell<Option<(Option<FileStamp>, Rc<T>)>>,
}

/// Distinguishes versions of a file: modification time, size and inode.
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

/// Returns `None` if the file does not exist.
fn stamp(path: &Path) -> Option<FileStamp> {
    use std::os::unix::fs::MetadataExt;
    let file = fs::metadata(path).ok()?;
    Some((file.modified().ok(), file.len(), file.ino()))
}
