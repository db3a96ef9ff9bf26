//! Arguments of `diff`.

use std::path::PathBuf;

use clap::Args;

use super::{
    ClusterConnection, ClusterSource, Format, Paths, PermissionArgs, Sources, control_plane,
};

/// Arguments of `diff`.
#[derive(Args)]
pub struct Diff {
    /// File or directory of the old manifests, or `-` for standard input; may be repeated
    ///
    /// Directories are searched recursively for *.yaml, *.yml and *.json files. A pipe is read once.
    #[arg(short = 'f', long = "filename", value_name = "OLD", required = true)]
    pub old: Vec<PathBuf>,

    /// File or directory of the new manifests, or `-` for standard input; may be repeated
    #[arg(
        short = 'F',
        long = "new-filename",
        value_name = "NEW",
        required = true
    )]
    pub new: Vec<PathBuf>,

    /// File of recorded requests to compare in addition, or `-` for standard input
    ///
    /// An access log that Pointsman has written as JSON, or lines of the form `METHOD URL`, each optionally followed by lines with its headers (`name: value`). Empty lines and lines that begin with # are ignored.
    #[arg(long, value_name = "FILE")]
    pub requests: Option<PathBuf>,

    /// GatewayClass that is assumed to exist if the manifests do not have it [default: none]
    #[arg(long, value_name = "NAME", value_parser = control_plane::name)]
    pub gateway_class: Option<String>,

    /// Name of the controller of the GatewayClasses
    #[arg(long, value_name = "NAME", default_value = pointsman_binding::CONTROLLER_NAME, value_parser = control_plane::controller_name)]
    pub controller_name: String,

    #[command(flatten)]
    pub permissions: PermissionArgs,

    /// Treatment of ambiguous paths in recorded requests, as set by `run --paths`
    #[arg(long = "paths", value_enum, value_name = "POLICY", default_value_t = Paths::Any)]
    pub path_policy: Paths,

    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    pub output: Format,
}

impl Diff {
    /// Returns the sources of one of the sets.
    pub fn sources(&self, paths: &[PathBuf]) -> Sources {
        Sources {
            paths: paths.to_vec(),
            cluster: ClusterSource {
                connection: ClusterConnection {
                    gateway_class: self.gateway_class.clone(),
                    ..ClusterConnection::default()
                },
                ..ClusterSource::default()
            },
            controller_name: self.controller_name.clone(),
            permissions: self.permissions.clone(),
            output: self.output,
        }
    }
}
