//! Decides whether an object has reached a state, and names the conditions that are not met.

use std::fmt;

use pointsman_binding::status::effect::IN_EFFECT;
use pointsman_resources::Kind;

use super::{ReportedCondition, ReportedObject, ReportedPage};

/// A state of an object that its conditions report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectState {
    /// Accepted by every parent, and in effect on every connected proxy that serves it.
    InEffect,
    /// Accepted by every parent or ancestor in its status.
    Accepted,
    /// Ready to carry traffic.
    Programmed,
}

impl ObjectState {
    /// Returns the type of the condition.
    fn condition(self) -> &'static str {
        match self {
            ObjectState::InEffect => IN_EFFECT,
            ObjectState::Accepted => "Accepted",
            ObjectState::Programmed => "Programmed",
        }
    }

    /// Returns whether objects of a kind can be in the state.
    pub fn applies_to(self, kind: Kind) -> bool {
        match self {
            ObjectState::InEffect => kind.is_route() || kind.is_mesh_route(),
            ObjectState::Accepted => true,
            ObjectState::Programmed => {
                matches!(kind, Kind::Gateway | Kind::ListenerSet | Kind::MeshGateway)
            }
        }
    }
}

impl fmt::Display for ObjectState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ObjectState::InEffect => "in effect",
            ObjectState::Accepted => "accepted",
            ObjectState::Programmed => "programmed",
        })
    }
}

impl ReportedPage {
    /// Returns the conditions that the only object of the page does not meet, `None` if it has the state. A generation before `generation` does not count.
    pub fn unmet_conditions(&self, state: ObjectState, generation: Option<i64>) -> Option<String> {
        match self.objects.as_slice() {
            [] => Some("not found in the controller's configuration".to_owned()),
            [object] => unmet_conditions(object, state, generation),
            [..] => Some("several resources have this name".to_owned()),
        }
    }
}

fn unmet_conditions(
    object: &ReportedObject,
    state: ObjectState,
    generation: Option<i64>,
) -> Option<String> {
    if let Some(wanted) = generation
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
    if state == ObjectState::Programmed {
        // The condition of the resource itself summarizes those of its listeners. Some kinds have only the latter.
        let has_own = find(object, "", "Programmed").is_some();
        subjects.retain(|subject| subject.is_empty() == has_own);
    }
    let unmet = subjects.into_iter().filter_map(|subject| {
        let unmet = unmet_condition_of(object, subject, state)?;
        Some(match subject {
            "" => unmet,
            subject => format!("{subject}: {unmet}"),
        })
    });
    let unmet: Vec<String> = unmet.collect();
    (!unmet.is_empty()).then(|| unmet.join("; "))
}

fn find<'o>(
    object: &'o ReportedObject,
    subject: &str,
    kind: &str,
) -> Option<&'o ReportedCondition> {
    let mut all = object.conditions.iter();
    all.find(|condition| condition.subject == subject && condition.kind == kind)
}

/// Returns the first condition of a subject that is not met.
fn unmet_condition_of(
    object: &ReportedObject,
    subject: &str,
    state: ObjectState,
) -> Option<String> {
    // A resource that is not accepted can't be in another state.
    let accepted = find(object, subject, "Accepted");
    if let Some(unmet) = accepted.and_then(|condition| describe(condition, "not accepted")) {
        return Some(unmet);
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Returns a page with an object of generation 2 that has conditions with a subject, a type and a status.
    fn page(conditions: &[(&str, &str, &str)]) -> ReportedPage {
        let conditions = conditions.iter().map(|(subject, kind, status)| {
            let [subject, kind, status] = [*subject, *kind, *status].map(str::to_owned);
            ReportedCondition {
                subject,
                kind,
                problem: status != "True",
                status,
                reason: "Reason".to_owned(),
                message: String::new(),
            }
        });
        let object = ReportedObject {
            object: "HTTPRoute shop/web".to_owned(),
            position: String::new(),
            generation: 2,
            conditions: conditions.collect(),
            attached_routes: BTreeMap::new(),
            reaches: Vec::new(),
        };
        ReportedPage {
            resources: 1,
            objects: vec![object],
        }
    }

    #[test]
    fn an_object_has_a_state_when_every_parent_has_the_condition() {
        let accepted = [("a", "Accepted", "True"), ("b", "Accepted", "True")];
        let unmet = |conditions: &[_], state| page(conditions).unmet_conditions(state, None);
        assert_eq!(unmet(&accepted, ObjectState::Accepted), None);
        assert_eq!(
            unmet(&accepted, ObjectState::InEffect).as_deref(),
            Some("a: it applies to no traffic; b: it applies to no traffic")
        );
        let lagging = [
            ("a", "Accepted", "True"),
            ("a", IN_EFFECT, "False"),
            ("b", "Accepted", "False"),
            ("b", IN_EFFECT, "True"),
        ];
        assert_eq!(
            unmet(&lagging, ObjectState::InEffect).as_deref(),
            Some("a: not in effect (Reason); b: not accepted (Reason)")
        );
    }

    #[test]
    fn the_condition_of_a_gateway_itself_summarizes_those_of_its_listeners() {
        let gateway = page(&[
            ("", "Accepted", "True"),
            ("", "Programmed", "True"),
            ("listener a", "Programmed", "False"),
        ]);
        assert_eq!(
            gateway.unmet_conditions(ObjectState::Programmed, None),
            None
        );
        let listeners_only = page(&[("listener a", "Programmed", "False")]);
        assert_eq!(
            listeners_only
                .unmet_conditions(ObjectState::Programmed, None)
                .as_deref(),
            Some("listener a: not programmed (Reason)")
        );
    }

    #[test]
    fn an_earlier_generation_does_not_count() {
        let page = page(&[("a", "Accepted", "True")]);
        let unmet = |generation| page.unmet_conditions(ObjectState::Accepted, Some(generation));
        assert_eq!(unmet(2), None);
        assert_eq!(
            unmet(3).as_deref(),
            Some("the controller has seen generation 2, not yet 3")
        );
    }
}
