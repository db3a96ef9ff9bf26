//! The command line.

mod control_plane;
mod diff;
mod graph;
mod install;
mod server;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Error, Result, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use pointsman_binding::{EndpointPolicy, Network};
use pointsman_control::{ContentAccess, ManifestPermissions};
use pointsman_proxy::placement::{AddressPolicy, AddressPool, DataplaneFilter, Placement};
use pointsman_proxy::{AccessLogFormat, AccessLogOptions, Limits, Location, Options, TlsVersion};
use pointsman_routing::PathPolicy;

use crate::client::ServerUrl;

/// Routing engine and proxy for the Kubernetes Gateway API, GAMMA and Kuma
#[derive(Parser)]
#[command(name = "pointsman", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

pub use control_plane::{Controller, ProxyArgs, XDS_PORT, check_limit};
pub use diff::Diff;
pub use graph::{GraphArgs, GraphFormat};
pub use install::{DEFAULT_GATEWAY_CLASS, Install};
pub use server::{ObjectRef, StatusArgs, WaitArgs};

#[derive(Subcommand)]
pub enum Verb {
    /// Report the status, conflicts and unreachable rules of manifests or of the objects of a cluster
    ///
    /// Reads manifests (-f), for which it needs neither privileges nor a cluster. Without -f, reads the objects of the cluster that kubectl would use; nothing
    /// is written to it.
    ///
    /// Prints the status that a controller would write, and warnings about configuration that is valid but has a surprising effect. With --server, prints what
    /// a running controller or `run` reports.
    ///
    /// Exit status: 0 if there are no problems; 1 if a resource is rejected or has an unresolved reference (with --strict, also if there is a warning); 2 if
    /// an input is invalid or can't be read, or the server does not respond.
    Check(Check),
    /// Run sample backends and routes, and print curl commands to try
    ///
    /// Listens on loopback addresses only, and runs until interrupted.
    ///
    /// Exit status with --once: 0 if every response is as expected; 1 if one is not; 2 if the demo can't be started.
    Demo(Demo),
    /// Report which requests two sets of manifests treat differently
    ///
    /// Derives representative requests from the rules of both sets: for each match, for each overlap of two matches, and near misses. Decides each on both
    /// sides as `explain` does, and prints the differences by cause, each with a sample request. Needs neither privileges nor a cluster.
    ///
    /// A difference is another response, backend, weight, request at the backend, filter, timeout or retry. A different rule with the same effect does not
    /// count.
    ///
    /// Exit status: 0 if there is no difference; 1 if there are differences; 2 if an input is invalid or can't be read.
    Diff(Diff),
    /// Explain which rule a request matches, and why each other rule does not
    ///
    /// Prints the listener and rule that are selected, the request that the backend receives, the backends with their share of the traffic, and every rule
    /// that is not selected with the criterion that decided.
    ///
    /// Exit status: 0 if the request is forwarded or redirected, or gets a response with a status below 400; 1 if the client gets an error response or there is
    /// no listener for the request; 2 if an input is invalid or can't be read.
    Explain(Explain),
    /// Draw the topology: Gateways, mesh parents and Dataplanes, their listeners, routes and backends
    ///
    /// Reads manifests (-f) or, without -f, the cluster that kubectl would use. Refused attachments, unresolved references and backends without endpoints are marked in red with the reason.
    ///
    /// By default, prints an SVG picture: `pointsman graph -f FOLDER > topology.svg` and open the file in a browser.
    ///
    /// Exit status: 0 if the graph was printed; 2 if an input is invalid or can't be read.
    Graph(GraphArgs),
    /// Run a standalone proxy that is configured by manifests
    ///
    /// Listens for every Gateway, and prints the addresses. Each Gateway gets an address of its own, by default a loopback address. Files are watched: a change
    /// takes effect within milliseconds, and while a document is broken its last valid version stays in effect.
    ///
    /// SIGHUP reloads all files and reopens the access log. SIGTERM and SIGINT shut down gracefully; a second signal exits immediately.
    ///
    /// Exit status: 0 after a graceful shutdown; 1 if connections had to be closed at the end of the --drain period; 2 if the command line is invalid or no
    /// input can be read at startup. The environment variable RUST_LOG sets the log level, such as `debug`; logs go to standard error.
    Run(Box<Run>),
    /// Run a control plane that configures proxies over the network
    ///
    /// Watches the objects of a Kubernetes cluster, or with -f manifests as `run` does, and sends the result to `pointsman proxy`. On a cluster it also writes
    /// the status of every object that it manages. The status of Gateways follows from what the proxies report.
    ///
    /// SIGHUP reloads all files. SIGTERM and SIGINT shut down; proxies keep their configuration and reconnect.
    ///
    /// Exit status: 0 after a shutdown by a signal; 2 if the command line is invalid, or no input can be read or no address be bound at startup.
    Controller(Box<Controller>),
    /// Run a proxy that is configured by a control plane
    ///
    /// Listens for every Gateway and carries traffic as `run` does. If no control plane can be reached, the last configuration stays in effect.
    ///
    /// SIGHUP reopens the access log. SIGTERM and SIGINT shut down gracefully; a second signal exits immediately.
    ///
    /// Exit status: 0 after a graceful shutdown; 1 if connections had to be closed at the end of the --drain period; 2 if the command line is invalid.
    Proxy(Box<ProxyArgs>),
    /// Print the Kubernetes manifests of a controller and its GatewayClass
    ///
    /// Prints CustomResourceDefinitions, the controller's namespace, ServiceAccount, permissions, Deployment and Service, and a GatewayClass, for
    /// `kubectl apply -f -`. The CustomResourceDefinitions of the Gateway API are not included.
    ///
    /// Exit status: 0 if the manifests were printed; 2 if the command line is invalid.
    Install(Install),
    /// List the proxies that are connected to a controller
    ///
    /// Prints for each proxy its name, authenticated identity, address, software version, configuration version, lag behind the latest configuration, number of
    /// subscribed resources, and last reported problem.
    ///
    /// Exit status: 0 if the list was printed; 2 if the command line is invalid or the controller does not respond.
    Status(StatusArgs),
    /// Block until resources are in effect on all proxies, for deployment scripts
    ///
    /// Waits until every given resource has reached the state. If the time limit expires first, prints the conditions that are not met.
    ///
    /// Exit status: 0 if all resources have reached the state; 1 if the time limit has expired; 2 if the command line is invalid or the server does not respond
    /// at the start.
    Wait(WaitArgs),
}

