//! A status with the transition times of its conditions.
//!
//! Everything in a status but these times follows from [`Status`], so only the times are kept, unless the object's status contains entries of other controllers as well.
//! There is one for each route, and as JSON it takes more memory than the route.

use std::sync::Arc;

use pointsman_binding::status::Status;
use pointsman_resources::meta::{rfc3339, to_rfc3339};
use serde_json::Value;

/// A status as it is written to an object.
#[derive(Clone)]
pub enum TimedStatus {
    /// A status without entries of others, as the status and the times of its conditions in seconds since the Unix epoch, in the order of the conditions.
    Times(Arc<Status>, Box<[i64]>),
    /// JSON.
    Json(Box<str>),
}

impl From<&Value> for TimedStatus {
    fn from(status: &Value) -> Self {
        TimedStatus::Json(status.to_string().into())
    }
}

impl TimedStatus {
    /// Merges a status with the one that an object in `namespace` has.
    pub fn merge(
        status: &Arc<Status>,
        namespace: &str,
        existing: Option<&Value>,
        now: &str,
    ) -> Self {
        let mut merged = status.merge(namespace, existing, now);
        let mut times = Vec::new();
        visit_times(&mut merged, &mut |time| {
            times.push(rfc3339(time).unwrap_or_default());
        });
        let timed = TimedStatus::Times(status.clone(), times.into());
        match existing.is_none() || timed.to_json(namespace).as_ref() == Some(&merged) {
            true => timed,
            false => TimedStatus::from(&merged),
        }
    }

    /// Returns the `.status` of the object, which is in `namespace`.
    pub fn to_json(&self, namespace: &str) -> Option<Value> {
        match self {
            TimedStatus::Times(status, times) => {
                let mut value = status.merge(namespace, None, "");
                let mut times = times.iter();
                visit_times(&mut value, &mut |time| {
                    *time = times.next().map_or_else(String::new, |at| to_rfc3339(*at));
                });
                Some(value)
            }
            TimedStatus::Json(text) => serde_json::from_str(text).ok(),
        }
    }
}

/// Visits the transition times of all conditions.
fn visit_times(value: &mut Value, visit: &mut impl FnMut(&mut String)) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                match field {
                    Value::String(time) if name == "lastTransitionTime" => visit(time),
                    _ => visit_times(field, visit),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| visit_times(item, visit)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use pointsman_binding::status::{Condition, ParentStatus, StatusBody};
    use pointsman_resources::refs::ParentReference;
    use serde_json::json;

    use super::*;

    const START: &str = "2026-01-31T12:00:00Z";
    const LATER: &str = "2026-01-31T12:00:05Z";

    fn status(resolved: bool) -> Arc<Status> {
        let parent: ParentReference = serde_json::from_value(json!({"name": "edge"})).expect("it");
        let conditions = vec![
            Condition::yes("Accepted", "Accepted", ""),
            Condition::new("ResolvedRefs", resolved, "ResolvedRefs", ""),
        ];
        Arc::new(Status {
            generation: 1,
            controller: "pointsman.io/controller".into(),
            body: StatusBody::Route(vec![ParentStatus {
                parent: Arc::new(parent),
                conditions,
            }]),
        })
    }

    fn merge(resolved: bool, existing: Option<&Value>, now: &str) -> TimedStatus {
        TimedStatus::merge(&status(resolved), "shop", existing, now)
    }

    fn json(timed: &TimedStatus) -> Value {
        timed.to_json("shop").expect("JSON")
    }

    #[test]
    fn a_status_of_pointsman_alone_is_stored_as_its_times() {
        let first = merge(true, None, START);
        let second = merge(false, Some(&json(&first)), LATER);
        for timed in [&first, &second] {
            assert!(matches!(timed, TimedStatus::Times(..)));
        }
        assert_eq!(json(&first), status(true).merge("shop", None, START));
        let expected = status(false).merge("shop", Some(&json(&first)), LATER);
        assert_eq!(json(&second), expected);
        let conditions = &expected["parents"][0]["conditions"];
        assert_eq!(conditions[0]["lastTransitionTime"], START);
        assert_eq!(conditions[1]["lastTransitionTime"], LATER);
    }

    #[test]
    fn entries_of_other_controllers_are_kept() {
        let mut existing = json(&merge(true, None, START));
        let other = json!({"parentRef": {"name": "x"}, "controllerName": "example.com/other", "conditions": []});
        let parents = existing["parents"].as_array_mut().expect("a list");
        parents.insert(0, other.clone());
        let timed = merge(false, Some(&existing), LATER);
        assert_eq!(json(&timed)["parents"][0], other);
        assert_eq!(
            json(&timed)["parents"][1]["conditions"][0]["lastTransitionTime"],
            START
        );
    }

    #[test]
    fn times_that_cannot_be_parsed_are_kept() {
        let mut existing = json(&merge(true, None, START));
        existing["parents"][0]["conditions"][0]["lastTransitionTime"] = json!("yesterday");
        let timed = merge(true, Some(&existing), LATER);
        assert_eq!(json(&timed), existing);
    }
}
