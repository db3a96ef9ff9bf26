//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Binds routes and carries traffic: Kubernetes Gateway API, at the edge and in the mesh.
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
}

#[derive(Args)]
pub struct Sources {
    /// A file, a folder (searched for *.yaml, *.yml and *.json), or - for standard input. May be repeated.
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,

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

    /// The Gateway that the request is sent to; chosen by the URL if left out.
    #[arg(long, value_name = "NAMESPACE/NAME[/LISTENER]")]
    pub gateway: Option<String>,

    /// Where the request comes from: calls in the mesh are asked for first.
    #[arg(long, value_name = "NAMESPACE[/POD]")]
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

    /// http://, https://, grpc://host/pkg.Service/Method, tls://name, tcp://host:port or udp://host:port
    pub url: String,
}