/// Arguments of `run`.
#[derive(Args)]
pub struct Run {
    /// File or directory of manifests to watch, or `-` for standard input; may be repeated
    ///
    /// Directories are searched recursively for *.yaml, *.yml and *.json files. A pipe is read once.
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,

    #[command(flatten)]
    pub permissions: PermissionArgs,

    #[command(flatten)]
    pub admin: AdminArgs,

    #[command(flatten)]
    pub data_plane: DataPlaneArgs,

    /// Log only warnings and errors, and print no addresses. Set by `demo`, which prints its own.
    #[arg(skip)]
    pub quiet: bool,
}

/// Options of the admin server.
#[derive(Args)]
pub struct AdminArgs {
    /// Address of the admin server, or `off` to disable it
    ///
    /// The admin server serves a status page and /healthz, /readyz, /metrics, /status, /conditions, /config and /explain, in a controller also /proxies. It has
    /// no authentication.
    #[arg(long = "admin", value_name = "ADDRESS:PORT", default_value = "127.0.0.1:15000", value_parser = admin)]
    pub listen: AdminAddress,

    /// Host name that requests to the admin server may use; may be repeated [default: IP addresses and localhost only]
    ///
    /// Other host names are rejected, as a protection from DNS rebinding by web pages.
    #[arg(long = "admin-host", value_name = "NAME")]
    pub hosts: Vec<String>,

    /// Address of a second server that serves only /healthz, /readyz and /metrics, for kubelets and Prometheus [default: none]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = |text: &str| socket_address(text, "0.0.0.0:15021"))]
    pub probes: Option<SocketAddr>,
}

