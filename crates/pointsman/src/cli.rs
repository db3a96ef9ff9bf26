//! The command line.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Error, Result, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use pointsman_binding::{EndpointPolicy, Network};
use pointsman_control::{ContentAccess, Permissions};
use pointsman_proxy::placement::AddressPool;
use pointsman_proxy::{AccessLogFormat, AccessLogOptions, Limits, Options};
use pointsman_routing::PathPolicy;

/// Binds routes and carries traffic: Kubernetes Gateway API and Kuma, at the edge and in the mesh.
#[derive(Parser)]
#[command(name = "pointsman", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Subcommand)]
pub enum Verb {
    /// Say what a controller would say of every resource: statuses, conflicts, shadowed rules.
    ///
    /// Exit status: 0 when all is well, 1 when something is refused or unresolved (with --strict: or warned of), 2 when
    /// something can't be read.
    Check(Check),
    /// Start sample backends and sample manifests, and say what to try with curl.
    ///
    /// Exit status with --once: 0 when every answer is as it should be, 1 when one is not, 2 when it can't be started.
    Demo(Demo),
    /// Say which rule takes a request and why, and why every other one does not.
    ///
    /// Exit status: 0 when the request is forwarded or redirected, 1 when it is answered with an error or nobody listens, 2 when
    /// something can't be read.
    Explain(Explain),
    /// Carry traffic: listen where the Gateways say, follow the files as they change.
    ///
    /// Every Gateway gets an address of its own, on loopback unless told otherwise; where each listener is, is printed. Files are
    /// watched: a change is in effect within milliseconds, and what is broken keeps what worked. SIGHUP reads everything again and opens the
    /// access log's file anew; SIGTERM and SIGINT let what runs finish, a second one ends at once.
    ///
    /// Exit status: 0 when everything that ran has finished, 1 when something was cut at the end of --drain, 2 for a wrong command line or
    /// when nothing can be read at the start. RUST_LOG sets what is logged to standard error.
    Run(Box<Run>),
}

/// What `run` is told.
#[derive(Args)]
pub struct Run {
    /// A file, a folder (searched for *.yaml, *.yml and *.json, and watched), a pipe, or - for standard input. May be repeated.
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,

    #[command(flatten)]
    pub reach: Reach,

    /// Give each Gateway that asks for no address one of these, the same one again after a restart.
    #[arg(long, value_name = "CIDR", default_value = "127.0.64.0/18")]
    pub address_pool: AddressPool,

    /// Put all Gateways that ask for no address on this one.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "address_pool")]
    pub address: Option<IpAddr>,

    /// Add this to every port that is listened on, for who may not bind low ones: with 8000, port 80 is at 8080.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub port_offset: u16,

    /// Be only these of Kuma's Dataplanes (or MeshGatewayInstances): listen on the outbounds and listeners of no other. May be repeated.
    #[arg(long = "dataplane", value_name = "[MESH/]NAME")]
    pub dataplanes: Vec<String>,

    /// Where /healthz, /readyz, /metrics, /status, /config, /explain and a page for people are served; `off` for nowhere.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:15000", value_parser = admin)]
    pub admin: Admin,

    /// A name by which the admin server may be asked; without it only by address or as localhost, so that no web page can ask it under a name of its
    /// own. May be repeated.
    #[arg(long, value_name = "NAME")]
    pub admin_host: Vec<String>,

    #[command(flatten)]
    pub data_plane: DataPlaneArgs,

    /// Say nothing but what is wrong: `demo` has told already.
    #[arg(skip)]
    pub quiet: bool,
}

/// Options of a data plane, whatever feeds it.
#[derive(Args)]
pub struct DataPlaneArgs {
    /// Threads that carry traffic; one per core if left out.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,

    /// Whose word on X-Forwarded-* is believed. Several are separated by commas; may be repeated.
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub trusted_proxies: Vec<Network>,

    /// Which paths are served.
    #[arg(long = "paths", value_enum, value_name = "WHICH", default_value_t = Paths::Any)]
    pub path_policy: Paths,

    /// Log every request: `text` or `json`, to standard output or to a file: `json:/var/log/requests`.
    #[arg(long, value_name = "FORMAT[:FILE]", value_parser = access_log)]
    pub access_log: Option<AccessLogOptions>,

    /// Change a limit; docs/limits.md has their names. May be repeated.
    #[arg(long = "limit", value_name = "NAME=VALUE", value_parser = limit)]
    pub limits: Vec<(String, String)>,

    /// How long what runs may go on after SIGTERM, such as 30s or 1m30s.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub drain: Duration,
}

impl DataPlaneArgs {
    /// The options that these arguments set. Fails for a limit that is unknown or out of range.
    pub fn options(&self) -> Result<Options> {
        let mut limits = Limits::default();
        for (name, value) in &self.limits {
            if let Err(why) = limits.set(name, value) {
                bail!("--limit {name}={value}: {why}");
            }
        }
        Ok(Options {
            workers: self.workers.map(usize::from),
            limits,
            trusted_proxies: self.trusted_proxies.clone(),
            paths: self.path_policy.policy(),
            access_log: self.access_log.clone(),
            ..Options::default()
        })
    }
}

/// Paths that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Paths {
    /// All.
    Any,
    /// None with %2F, %5C, // or ; in a segment, which some origins take for another path: the client gets 400
    Strict,
}

impl Paths {
    /// The policy that this value stands for.
    pub fn policy(self) -> PathPolicy {
        match self {
            Paths::Any => PathPolicy::Any,
            Paths::Strict => PathPolicy::Strict,
        }
    }
}

