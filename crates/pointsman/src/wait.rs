//! The command `wait`: blocks until resources have a state, such as being in effect on all proxies.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use pointsman_binding::bound::duration_text;
use pointsman_control::clock;
use pointsman_control::conditions::{ObjectState, ReportedPage};

use crate::cli::{ObjectRef, WaitArgs};
use crate::output;

/// Interval between requests.
const POLL: Duration = Duration::from_millis(100);

/// Longest time for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs `wait`.
pub fn run(arguments: &WaitArgs) -> Result<ExitCode> {
    let (state, objects) = (arguments.state.object_state(), &arguments.objects);
    if let Some(object) = objects.iter().find(|object| !state.applies_to(object.kind)) {
        let kinds = match state {
            ObjectState::InEffect => "routes and Kuma's policies",
            ObjectState::Programmed => "Gateways, ListenerSets and MeshGateways",
            ObjectState::Accepted => "resources with a status",
        };
        bail!("{object} can't be waited for: only {kinds} can be {state}");
    }
    if arguments.generation.is_some() && objects.len() > 1 {
        bail!("--generation requires a single resource");
    }
    let deadline = clock::instant().checked_add(arguments.timeout);
    let mut is_first = true;
    loop {
        let unmet = match unmet_conditions(arguments) {
            Ok(unmet) => unmet,
            // A server that responded before may be restarting.
            Err(error) if !is_first => vec![format!("{error:#}")],
            Err(error) => return Err(error),
        };
        if unmet.is_empty() {
            let lines = objects
                .iter()
                .map(|object| format!("{object} is {state}\n"));
            output::print(&lines.collect::<String>())?;
            return Ok(ExitCode::SUCCESS);
        }
        is_first = false;
        if deadline.is_some_and(|deadline| clock::instant() >= deadline) {
            let unmet = unmet.join("\n  ");
            let after = match arguments.timeout {
                Duration::ZERO => String::new(),
                timeout => format!(" after {}", duration_text(timeout)),
            };
            output::print_error(&format!("pointsman: not {state}{after}:\n  {unmet}"));
            return Ok(ExitCode::from(1));
        }
        std::thread::sleep(POLL.min(arguments.timeout));
    }
}

/// Returns the conditions that are not met; empty if all resources have the state.
fn unmet_conditions(arguments: &WaitArgs) -> Result<Vec<String>> {
    let timeout = arguments
        .timeout
        .clamp(Duration::from_secs(1), REQUEST_TIMEOUT);
    let state = arguments.state.object_state();
    let mut unmet = Vec::new();
    for object in &arguments.objects {
        let ObjectRef {
            kind,
            namespace,
            name,
        } = object;
        let target = format!("/conditions?kind={kind}&namespace={namespace}&name={name}");
        let page: ReportedPage = arguments.server.json(&target, timeout)?;
        let conditions = page.unmet_conditions(state, arguments.generation);
        unmet.extend(conditions.map(|conditions| format!("{object}: {conditions}")));
    }
    Ok(unmet)
}
