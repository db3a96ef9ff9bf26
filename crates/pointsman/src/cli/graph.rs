//! Arguments of `graph`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{ClusterConnection, ClusterSource, Format, PermissionArgs, Sources, control_plane};

/// Arguments of `graph`.
#[derive(Args)]
pub struct GraphArgs {
    /// File or directory of manifests, or `-` for standard input; may be repeated [default: the cluster of the current kubeconfig]
    ///
    /// Directories are searched recursively for *.yaml, *.yml and *.json files. A pipe is read once.
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// Show only what is connected to objects of this namespace [default: all for manifests, that of the kubeconfig's context for a cluster]
    #[arg(short = 'n', long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// Show all namespaces of a cluster
    #[arg(short = 'A', long, conflicts_with_all = ["paths", "namespace"])]
    pub all_namespaces: bool,

    #[command(flatten)]
    pub connection: ClusterConnection,

    /// Name of the controller of the GatewayClasses
    #[arg(long, value_name = "NAME", default_value = pointsman_binding::CONTROLLER_NAME, value_parser = control_plane::controller_name)]
    pub controller_name: String,

    #[command(flatten)]
    pub permissions: PermissionArgs,

    /// Output format
    #[arg(short, long, value_enum, default_value_t = GraphFormat::Svg)]
    pub output: GraphFormat,

    /// Show only what is connected to this Gateway, route or other object
    #[arg(value_name = "[[KIND/]NAMESPACE/]NAME")]
    pub name: Option<String>,
}

/// Output format of `graph`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    /// A picture for browsers
    Svg,
    /// A flowchart for Markdown on GitHub, GitLab and others
    Mermaid,
    /// The language of Graphviz
    Dot,
    /// Nodes and edges
    Json,
}

impl GraphArgs {
    /// Returns the sources.
    pub fn sources(&self) -> Sources {
        let is_cluster = self.paths.is_empty();
        Sources {
            paths: self.paths.clone(),
            cluster: ClusterSource {
                namespace: self.namespace.clone().filter(|_| is_cluster),
                all_namespaces: self.all_namespaces,
                connection: self.connection.clone(),
            },
            controller_name: self.controller_name.clone(),
            permissions: self.permissions.clone(),
            output: Format::Text,
        }
    }
}
