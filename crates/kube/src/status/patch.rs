//! The difference between the actual and the desired status of an object.

use serde_json::{Map, Value};

/// Returns a merge patch of `status`; `None` if the two differ only in times.
///
/// A merge patch replaces whole lists, so it is sent with the resource version of `existing`.
pub fn patch(existing: Option<&Value>, desired: &Value) -> Option<Value> {
    let empty = Map::new();
    let existing = existing.and_then(Value::as_object).unwrap_or(&empty);
    let desired = desired.as_object().unwrap_or(&empty);
    let mut patch = Map::new();
    for (field, value) in desired {
        let before = existing.get(field).unwrap_or(&Value::Null);
        if !is_same(before, value) {
            patch.insert(field.clone(), value.clone());
        }
    }
    for (field, before) in existing {
        if !desired.contains_key(field) && !is_empty(before) {
            patch.insert(field.clone(), Value::Null);
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Returns whether a controller has reported nothing on the current generation of an object, so that a user is waiting for its status.
pub fn is_outdated(existing: Option<&Value>, controller: &str, generation: i64) -> bool {
    let Some(existing) = existing else {
        return true;
    };
    let lists = ["parents", "ancestors"].map(|field| existing[field].as_array());
    let entries: Vec<&Value> = match lists.iter().any(Option::is_some) {
        true => {
            let entries = lists.into_iter().flatten().flatten();
            let own = entries.filter(|entry| entry["controllerName"] == controller);
            own.collect()
        }
        false => vec![existing],
    };
    let mut conditions = entries
        .iter()
        .flat_map(|entry| entry["conditions"].as_array())
        .flatten()
        .peekable();
    conditions.peek().is_none()
        || conditions.any(|condition| condition["observedGeneration"] != generation)
}

/// Compares everything except times. An empty list equals a missing one; writing it would be a change without meaning.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let has_time = |map: &Map<String, Value>| map.contains_key("lastTransitionTime");
            let is_same = |(field, value): (&String, &Value)| {
                field == "lastTransitionTime"
                    || is_same(value, other.get(field).unwrap_or(&Value::Null))
            };
            let count = |map: &Map<String, Value>| map.len() - usize::from(has_time(map));
            count(one) == count(other) && one.iter().all(is_same)
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|(one, other)| is_same(one, other))
        }
        (one, other) => one == other || is_empty(one) && is_empty(other),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_fields_that_differ_are_patched() {
        let existing = json!({"conditions": [{"type": "Accepted"}], "addresses": [{"value": "10.0.0.1"}], "attachedListenerSets": 1});
        let desired =
            json!({"conditions": [{"type": "Accepted"}], "addresses": [{"value": "10.0.0.2"}]});
        assert_eq!(
            patch(Some(&existing), &desired),
            Some(json!({"addresses": [{"value": "10.0.0.2"}], "attachedListenerSets": null}))
        );
    }

    // "written only when something other than a timestamp differs"
    #[test]
    fn a_status_that_differs_in_times_only_is_not_written() {
        let status = |time: &str, reason: &str| {
            json!({"parents": [{"controllerName": "c", "conditions":
                [{"type": "Accepted", "reason": reason, "lastTransitionTime": time}]}]})
        };
        assert_eq!(patch(Some(&status("T1", "A")), &status("T2", "A")), None);
        let changed = patch(Some(&status("T1", "A")), &status("T2", "B"));
        assert_eq!(changed, Some(status("T2", "B")));
        let timeless = json!({"parents": [{"controllerName": "c", "conditions": [{"type": "Accepted", "reason": "A"}]}]});
        assert_eq!(patch(Some(&timeless), &status("T2", "A")), None);
    }

    // "most urgent first"
    #[test]
    fn a_status_is_outdated_until_its_conditions_are_of_the_current_generation() {
        let outdated = |status: Value| is_outdated(Some(&status), "c", 2);
        let conditions =
            |generation: i64| json!([{"type": "Accepted", "observedGeneration": generation}]);
        let parent = |controller: &str, generation: i64| json!({"controllerName": controller, "conditions": conditions(generation)});
        assert!(is_outdated(None, "c", 2));
        assert!(outdated(json!({"parents": []})));
        assert!(outdated(json!({"parents": [parent("other", 2)]})));
        assert!(outdated(json!({"parents": [parent("c", 1)]})));
        assert!(!outdated(
            json!({"parents": [parent("other", 1), parent("c", 2)]})
        ));
        assert!(!outdated(json!({"ancestors": [parent("c", 2)]})));
        assert!(outdated(json!({"conditions": conditions(1)})));
        assert!(!outdated(json!({"conditions": conditions(2)})));
    }

    // "routes out of scope SHOULD NOT be touched"
    #[test]
    fn an_empty_list_is_not_written_where_there_is_none() {
        assert_eq!(patch(None, &json!({"parents": []})), None);
        assert_eq!(patch(Some(&json!({"parents": []})), &json!({})), None);
        let own = json!({"parents": [{"controllerName": "c"}]});
        assert_eq!(
            patch(Some(&own), &json!({"parents": []})),
            Some(json!({"parents": []}))
        );
    }
}
