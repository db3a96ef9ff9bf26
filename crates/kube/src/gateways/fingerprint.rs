//! Fingerprints of objects, to detect changes by others without reading more than the metadata.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Returns a fingerprint that differs after each change to an object, except for its status and other subresources.
///
/// It includes `managedFields`, in which the API server records the manager and time of each change.
pub fn fingerprint(metadata: &ObjectMeta) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&metadata.uid, metadata.generation).hash(&mut hasher);
    (&metadata.labels, &metadata.annotations).hash(&mut hasher);
    for entry in metadata.managed_fields.iter().flatten() {
        if entry.subresource.as_deref().is_none_or(str::is_empty) {
            let time = entry.time.as_ref().map(|time| time.0.as_second());
            let fields = entry.fields_v1.as_ref().map(|fields| fields.0.to_string());
            (&entry.manager, &entry.operation, time, fields).hash(&mut hasher);
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(managers: Value, resource_version: &str) -> u64 {
        let metadata = json!({"uid": "u", "generation": 1, "resourceVersion": resource_version, "managedFields": managers});
        fingerprint(&serde_json::from_value(metadata).expect("it is metadata"))
    }

    #[test]
    fn changes_of_subresources_do_not_count() {
        let own = json!({"manager": "c", "operation": "Apply", "time": "2026-01-31T12:00:00Z", "fieldsV1": {"f:spec": {}}});
        let status = json!({"manager": "k", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}});
        let other =
            json!({"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}});
        let before = of(json!([own]), "1");
        assert_eq!(of(json!([own, status]), "2"), before);
        assert_ne!(of(json!([own, other]), "2"), before);
    }
}
