//! The binary: commands, and the wiring of the other crates.

mod admin;
mod check;
mod cli;
mod controller;
mod demo;
mod explain;
mod install;
mod logging;
mod lookup;
mod merged_rules;
mod output;
mod proxy;
mod run;
mod serving;
mod yaml;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use cli::{Cli, Verb};

/// Requests allocate and free many small blocks on several threads, which mimalloc handles well.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // 2 is also clap's exit status for an invalid command line.
    execute(&Cli::parse().verb).unwrap_or_else(|error| {
        output::print_error(&format!("pointsman: {error:#}"));
        ExitCode::from(2)
    })
}

fn execute(verb: &Verb) -> Result<ExitCode> {
    match verb {
        Verb::Check(arguments) => check::run(arguments),
        Verb::Demo(arguments) => demo::run(arguments),
        Verb::Explain(arguments) => explain::run(arguments),
        Verb::Run(arguments) => run::run(arguments),
        Verb::Controller(arguments) => controller::run(arguments),
        Verb::Proxy(arguments) => proxy::run(arguments),
        Verb::Install(arguments) => install::run(arguments),
    }
}
