//! The binary: commands, and the wiring of the other crates.

mod admin;
mod check;
mod cli;
mod client;
mod controller;
mod demo;
mod diff;
mod explain;
mod graph;
mod in_process;
mod input;
mod install;
mod logging;
mod merged_rules;
mod output;
mod proxy;
mod run;
mod serving;
mod status;
mod wait;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches};
use cli::{Cli, Verb};

/// Requests allocate and free many small blocks on several threads, which mimalloc handles well.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // 2 is also clap's exit status for an invalid command line.
    execute(&parse().verb).unwrap_or_else(|error| {
        output::print_error(&format!("pointsman: {error:#}"));
        ExitCode::from(2)
    })
}

/// Parses the command line. Installed as `kubectl-pointsman`, the help texts show the command as a kubectl plugin.
fn parse() -> Cli {
    let program = std::env::args_os().next().map(PathBuf::from);
    let name = program.as_deref().and_then(Path::file_stem);
    let command = match name.is_some_and(|name| name == "kubectl-pointsman") {
        true => Cli::command().bin_name("kubectl pointsman"),
        false => Cli::command(),
    };
    let matches = command.get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn execute(verb: &Verb) -> Result<ExitCode> {
    match verb {
        Verb::Check(arguments) => check::run(arguments),
        Verb::Demo(arguments) => demo::run(arguments),
        Verb::Diff(arguments) => diff::run(arguments),
        Verb::Explain(arguments) => explain::run(arguments),
        Verb::Graph(arguments) => graph::run(arguments),
        Verb::Run(arguments) => run::run(arguments),
        Verb::Controller(arguments) => controller::run(arguments),
        Verb::Proxy(arguments) => proxy::run(arguments),
        Verb::Install(arguments) => install::run(arguments),
        Verb::Status(arguments) => status::run(arguments),
        Verb::Wait(arguments) => wait::run(arguments),
    }
}
