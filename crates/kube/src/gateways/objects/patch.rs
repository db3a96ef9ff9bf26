//! Patches that operators apply to generated objects: merge patches that also merge lists whose items have names.

use serde_json::{Map, Value};

/// Applies a patch: fields replace those of the target, null removes one. Lists are replaced, except that named items, such as containers, are merged by name.
pub fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => merge_fields(target, patch),
        (Value::Array(target), Value::Array(patch)) if is_named(target) && is_named(patch) => {
            merge_items(target, patch);
        }
        (target, Value::Object(patch)) => {
            let mut fields = Map::new();
            merge_fields(&mut fields, patch);
            *target = Value::Object(fields);
        }
        (target, patch) => *target = patch.clone(),
    }
}

fn merge_fields(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, value) in patch {
        match value {
            Value::Null => drop(target.remove(key)),
            value => merge(target.entry(key.as_str()).or_insert(Value::Null), value),
        }
    }
}

fn merge_items(target: &mut Vec<Value>, patch: &[Value]) {
    for item in patch {
        match target
            .iter_mut()
            .find(|existing| existing["name"] == item["name"])
        {
            Some(existing) => merge(existing, item),
            None => target.push(item.clone()),
        }
    }
}

fn is_named(list: &[Value]) -> bool {
    !list.is_empty() && list.iter().all(|item| item["name"].is_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_replaces_removes_and_merges_named_items() {
        let mut target = json!({
            "a": 1, "gone": true, "args": ["x", "y"],
            "containers": [{"name": "proxy", "image": "i", "env": [{"name": "A", "value": "1"}]}],
        });
        let patch = json!({
            "a": {"b": 2, "none": null}, "gone": null, "args": ["z"],
            "containers": [{"name": "proxy", "env": [{"name": "B", "value": "2"}]}, {"name": "sidecar"}],
        });
        merge(&mut target, &patch);
        assert_eq!(
            target,
            json!({
                "a": {"b": 2}, "args": ["z"],
                "containers": [
                    {"name": "proxy", "image": "i", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
                    {"name": "sidecar"},
                ],
            })
        );
    }
}
