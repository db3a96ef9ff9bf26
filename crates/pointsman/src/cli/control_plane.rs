//! Arguments of `controller` and `proxy`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use pointsman_wire::client::ControlPlaneUrl;
use pointsman_wire::server::{Selector, Subscription};

use super::{AdminArgs, DataPlaneArgs, EndpointArgs, PermissionArgs};

/// Arguments of `controller`.
#[derive(Args)]
pub struct Controller {
    /// File or directory of manifests to watch, or `-` for standard input; may be repeated
    ///
    /// Directories are searched recursively for *.yaml, *.yml and *.json files. A pipe is read once.
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,

    #[command(flatten)]
    pub permissions: PermissionArgs,

    /// Address at which proxies are served; a loopback address
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub xds: SocketAddr,

    #[command(flatten)]
    pub admin: AdminArgs,
}

/// Arguments of `proxy`.
#[derive(Args)]
pub struct ProxyArgs {
    /// URL of a control plane, such as http://127.0.0.1:15010; may be repeated, and the control planes are tried in turn
    #[arg(long, value_name = "URL", required = true)]
    pub control_plane: Vec<ControlPlaneUrl>,

    /// Name of this proxy, unique among those of the control plane
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub name: String,

    /// Gateway to serve; may be repeated [default: everything]
    #[arg(long = "gateway", value_name = "NAMESPACE/NAME", value_parser = Selector::gateway)]
    pub gateways: Vec<Selector>,

    #[command(flatten)]
    pub endpoints: EndpointArgs,

    #[command(flatten)]
    pub data_plane: DataPlaneArgs,

    #[command(flatten)]
    pub admin: AdminArgs,
}

impl ProxyArgs {
    /// Returns what the proxy subscribes to: its Gateways and Dataplanes, everything if it names none.
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

fn name(text: &str) -> Result<String, String> {
    let fits = |char: char| char.is_ascii_graphic();
    match !text.is_empty() && text.len() <= 253 && text.chars().all(fits) {
        true => Ok(text.to_owned()),
        false => Err("expected 1 to 253 printable ASCII characters without spaces".to_owned()),
    }
}
