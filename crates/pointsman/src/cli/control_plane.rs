//! Arguments of `controller` and `proxy`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use pointsman_binding::{CONTROLLER_NAME, LimitCheck};
use pointsman_proxy::Limits;
use pointsman_proxy::placement::{AddressPolicy, Placement};
use pointsman_wire::client::{Cache, ControlPlaneUrl};
use pointsman_wire::server::{Selector, Subscription};
use pointsman_wire::tls::TlsFiles;

use super::install::PullPolicy;
use super::{AdminArgs, DataPlaneArgs, EndpointArgs, PermissionArgs, duration, socket_address};

/// Files for mutual TLS between control plane and proxies.
#[derive(Args)]
pub struct TlsArgs {
    /// Certificate chain (PEM) to present to the peer; reloaded when it changes
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "client_ca"])]
    pub tls_cert: Option<PathBuf>,

    /// Private key (PEM) of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// CA certificates (PEM) that the other side's certificate must be issued by
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub client_ca: Option<PathBuf>,
}

impl TlsArgs {
    /// Returns the files, if TLS is configured.
    pub fn files(&self) -> Option<TlsFiles> {
        Some(TlsFiles {
            certificate: self.tls_cert.clone()?,
            key: self.tls_key.clone()?,
            authorities: self.client_ca.clone()?,
        })
    }
}

/// Arguments of `controller`.
#[derive(Args)]
pub struct Controller {
    /// File or directory of manifests to watch in place of a cluster, or `-` for standard input; may be repeated
    ///
    /// Directories are searched recursively for *.yaml, *.yml and *.json files. A pipe is read once.
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// Name of this installation: GatewayClasses and XMeshes with this `controllerName` are managed, others are ignored
    #[arg(long, value_name = "NAME", default_value = CONTROLLER_NAME, value_parser = controller_name)]
    pub controller_name: String,

    /// The only GatewayClass to manage [default: all with the controller name]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub gateway_class: Option<String>,

    #[command(flatten)]
    pub cluster: ClusterArgs,

    #[command(flatten)]
    pub permissions: PermissionArgs,

    /// Address of the xDS server for proxies [default: 0.0.0.0:15010; with -f 127.0.0.1:15010]
    ///
    /// With -f and without TLS, a loopback address is required.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = |text: &str| socket_address(text, "127.0.0.1:15010"))]
    pub xds: Option<SocketAddr>,

    #[command(flatten)]
    pub tls: TlsArgs,

    /// File with the permitted subscriptions of each proxy [default: no restrictions]
    ///
    /// Each line has a subject alternative name of a proxy's certificate and permitted resources, such as `edge-1.example gateway/infra/edge`. The file is
    /// reloaded when it changes. docs/control-plane.md describes the format.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub authorize: Option<PathBuf>,

    #[command(flatten)]
    pub admin: AdminArgs,
}

impl Controller {
    /// Returns the address of the xDS server.
    pub fn xds(&self) -> SocketAddr {
        let default: IpAddr = match self.paths.is_empty() {
            true => Ipv4Addr::UNSPECIFIED.into(),
            false => Ipv4Addr::LOCALHOST.into(),
        };
        self.xds.unwrap_or((default, XDS_PORT).into())
    }

    /// Returns the identity of this installation.
    pub fn identity(&self) -> pointsman_binding::Controller {
        pointsman_binding::Controller {
            name: self.controller_name.as_str().into(),
            class: self.gateway_class.as_deref().map(Into::into),
            generates_proxies: self.cluster.proxy_image.is_some(),
            check_limit: LimitCheck(check_limit),
        }
    }
}

/// Checks a limit as `--limit` of a proxy does.
pub fn check_limit(name: &str, value: &str) -> Result<(), String> {
    Limits::default().set(name, value)
}

/// Port of the xDS server.
pub const XDS_PORT: u16 = 15010;

/// Options for a controller of a cluster. They have no effect with `-f`.
#[derive(Args)]
pub struct ClusterArgs {
    /// Kubeconfig of the cluster [default: as kubectl; within a Pod its own cluster]
    #[arg(long, value_name = "FILE", conflicts_with = "paths")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME", conflicts_with = "paths")]
    pub context: Option<String>,

    /// Namespace to watch; may be repeated [default: all]
    ///
    /// The controller then needs Roles in these namespaces, and a ClusterRole only for GatewayClasses and TokenReviews.
    #[arg(long = "watch-namespace", value_name = "NAMESPACE", value_parser = name, conflicts_with = "paths")]
    pub watch_namespaces: Vec<String>,

    /// Namespace of this controller, for its Lease and its Secret [default: that of the Pod or of the context]
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE", value_parser = name)]
    pub namespace: Option<String>,

    /// Lease for leader election among replicas; the leader writes statuses
    #[arg(long, value_name = "NAME", default_value = pointsman_kube::lease::LEASE_NAME, value_parser = name)]
    pub lease: String,

    /// Name of this replica [default: random]
    #[arg(long, value_name = "NAME", env = "POD_NAME", value_parser = name)]
    pub instance: Option<String>,

    /// IP address of this replica at which the others reach it, on the port of --xds [default: none; other replicas then don't see this one's proxies]
    #[arg(long, value_name = "IP", env = "POD_IP")]
    pub advertise_address: Option<IpAddr>,

    /// File with this replica's own ServiceAccount token for the audience `pointsman`, with which replicas authenticate to each other; reloaded when it changes
    #[arg(long, value_name = "FILE", conflicts_with = "paths")]
    pub token: Option<PathBuf>,

