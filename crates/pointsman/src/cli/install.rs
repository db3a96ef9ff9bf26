//! Arguments of `install`.

use std::net::IpAddr;

use clap::{Args, ValueEnum};
use pointsman_resources::Name;

/// Name of the GatewayClass of an installation, unless another is given.
pub const DEFAULT_GATEWAY_CLASS: &str = "pointsman";

/// Arguments of `install`.
#[derive(Args)]
pub struct Install {
    /// Image of the controller and of the proxies that it starts
    #[arg(long, value_name = "NAME", value_parser = image)]
    pub image: String,

    /// Pull policy of the image
    #[arg(long, value_enum, value_name = "POLICY", ignore_case = true, default_value_t = PullPolicy::IfNotPresent)]
    pub image_pull_policy: PullPolicy,

    /// Namespace of the controller
    #[arg(short, long, value_name = "NAME", default_value = "pointsman-system", value_parser = label)]
    pub namespace: String,

    /// Namespace to watch, with permissions in this namespace only; may be repeated [default: all]
    ///
    /// With this flag, cluster-scoped kinds other than GatewayClass are not read.
    #[arg(long = "watch-namespace", value_name = "NAME", value_parser = label)]
    pub watch_namespaces: Vec<String>,

    /// Controller name, by which GatewayClasses select this installation
    #[arg(long, value_name = "DOMAIN/PATH", default_value = pointsman_binding::CONTROLLER_NAME, value_parser = controller_name)]
    pub controller_name: String,

    /// Name of the GatewayClass to create
    #[arg(long, value_name = "NAME", default_value = DEFAULT_GATEWAY_CLASS, value_parser = subdomain)]
    pub gateway_class: String,

    /// GatewayParameters for all Gateways of the GatewayClass, in a watched namespace
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = object_name)]
    pub parameters: Option<Name>,

    /// Number of controller replicas: all serve proxies, one writes statuses
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    pub replicas: u16,

    /// Log level of the controller, in the syntax of RUST_LOG
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = log_level)]
    pub log_level: String,

    /// Address that the controller's pods listen on: 0.0.0.0, or :: on clusters with IPv6
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0", value_parser = unspecified)]
    pub bind_address: IpAddr,

    /// Omit Pointsman's CustomResourceDefinitions, for a second installation in a cluster
    #[arg(long)]
    pub skip_crds: bool,

    /// Add minimal CustomResourceDefinitions of Kuma's kinds, for clusters without Kuma
    #[arg(long)]
    pub kuma_crds: bool,

    /// Add a ServiceMonitor and a PodMonitor for the Prometheus operator
    #[arg(long)]
    pub service_monitor: bool,

    /// Add a ConfigMap with a dashboard for Grafana
    #[arg(long)]
    pub grafana_dashboard: bool,
}

/// Image pull policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum PullPolicy {
    /// Whenever a container starts
    Always,
    /// If the node does not have the image
    IfNotPresent,
    /// Never
    Never,
}

impl PullPolicy {
    /// Returns the name in the API.
    pub fn name(self) -> &'static str {
        match self {
            PullPolicy::Always => "Always",
            PullPolicy::IfNotPresent => "IfNotPresent",
            PullPolicy::Never => "Never",
        }
    }
}

fn label(text: &str) -> Result<String, String> {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let is_label = (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-');
    match is_label {
        true => Ok(text.to_owned()),
        false => {
            Err("expected a name of up to 63 lower-case letters, digits and hyphens".to_owned())
        }
    }
}

/// Checks the form of names that are not part of a DNS name.
fn subdomain(text: &str) -> Result<String, String> {
    match text.len() <= 253 && text.split('.').all(|part| label(part).is_ok()) {
        true => Ok(text.to_owned()),
        false => Err(
            "expected labels of lower-case letters, digits and hyphens, separated by dots"
                .to_owned(),
        ),
    }
}

fn image(text: &str) -> Result<String, String> {
    match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(text.to_owned()),
        false => Err("expected the name of an image, without spaces".to_owned()),
    }
}

fn log_level(text: &str) -> Result<String, String> {
    match tracing_subscriber::EnvFilter::try_new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn object_name(text: &str) -> Result<Name, String> {
    match text.split_once('/') {
        Some((namespace, name)) => Ok(Name::new(label(namespace)?, subdomain(name)?)),
        None => Err("expected NAMESPACE/NAME".to_owned()),
    }
}

/// Checks the form that a GatewayClass requires of its `controllerName`.
fn controller_name(text: &str) -> Result<String, String> {
    let is_path = |c: u8| c.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&c);
    let valid = text.split_once('/').is_some_and(|(domain, path)| {
        domain.split('.').all(|part| label(part).is_ok())
            && !path.is_empty()
            && path.bytes().all(is_path)
            && text.len() <= 253
    });
    match valid {
        true => Ok(text.to_owned()),
        false => Err("expected a domain and a path, such as example.com/controller".to_owned()),
    }
}

fn unspecified(text: &str) -> Result<IpAddr, String> {
    match text.parse::<IpAddr>() {
        Ok(address) if address.is_unspecified() => Ok(address),
        _ => Err("expected 0.0.0.0 or ::".to_owned()),
    }
}
