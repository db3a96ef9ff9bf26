//! The command `wait`: blocks until resources have a state, such as being in effect on all proxies.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use pointsman_binding::bound::duration_text;
use pointsman_control::clock;

use crate::check::reported::{ReportedCondition, ReportedObject, ReportedPage};
use crate::cli::{ObjectRef, WaitArgs, WaitState};
use crate::output;

/// Interval between requests.
const POLL: Duration = Duration::from_millis(100);

/// Longest time for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs `wait`.
pub fn run(arguments: &WaitArgs) -> Result<ExitCode> {
    let WaitArgs { state, objects, .. } = arguments;
    if let Some(object) = objects.iter().find(|object| !state.applies_to(object.kind)) {
        let kinds = match state {
            WaitState::InEffect => "routes and Kuma's policies",
            WaitState::Programmed => "Gateways, ListenerSets and MeshGateways",
            WaitState::Accepted => "resources with a status",
        };
        bail!("{object} can't be waited for: only {kinds} can be {state}");
    }
    if arguments.generation.is_some() && objects.len() > 1 {
        bail!("--generation requires a single resource");
    }
    let deadline = clock::instant().checked_add(arguments.timeout);
    let mut is_first = true;
    loop {
        let waits = match waits_for(arguments) {
            Ok(waits) => waits,
            // A server that responded before may be restarting.
            Err(error) if !is_first => vec![format!("{error:#}")],
            Err(error) => return Err(error),
        };
        if waits.is_empty() {
            let lines = objects
                .iter()
                .map(|object| format!("{object} is {state}\n"));
            output::print(&lines.collect::<String>())?;
            return Ok(ExitCode::SUCCESS);
        }
        is_first = false;
        if deadline.is_some_and(|deadline| clock::instant() >= deadline) {
            let waits = waits.join("\n  ");
            let after = match arguments.timeout {
                Duration::ZERO => String::new(),
                timeout => format!(" after {}", duration_text(timeout)),
            };
            output::print_error(&format!("pointsman: not {state}{after}:\n  {waits}"));
            return Ok(ExitCode::from(1));
        }
        std::thread::sleep(POLL.min(arguments.timeout));
    }
}

/// Returns the conditions that are not met; empty if all resources have the state.
fn waits_for(arguments: &WaitArgs) -> Result<Vec<String>> {
    let timeout = arguments
        .timeout
        .clamp(Duration::from_secs(1), REQUEST_TIMEOUT);
    let mut waits = Vec::new();
    for object in &arguments.objects {
        let ObjectRef {
            kind,
            namespace,
            name,
        } = object;
        let target = format!("/conditions?kind={kind}&namespace={namespace}&name={name}");
        let page: ReportedPage = arguments.server.json(&target, timeout)?;
        let reason = match page.objects.as_slice() {
            [] => Some("not found in the controller's configuration".to_owned()),
            [found] => waits_for_object(found, arguments),
            [..] => Some("several resources have this name".to_owned()),
        };
        waits.extend(reason.map(|reason| format!("{object}: {reason}")));
    }
    Ok(waits)
}

/// Returns the reason why a resource does not have the state.
fn waits_for_object(object: &ReportedObject, arguments: &WaitArgs) -> Option<String> {
    if let Some(wanted) = arguments.generation
        && object.generation < wanted
    {
        let has = object.generation;
        return Some(format!(
            "the controller has seen generation {has}, not yet {wanted}"
        ));
    }
    if object.conditions.is_empty() {
        return Some("none of its parents is managed by Pointsman".to_owned());
    }
    let mut subjects: Vec<&str> = object.conditions.iter().map(|c| &*c.subject).collect();
    subjects.dedup();
    if arguments.state == WaitState::Programmed {
        // The condition of the resource itself summarizes those of its listeners. Some kinds have only the latter.
        let has_own = subjects.contains(&"") && has(object, "", "Programmed");
        subjects.retain(|subject| subject.is_empty() == has_own);
    }
    let reasons = subjects.into_iter().filter_map(|subject| {
        let reason = waits_for_subject(object, subject, arguments.state)?;
        Some(match subject {
            "" => reason,
            subject => format!("{subject}: {reason}"),
        })
    });
    let reasons: Vec<String> = reasons.collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

fn has(object: &ReportedObject, subject: &str, kind: &str) -> bool {
    find(object, subject, kind).is_some()
}

fn find<'o>(
    object: &'o ReportedObject,
    subject: &str,
    kind: &str,
) -> Option<&'o ReportedCondition> {
    let mut all = object.conditions.iter();
    all.find(|condition| condition.subject == subject && condition.kind == kind)
}

fn waits_for_subject(object: &ReportedObject, subject: &str, state: WaitState) -> Option<String> {
    // A resource that is not accepted can't be in another state.
    let accepted = find(object, subject, "Accepted");
    if let Some(reason) = accepted.and_then(|condition| describe(condition, "not accepted")) {
        return Some(reason);
    }
    match find(object, subject, state.condition()) {
        Some(condition) => describe(condition, &format!("not {state}")),
        None => Some("it applies to no traffic".to_owned()),
    }
}

/// Describes a condition that is not true.
fn describe(condition: &ReportedCondition, what: &str) -> Option<String> {
    if condition.status == "True" {
        return None;
    }
    let ReportedCondition {
        reason, message, ..
    } = condition;
    Some(match message.is_empty() {
        true => format!("{what} ({reason})"),
        false => format!("{what} ({reason}): {message}"),
    })
}