    /// Image of the proxies that are started for Gateways [default: none are started]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["paths", "tls_cert"])]
    pub proxy_image: Option<String>,

    /// Pull policy of the proxy image
    #[arg(long, value_enum, value_name = "POLICY", ignore_case = true, default_value_t = PullPolicy::IfNotPresent, requires = "proxy_image")]
    pub proxy_image_pull_policy: PullPolicy,

    /// Service of the controller, to which proxies connect
    #[arg(long, value_name = "NAME", default_value = "pointsman-controller", value_parser = name)]
    pub service: String,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// On
    On,
    /// Off
    Off,
}

/// Arguments of `proxy`.
#[derive(Args)]
pub struct ProxyArgs {
    /// URL of a control plane: https, or http for loopback addresses; may be repeated, and the control planes are tried in turn
    #[arg(long, value_name = "URL", required = true)]
    pub control_plane: Vec<ControlPlaneUrl>,

    #[command(flatten)]
    pub tls: TlsArgs,

    /// CA certificates (PEM) that the control plane's certificate must be issued by, for proxies that authenticate with a token; reloaded when it changes
    #[arg(
        long,
        value_name = "FILE",
        requires = "token",
        conflicts_with = "tls_cert"
    )]
    pub control_plane_ca: Option<PathBuf>,

    /// File with the ServiceAccount token to present to the control plane; reloaded when it changes
    #[arg(long, value_name = "FILE", requires = "control_plane_ca")]
    pub token: Option<PathBuf>,

    /// Name of this proxy, unique among those of the control plane
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub name: String,

    /// Gateway to serve; may be repeated [default: everything]
    #[arg(long = "gateway", value_name = "NAMESPACE/NAME", value_parser = Selector::gateway)]
    pub gateways: Vec<Selector>,

    /// Directory for a cache of the last configuration, used to start without a control plane [default: none]
    ///
    /// The directory is created if it does not exist; only the owner can read its files. Each proxy needs a directory of its own.
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,

    /// Store private keys in the cache, encrypted with a key in a separate file
    #[arg(long, value_enum, value_name = "ON|OFF", hide_possible_values = true, default_value_t = Switch::On, requires = "cache")]
    pub cache_secrets: Switch,

    #[command(flatten)]
    pub endpoints: EndpointArgs,

    /// Listen on all addresses of this machine for every Gateway, ignoring the addresses that it requests, as behind a load balancer
    #[arg(long, conflicts_with_all = ["address", "address_pool"])]
    pub all_addresses: bool,

    /// Number to add only to listener ports below 1024, which require a privilege: with 64512, port 80 becomes 64592
    #[arg(long, value_name = "NUMBER", default_value_t = 0, conflicts_with = "port_offset", value_parser = clap::value_parser!(u16).range(..=64512))]
    pub low_port_offset: u16,

    /// Time to keep accepting connections after SIGTERM, before the --drain period, so that load balancers stop sending traffic
    ///
    /// Responses announce the end of HTTP/1 connections meanwhile, so that clients open their next one elsewhere.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub drain_delay: Duration,

    #[command(flatten)]
    pub data_plane: DataPlaneArgs,

    #[command(flatten)]
    pub admin: AdminArgs,
}

impl ProxyArgs {
    /// Returns the addresses and sockets of the proxy.
    pub fn placement(&self) -> Placement {
        let policy = match self.all_addresses {
            true => AddressPolicy::All,
            false => self.data_plane.address_policy(),
        };
        self.data_plane
            .placement_with(policy)
            .with_low_port_offset(self.low_port_offset)
    }

    /// Opens the directory for the last configuration. An unusable one does not prevent the start.
    pub fn cache(&self) -> Option<Cache> {
        let directory = self.cache.clone()?;
        match Cache::open(directory, self.cache_secrets == Switch::On) {
            Ok(cache) => Some(cache),
            Err(error) => {
                tracing::warn!("--cache: {error}; the configuration is not stored");
                None
            }
        }
    }

    /// Returns the subscription of the proxy: its Gateways and Dataplanes, or everything if none are given.
    pub fn subscription(&self) -> Result<Subscription, String> {
        let dataplanes = self.data_plane.dataplanes.iter();
        let dataplanes = dataplanes.map(|text| Selector::dataplane(text));
        let mut selectors: Vec<Selector> = dataplanes.collect::<Result<_, _>>()?;
        selectors.extend(self.gateways.iter().cloned());
        Ok(match selectors.is_empty() {
            true => Subscription::Everything,
            false => Subscription::Selected(selectors.into_iter().collect()),
        })
    }
}

/// Parses a domain-prefixed path, as `controllerName` requires.
pub(super) fn controller_name(text: &str) -> Result<String, String> {
    let fits = |part: &str| !part.is_empty() && part.chars().all(|char| char.is_ascii_graphic());
    match text.split_once('/') {
        Some((domain, path)) if fits(domain) && fits(path) && text.len() <= 253 => {
            Ok(text.to_owned())
        }
        _ => Err(format!(
            "expected a domain and a path, such as {CONTROLLER_NAME}"
        )),
    }
}

/// Reads the name of an object or of a controller.
pub fn name(text: &str) -> Result<String, String> {
    let fits = |char: char| char.is_ascii_graphic();
    match !text.is_empty() && text.len() <= 253 && text.chars().all(fits) {
        true => Ok(text.to_owned()),
        false => Err("expected 1 to 253 printable ASCII characters without spaces".to_owned()),
    }
}
