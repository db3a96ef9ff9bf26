//! The command `diff`: reports which requests two sets of manifests treat differently.

mod recorded;
mod text;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use pointsman_control::diff::compare;
use pointsman_control::offline::Loaded;
use pointsman_resources::Severity;

use crate::cli::{Diff, Format};
use crate::input;
use crate::output::{self, Paint};

/// Runs `diff`.
pub fn run(arguments: &Diff) -> Result<ExitCode> {
    let inputs = arguments.old.iter().chain(&arguments.new);
    let inputs = inputs.chain(&arguments.requests);
    if inputs.filter(|path| **path == *Path::new("-")).count() > 1 {
        bail!("`-` is given twice, but standard input can be read only once");
    }
    let (old, _) = input::load(&arguments.sources(&arguments.old))?;
    let (new, _) = input::load(&arguments.sources(&arguments.new))?;
    let is_unreadable = [("-f", &old), ("-F", &new)]
        .map(|(flag, loaded)| print_errors(flag, loaded))
        .contains(&true);
    let policy = arguments.path_policy.policy();
    let recorded = match &arguments.requests {
        Some(path) => Some(recorded::read(path, [&old.tables, &new.tables], policy)?),
        None => None,
    };
    let comparison = compare(&old, &new, recorded.as_deref());
    match arguments.output {
        Format::Text => output::print(&text::render(&comparison, &Paint::new()))?,
        format => output::structured(format, &comparison)?,
    }
    let of_recorded = comparison
        .recorded
        .iter()
        .flat_map(|recorded| &recorded.differences);
    let is_different = comparison
        .differences
        .iter()
        .chain(of_recorded)
        .next()
        .is_some();
    Ok(match (is_unreadable, is_different) {
        (true, _) => ExitCode::from(2),
        (false, true) => ExitCode::from(1),
        (false, false) => ExitCode::SUCCESS,
    })
}

/// Prints the errors of one set. Returns whether there are any.
fn print_errors(flag: &str, loaded: &Loaded) -> bool {
    let findings = loaded.objects.findings.iter();
    let errors: Vec<_> = findings
        .filter(|finding| finding.severity == Severity::Error)
        .collect();
    for error in &errors {
        output::print_error(&format!("{flag}: {error}"));
    }
    !errors.is_empty()
}