/// Options of a data plane.
#[derive(Args)]
pub struct DataPlaneArgs {
    /// Range of addresses that are assigned to Gateways without a requested address
    ///
    /// A Gateway gets the same address again after a restart.
    #[arg(long, value_name = "CIDR", default_value = "127.0.64.0/18")]
    pub address_pool: AddressPool,

    /// Address shared by all Gateways without a requested address, instead of one address each from the pool
    #[arg(long, value_name = "ADDRESS", conflicts_with = "address_pool")]
    pub address: Option<IpAddr>,

    /// Number to add to every listener port, to avoid privileged ports: with 8000, port 80 becomes 8080
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub port_offset: u16,

    /// Kuma Dataplane or MeshGatewayInstance to serve; may be repeated [default: all]
    ///
    /// With this flag, the outbounds and listeners of other Dataplanes and MeshGatewayInstances are not opened.
    #[arg(long = "dataplane", value_name = "[MESH/]NAME")]
    pub dataplanes: Vec<String>,

    /// Number of threads that carry traffic [default: one per core]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,

    /// Range of client addresses whose X-Forwarded-* headers are trusted; may be repeated or separated by commas [default: none]
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub trusted_proxies: Vec<Network>,

    /// Range of load balancer addresses whose TCP connections begin with a PROXY protocol header (version 1 or 2); may be repeated or separated by commas
    /// [default: none]
    ///
    /// The address in the header counts as the client's address. A connection from such a range without a valid header is closed; a header from any other
    /// address is an invalid request.
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub proxy_protocol: Vec<Network>,

    /// Minimum TLS version of listeners
    #[arg(long, value_enum, value_name = "VERSION", default_value_t = MinTls::V1_2)]
    pub min_tls: MinTls,

    /// Kubernetes node of this proxy: endpoints with hints for it are preferred (`trafficDistribution` of Services) [default: none]
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub node: Option<String>,

    /// Zone of this proxy: endpoints with hints for it are preferred (`trafficDistribution` of Services) [default: none]
    #[arg(long, value_name = "NAME", env = "NODE_ZONE")]
    pub zone: Option<String>,

    /// Treatment of paths that backends may interpret differently
    #[arg(long = "paths", value_enum, value_name = "POLICY", default_value_t = Paths::Any)]
    pub path_policy: Paths,

    /// Write an access log as `text` or `json`, to standard output or to a file: `json:/var/log/requests` [default: none]
    #[arg(long, value_name = "FORMAT[:FILE]", value_parser = access_log)]
    pub access_log: Option<AccessLogOptions>,

    /// Change a limit, such as header-bytes=128KiB; may be repeated
    ///
    /// docs/limits.md lists the names and defaults of all limits.
    #[arg(long = "limit", value_name = "NAME=VALUE", value_parser = limit)]
    pub limits: Vec<(String, String)>,

    /// Grace period for active requests and connections after SIGTERM, such as 30s or 1m30s
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub drain: Duration,
}

impl DataPlaneArgs {
    /// Returns the addresses and sockets of the data plane.
    pub fn placement(&self) -> Placement {
        self.placement_with(self.address_policy())
    }

    fn address_policy(&self) -> AddressPolicy {
        match self.address {
            Some(address) => AddressPolicy::Fixed(address),
            None => AddressPolicy::Pool(self.address_pool.clone()),
        }
    }

    fn placement_with(&self, policy: AddressPolicy) -> Placement {
        let dataplanes = DataplaneFilter(self.dataplanes.iter().cloned().collect());
        Placement::new(policy, self.port_offset, dataplanes)
    }

    /// Returns the node and zone. The downward API sets the variable of a label that does not exist to an empty text.
    fn location(&self) -> Location {
        let named = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
        Location {
            node: named(&self.node),
            zone: named(&self.zone),
        }
    }

    /// Returns the options that these arguments set. Fails for a limit that is unknown or out of range.
    pub fn options(&self) -> Result<Options> {
        let mut limits = Limits::default();
        for (name, value) in &self.limits {
            if let Err(error) = limits.set(name, value) {
                bail!("--limit {name}={value}: {error}");
            }
        }
        Ok(Options {
            workers: self.workers.map(usize::from),
            limits,
            trusted_proxies: self.trusted_proxies.clone(),
            proxy_protocol: self.proxy_protocol.clone(),
            min_tls: self.min_tls.version(),
            location: self.location(),
            paths: self.path_policy.policy(),
            access_log: self.access_log.clone(),
            ..Options::default()
        })
    }
}

