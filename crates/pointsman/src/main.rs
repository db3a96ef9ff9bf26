//! The binary: verbs and wiring, nothing else.

mod admin;
mod check;
mod cli;
mod demo;
mod explain;
mod lookup;
mod merged_rules;
mod output;
mod run;
mod yaml;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use cli::{Cli, Verb};

/// Small blocks come and go with every request, on every thread.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // clap ends with 2 on a wrong command line, which is what unreadable input ends with too.
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
    }
}
