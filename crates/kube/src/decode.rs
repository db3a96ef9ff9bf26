//! Conversion of JSON text to documents. Unused parts are skipped while parsing.

use std::fmt;
use std::sync::Arc;

use pointsman_resources::Kind;
use pointsman_resources::read::Document;
use pointsman_resources::served::{self, InvalidObject};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

/// Used as the file name in findings.
pub const SOURCE: &str = "kubernetes";

/// Annotation in which `kubectl apply` stores a copy of the object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The only key of a ConfigMap that is used: certificates of authorities.
const CA_KEY: &str = "ca.crt";

/// Reads an object.
pub fn decode(kind: Kind, version: &str, json: &str) -> Result<Document, InvalidObject> {
    let mut json = serde_json::Deserializer::from_str(json);
    let object = ObjectField::Object.deserialize(&mut json);
    let mut object = object.map_err(|error| InvalidObject::Type(error.to_string()))?;
    if let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") {
        annotations.remove(LAST_APPLIED);
    }
    if let (Kind::ConfigMap, Some(Value::Object(data))) = (kind, object.get_mut("data")) {
        data.retain(|key, _| key == CA_KEY);
    }
    let source: Arc<str> = SOURCE.into();
    served::read(&source, kind, version, object)
}

/// Reads an object or its metadata without `managedFields`, which are often larger than the rest of the object.
#[derive(Clone, Copy)]
enum ObjectField {
    Object,
    Metadata,
}

impl<'de> DeserializeSeed<'de> for ObjectField {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ObjectField {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = match (self, &*key) {
                (ObjectField::Object, "metadata") => map.next_value_seed(ObjectField::Metadata)?,
                (ObjectField::Metadata, "managedFields") => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                _ => map.next_value()?,
            };
            if fields.insert(key, value).is_some() {
                return Err(A::Error::custom("duplicate field"));
            }
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use pointsman_resources::Resource;

    use super::*;

    #[test]
    fn copies_for_other_tools_are_not_kept() {
        let json = r#"{"metadata": {"name": "r", "namespace": "shop", "managedFields": [{"manager": "kubectl"}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "example.com/owner": "a"}}, "spec": {}}"#;
        let document = decode(Kind::HTTPRoute, "v1", json).expect("it is valid");
        let metadata = &document.object()["metadata"];
        assert_eq!(metadata.get("managedFields"), None);
        assert_eq!(
            metadata["annotations"],
            serde_json::json!({"example.com/owner": "a"})
        );
    }

    #[test]
    fn only_ca_certificates_of_a_config_map_are_kept() {
        let json =
            r#"{"metadata": {"name": "c", "namespace": "n"}, "data": {"ca.crt": "A", "big": "B"}}"#;
        let document = decode(Kind::ConfigMap, "v1", json).expect("it is valid");
        let Resource::ConfigMap(map) = &document.resource else {
            panic!("it is a ConfigMap");
        };
        assert_eq!(map.data.keys().collect::<Vec<_>>(), ["ca.crt"]);
    }

    #[test]
    fn text_other_than_an_object_is_rejected() {
        for json in ["5", "[]", r#"{"metadata": 5}"#] {
            let error = decode(Kind::Pod, "v1", json).expect_err("not a Pod");
            assert!(matches!(error, InvalidObject::Type(_)), "{json}: {error}");
        }
    }
}
