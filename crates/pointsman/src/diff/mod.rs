//! The command `diff`: reports which requests two sets of manifests treat differently.

mod text;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use pointsman_control::diff::compare;
use pointsman_control::offline::Loaded;
use pointsman_proxy::logged_listener;
use pointsman_resources::Severity;
use pointsman_routing::diff::{RecordedRequest, parse_recorded};
use pointsman_routing::{PathPolicy, Tables};

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
        Some(path) => Some(recorded(path, [&old.tables, &new.tables], policy)?),
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

/// Reads recorded requests, with a warning if some of them are skipped.
fn recorded(path: &Path, tables: [&Tables; 2], policy: PathPolicy) -> Result<Vec<RecordedRequest>> {
    let text = match path == Path::new("-") {
        true => std::io::read_to_string(std::io::stdin()),
        false => std::fs::read_to_string(path),
    };
    let text = text.with_context(|| path.display().to_string())?;
    let recorded = parse_recorded(&text, tables, policy, logged_listener);
    let recorded = recorded.with_context(|| path.display().to_string())?;
    if recorded.skipped > 0 {
        output::print_error(&format!(
            "warning: {} recorded requests are skipped: they name no listener, or a listener that exists in neither set of manifests",
            recorded.skipped
        ));
    }
    Ok(recorded.requests)
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