/// Minimum TLS version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MinTls {
    /// TLS 1.2 and 1.3
    #[value(name = "1.2")]
    V1_2,
    /// TLS 1.3 only
    #[value(name = "1.3")]
    V1_3,
}

impl MinTls {
    fn version(self) -> TlsVersion {
        match self {
            MinTls::V1_2 => TlsVersion::V1_2,
            MinTls::V1_3 => TlsVersion::V1_3,
        }
    }
}

/// Paths that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Paths {
    /// Serve all paths
    Any,
    /// Reject paths with %2F, %5C, // or ; in a segment with 400: some backends interpret them as another path
    Strict,
}

impl Paths {
    /// Returns the policy.
    pub fn policy(self) -> PathPolicy {
        match self {
            Paths::Any => PathPolicy::Any,
            Paths::Strict => PathPolicy::Strict,
        }
    }
}

/// Address of the admin server; `None` disables it.
pub type AdminAddress = Option<SocketAddr>;

fn admin(text: &str) -> Result<AdminAddress, String> {
    if text == "off" {
        return Ok(None);
    }
    let address = socket_address(text, "127.0.0.1:15000");
    address
        .map(Some)
        .map_err(|expected| format!("{expected}, or `off`"))
}

/// Parses an address to listen on. Host names are not resolved.
fn socket_address(text: &str, example: &str) -> Result<SocketAddr, String> {
    let address = text.parse();
    address.map_err(|_| format!("expected an IP address and a port, such as {example}"))
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
                "expected `text` or `json`, optionally with a file: `json:/var/log/requests`"
                    .to_owned(),
            );
        }
    };
    if file == Some("") {
        return Err("the file name after the colon is missing".to_owned());
    }
    let file = file.map(PathBuf::from);
    Ok(AccessLogOptions { format, file })
}

fn limit(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err("expected NAME=VALUE, such as header-bytes=65536".to_owned()),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    pointsman_binding::bound::duration(text).ok_or_else(|| {
        "expected numbers with a unit (h, m, s or ms), such as 30s or 1m30s".to_owned()
    })
}

/// Files, environment variables and addresses that manifests may use.
#[derive(Args, Clone, Default)]
pub struct PermissionArgs {
    /// Directory whose files Kuma resources may use for direct responses and certificates; may be repeated [default: none]
    #[arg(long, value_name = "DIR")]
    pub content_dir: Vec<PathBuf>,

    /// Environment variable that Kuma resources may use for direct responses and certificates; may be repeated [default: none]
    #[arg(long, value_name = "NAME")]
    pub content_env: Vec<String>,

    #[command(flatten)]
    pub endpoints: EndpointArgs,
}

/// Addresses that endpoints may have.
#[derive(Args, Clone, Default)]
pub struct EndpointArgs {
    /// Addresses that endpoints may have and DNS names of backends may resolve to [default: any for manifests and proxies, routable for a cluster]
    #[arg(long, value_enum, value_name = "POLICY")]
    pub endpoint_addresses: Option<EndpointAddresses>,

    /// Range of endpoint addresses to allow in addition to routable ones; requires `--endpoint-addresses routable`; may be repeated
    #[arg(long, value_name = "CIDR")]
    pub allow_endpoint_range: Vec<Network>,
}

/// Addresses that manifests may use as endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EndpointAddresses {
    /// All addresses
    Any,
    /// All except loopback, link-local, unspecified and multicast addresses, to protect services on this machine from untrusted manifests
    Routable,
}

impl EndpointArgs {
    /// Returns the policy for endpoints; by default all addresses are allowed. Fails if a flag has no effect.
    pub fn policy(&self) -> Result<EndpointPolicy> {
        self.policy_or(EndpointAddresses::Any)
    }