/// Where the admin server listens; nowhere if none.
pub type Admin = Option<SocketAddr>;

fn admin(text: &str) -> Result<Admin, String> {
    if text == "off" {
        return Ok(None);
    }
    let address = text.parse();
    address.map(Some).map_err(|_| {
        "write ADDRESS:PORT, such as 127.0.0.1:15000 or [::1]:15000, or `off`".to_owned()
    })
}

fn access_log(text: &str) -> Result<AccessLogOptions, String> {
    let (format, file) = match text.split_once(':') {
        Some((format, file)) => (format, Some(file)),
        None => (text, None),
    };
    let format = match format {
        "text" => AccessLogFormat::Text,
        "json" => AccessLogFormat::Json,
        _ => {
            return Err(
                "write `text` or `json`, or with a file `json:/var/log/requests`".to_owned(),
            );
        }
    };
    if file == Some("") {
        return Err("the name of the file is missing after the colon".to_owned());
    }
    let file = file.map(PathBuf::from);
    Ok(AccessLogOptions { format, file })
}

fn limit(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err("write NAME=VALUE, such as header-bytes=65536".to_owned()),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    pointsman_binding::bound::duration(text)
        .ok_or_else(|| "write a number and a unit (h, m, s or ms), such as 30s or 1m30s".to_owned())
}

/// What manifests may reach beside what they say themselves.
#[derive(Args, Default)]
pub struct Reach {
    /// Let Kuma's manifests name files of this directory (direct responses, certificates); without it they can name none. May be repeated.
    #[arg(long, value_name = "DIR")]
    pub content_dir: Vec<PathBuf>,

    /// Let Kuma's manifests name this environment variable. May be repeated.
    #[arg(long, value_name = "NAME")]
    pub content_env: Vec<String>,

    /// Which addresses may be endpoints.
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = EndpointAddresses::Any)]
    pub endpoint_addresses: EndpointAddresses,

    /// With `--endpoint-addresses routable`, allow endpoints of this range too. May be repeated.
    #[arg(long, value_name = "CIDR")]
    pub allow_endpoint_range: Vec<Network>,
}

/// Which addresses may be endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum EndpointAddresses {
    /// All.
    #[default]
    Any,
    /// No loopback, link-local, unspecified or multicast ones, for manifests of people who are not trusted with this machine's own services
    Routable,
}

impl Reach {
    /// What is permitted. Fails for a directory that is not there, or flags that have no effect.
    pub fn permissions(&self) -> Result<Permissions> {
        let ranges = self.allow_endpoint_range.clone();
        let endpoints = match self.endpoint_addresses {
            EndpointAddresses::Routable => EndpointPolicy::routable(ranges),
            EndpointAddresses::Any if ranges.is_empty() => EndpointPolicy::default(),
            EndpointAddresses::Any => {
                bail!("--allow-endpoint-range has no effect without --endpoint-addresses routable")
            }
        };
        let content = ContentAccess::new(&self.content_dir, &self.content_env);
        Ok(Permissions {
            content: content.map_err(Error::msg)?,
            endpoints: Arc::new(endpoints),
        })
    }
}

#[derive(Args)]
pub struct Sources {
    /// A file, a folder (searched for *.yaml, *.yml and *.json), a pipe, or - for standard input. May be repeated.
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,

    #[command(flatten)]
    pub reach: Reach,

    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    pub output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For tools.
    Json,
    /// For tools and people.
    Yaml,
}

#[derive(Args)]
pub struct Check {
    #[command(flatten)]
    pub sources: Sources,

    /// Count warnings as failures.
    #[arg(long)]
    pub strict: bool,

    /// Leave out what is well.
    #[arg(short, long)]
    pub quiet: bool,

    /// Show the merged rules of Kuma's policies for one Dataplane, Pod or MeshGateway instead, in the order in which they are tried; with its mesh (on
    /// Kubernetes its namespace) where several have the name.
    #[arg(long = "for", value_name = "[MESH/]NAME")]
    pub name: Option<String>,
}

#[derive(Args)]
pub struct Demo {
    /// Try every line, show the answers, and end.
    #[arg(long)]
    pub once: bool,

    /// Where the sample Gateway listens on loopback; the next two ports are used too.
    #[arg(long, value_name = "PORT", default_value_t = 18080)]
    pub port: u16,
}

#[derive(Args)]
pub struct Explain {
    #[command(flatten)]
    pub sources: Sources,

    /// The Gateway that the request is sent to, or a MeshGateway (or a Dataplane that serves one) by its name, before which may stand its mesh; chosen
    /// by the URL if left out.
    #[arg(long, value_name = "NAMESPACE/NAME[/LISTENER]|NAME[/LISTENER]")]
    pub gateway: Option<String>,

    /// Where the request comes from: calls in the mesh are asked for first. A Dataplane of Kuma's finds its outbounds at their address
    /// and port, or as NAME.mesh.
    #[arg(long, value_name = "NAMESPACE[/POD]|dataplane/[MESH/]NAME")]
    pub from: Option<String>,

    /// The name asked for in the TLS handshake; the host of the URL if left out.
    #[arg(long, value_name = "NAME")]
    pub sni: Option<String>,

    /// The HTTP method.
    #[arg(short = 'X', long, value_name = "METHOD")]
    pub method: Option<String>,

    /// A header of the request. May be repeated.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,

    /// Which paths the data plane serves; what `run --paths` says there.
    #[arg(long = "paths", value_enum, value_name = "WHICH", default_value_t = Paths::Any)]
    pub path_policy: Paths,

    /// http://, https://, grpc://host/pkg.Service/Method, tls://name, tcp://host:port or udp://host:port
    pub url: String,
}