    /// Returns the flags that give a proxy the same policy, with the default of a controller of a cluster.
    pub fn proxy_flags(&self) -> Vec<String> {
        let addresses = self
            .endpoint_addresses
            .unwrap_or(EndpointAddresses::Routable);
        let addresses = match addresses {
            EndpointAddresses::Any => "any",
            EndpointAddresses::Routable => "routable",
        };
        let ranges = self.allow_endpoint_range.iter();
        let ranges = ranges.map(|range| format!("--allow-endpoint-range={range}"));
        let addresses = format!("--endpoint-addresses={addresses}");
        std::iter::once(addresses).chain(ranges).collect()
    }

    fn policy_or(&self, default: EndpointAddresses) -> Result<EndpointPolicy> {
        let ranges = self.allow_endpoint_range.clone();
        Ok(match self.endpoint_addresses.unwrap_or(default) {
            EndpointAddresses::Routable => EndpointPolicy::routable(ranges),
            EndpointAddresses::Any if ranges.is_empty() => EndpointPolicy::default(),
            EndpointAddresses::Any => {
                bail!("--allow-endpoint-range has no effect without --endpoint-addresses routable")
            }
        })
    }
}

impl PermissionArgs {
    /// Returns the permissions. Fails if a directory does not exist or a flag has no effect.
    pub fn permissions(&self) -> Result<ManifestPermissions> {
        self.permissions_or(EndpointAddresses::Any)
    }

    /// Returns the permissions, with a policy for endpoints that applies unless another one is given.
    pub fn permissions_or(&self, default: EndpointAddresses) -> Result<ManifestPermissions> {
        let content = ContentAccess::new(&self.content_dir, &self.content_env);
        Ok(ManifestPermissions {
            content: content.map_err(Error::msg)?,
            endpoints: Arc::new(self.endpoints.policy_or(default)?),
        })
    }
}

#[derive(Args)]
pub struct Sources {
    /// File or directory of manifests, or `-` for standard input; may be repeated [default: the cluster of the current kubeconfig]
    ///
    /// Directories are searched recursively for *.yaml, *.yml and *.json files. A pipe is read once.
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    #[command(flatten)]
    pub cluster: ClusterSource,

    /// Name of the controller whose statuses are reported
    #[arg(long, value_name = "NAME", default_value = pointsman_binding::CONTROLLER_NAME, value_parser = control_plane::controller_name)]
    pub controller_name: String,

    #[command(flatten)]
    pub permissions: PermissionArgs,

    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    pub output: Format,
}

/// The cluster to read, in place of manifests. The flags are those of kubectl.
#[derive(Args, Default)]
pub struct ClusterSource {
    /// Namespace to report on [default: that of the kubeconfig's context]
    ///
    /// Objects of other namespaces are read too, because routes refer to them. Kinds that the user may not list in all namespaces are listed in this one only.
    #[arg(short = 'n', long, value_name = "NAMESPACE", conflicts_with = "paths")]
    pub namespace: Option<String>,

    /// Report on all namespaces
    #[arg(short = 'A', long, conflicts_with = "paths")]
    pub all_namespaces: bool,

    #[command(flatten)]
    pub connection: ClusterConnection,
}

/// Flags by which commands select the cluster to read, besides the namespace.
#[derive(Args, Clone, Default)]
pub struct ClusterConnection {
    /// Kubeconfig of the cluster [default: KUBECONFIG, or ~/.kube/config]
    #[arg(long, value_name = "FILE", conflicts_with = "paths")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME", conflicts_with = "paths")]
    pub context: Option<String>,

    /// GatewayClass of the controller that is assumed to exist if the manifests do not have it, or if the user may not list those of the cluster [default: none
    /// for manifests, `pointsman` for a cluster]
    #[arg(long, value_name = "NAME", value_parser = control_plane::name)]
    pub gateway_class: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text for people, in color on a terminal
    Text,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

#[derive(Args)]
pub struct Check {
    #[command(flatten)]
    pub sources: Sources,

    /// Print the report of a running controller or `run`, given by the URL of its admin server, such as http://127.0.0.1:15000
    #[arg(long, value_name = "URL", conflicts_with_all = ["paths", "name", "namespace", "all_namespaces", "kubeconfig", "context", "gateway_class", "content_dir", "content_env", "endpoint_addresses", "allow_endpoint_range"])]
    pub server: Option<ServerUrl>,

    /// Exit with status 1 if there are warnings
    #[arg(long)]
    pub strict: bool,

    /// Print only resources with problems, and warnings
    #[arg(short, long)]
    pub quiet: bool,

    /// Print only the merged rules of Kuma's policies for this Dataplane, Pod or MeshGateway, in order of evaluation
    ///
    /// Prefix the name with its mesh (on Kubernetes, with its namespace) if several objects have the name.
    #[arg(long = "for", value_name = "[MESH/]NAME")]
    pub name: Option<String>,
}

#[derive(Args)]
pub struct Demo {
    /// Run every sample command, print the responses, and exit
    #[arg(long)]
    pub once: bool,

    /// Port of the sample Gateway on loopback; the two ports above it are used as well
    #[arg(long, value_name = "PORT", default_value_t = 18080)]
    pub port: u16,
}

// The namespace only restricts the lists of a user without permissions in all namespaces: a request isn't in a namespace.
#[derive(Args)]
#[command(
    mut_arg("namespace", |argument| argument
        .help("Namespace to list kinds in that the user may not list in all namespaces [default: that of the kubeconfig's context]")
        .long_help(None::<&str>)),
    mut_arg("all_namespaces", |argument| argument.hide(true))
)]
pub struct Explain {
    #[command(flatten)]
    pub sources: Sources,

    /// Explain with the configuration of a running controller or `run`, given by the URL of its admin server, such as http://127.0.0.1:15000
    #[arg(long, value_name = "URL", conflicts_with_all = ["paths", "namespace", "all_namespaces", "kubeconfig", "context", "gateway_class", "controller_name", "content_dir", "content_env", "endpoint_addresses", "allow_endpoint_range", "path_policy"])]
    pub server: Option<ServerUrl>,

    /// Gateway, and optionally listener, that receives the request [default: selected by the URL]
    ///
    /// A Kuma MeshGateway, or a Dataplane that serves one, is given by its NAME, optionally prefixed with its mesh.
    #[arg(long, value_name = "NAMESPACE/NAME[/LISTENER]|NAME[/LISTENER]")]
    pub gateway: Option<String>,

    /// Namespace, Pod or Kuma Dataplane that sends the request
    ///
    /// With this flag, the URL is looked up among Services before Gateways; without it, among Gateways first. An outbound of a Dataplane is given in the URL by
    /// its address and port, or as NAME.mesh.
    #[arg(long, value_name = "NAMESPACE[/POD]|dataplane/[MESH/]NAME")]
    pub from: Option<String>,

    /// Server name (SNI) that the client sends in the TLS handshake; empty for none [default: the host of the URL]
    #[arg(long, value_name = "NAME")]
    pub sni: Option<String>,

    /// HTTP method of the request [default: GET, or POST for gRPC]
    #[arg(short = 'X', long, value_name = "METHOD")]
    pub method: Option<String>,

    /// Header of the request; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,

    /// Treatment of ambiguous paths, as set by `run --paths`
    #[arg(long = "paths", value_enum, value_name = "POLICY", default_value_t = Paths::Any)]
    pub path_policy: Paths,

    /// URL of the request: http://, https://, grpc://host/pkg.Service/Method, tls://name, tcp://host:port or udp://host:port
    pub url: String,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_details_of_a_command_or_flag_are_not_part_of_its_summary() {
        let cli = Cli::command();
        let summary = |command: &str, flag: Option<&str>| {
            let command = cli.find_subcommand(command).expect("a command");
            let mut flags = command.get_arguments();
            let text = match flag {
                Some(flag) => flags
                    .find(|known| known.get_long() == Some(flag))
                    .expect("a flag")
                    .get_help(),
                None => command.get_about(),
            };
            text.map(ToString::to_string).unwrap_or_default()
        };
        assert_eq!(
            summary("demo", None),
            "Run sample backends and routes, and print curl commands to try"
        );
        assert_eq!(
            summary("install", Some("watch-namespace")),
            "Namespace to watch, with permissions in this namespace only; may be repeated [default: all]"
        );
    }
}
