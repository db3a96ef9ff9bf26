//! Reads objects that an API server serves. They have no position in a file.
//!
//! Built-in kinds are not validated, because the API server has done so with the same rules. Custom resources are defaulted and validated,
//! because the cluster's CustomResourceDefinitions may be older or newer than the schemas of this crate.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::document::{Node, Position};
use crate::kuma::spelling;
use crate::meta::{CERTIFICATES_GROUP, Kind};
use crate::read::Document;
use crate::schema::{self, validate};
use crate::{Resource, Severity};

/// An object of an API server can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidObject {
    /// A field is invalid.
    #[error("{field}: {message}")]
    Field {
        /// Path of the field, such as `spec.rules[0]`.
        field: String,
        /// Description of the error.
        message: String,
    },
    /// The object can't be deserialized.
    #[error("the object can't be deserialized: {0}")]
    Type(String),
}

/// Reads an object. `source` takes the place of the file name.
///
/// Documents of built-in kinds don't store the JSON text, which is needed only for writing status, to save memory: most objects of a cluster
/// are of these kinds.
pub fn read(
    source: &Arc<str>,
    kind: Kind,
    version: &str,
    mut object: Json,
) -> Result<Document, InvalidObject> {
    // The items of a list have neither field.
    object["apiVersion"] = json!(kind.api_version_of(version));
    object["kind"] = json!(kind.name());
    let is_custom = !is_built_in(kind);
    if is_custom {
        object = validated(kind, version, &object)?;
    }
    let resource = Resource::from_json(kind, &object);
    let resource = resource.map_err(|error| InvalidObject::Type(error.to_string()))?;
    let text = is_custom.then(|| object.to_string());
    Ok(Document::served(source.clone(), resource, text))
}

/// Returns whether a kind is defined by Kubernetes itself instead of a CustomResourceDefinition.
pub fn is_built_in(kind: Kind) -> bool {
    ["", "discovery.k8s.io", CERTIFICATES_GROUP].contains(&kind.group())
}

/// Applies defaults to an object and validates it.
fn validated(kind: Kind, version: &str, object: &Json) -> Result<Json, InvalidObject> {
    let mut node = Node::from_json(object, Position::default());
    let Some(schema) = schema::of(kind, version) else {
        let message = schema::unsupported_version(kind, &kind.api_version_of(version));
        let field = "apiVersion".to_owned();
        return Err(InvalidObject::Field { field, message });
    };
    spelling::normalize(&mut node, kind);
    validate::apply_defaults(&mut node, schema);
    let mut findings = validate::validate(&node, schema).into_iter();
    match findings.find(|finding| finding.severity == Severity::Error) {
        Some(error) => Err(InvalidObject::Field {
            field: error.field,
            message: error.message,
        }),
        None => Ok(node.to_json()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(kind: Kind, version: &str, object: Json) -> Result<Document, InvalidObject> {
        read(&"cluster".into(), kind, version, object)
    }

    #[test]
    fn a_custom_resource_gets_defaults_and_keeps_its_status() {
        let route = json!({
            "metadata": {"name": "r", "namespace": "shop", "generation": 3, "creationTimestamp": "2026-01-31T12:00:00Z"},
            "spec": {"parentRefs": [{"name": "edge"}], "rules": [{}]},
            "status": {"parents": [{"controllerName": "example.com/c"}]},
        });
        let document = served(Kind::HTTPRoute, "v1", route).expect("it is valid");
        assert_eq!(document.resource.meta().generation, 3);
        assert_eq!(document.position("spec.rules"), (0, 0));
        let object = document.object();
        assert_eq!(object["spec"]["parentRefs"][0]["kind"], "Gateway");
        assert_eq!(
            object["status"]["parents"][0]["controllerName"],
            "example.com/c"
        );
    }

    #[test]
    fn an_invalid_custom_resource_is_rejected_with_its_field() {
        let route = json!({
            "metadata": {"name": "r", "namespace": "shop"},
            "spec": {"rules": [{"matches": [{"path": {"type": "Sideways", "value": "/"}}]}]},
        });
        let error = served(Kind::HTTPRoute, "v1", route).expect_err("there is no such type");
        let text = error.to_string();
        assert!(
            text.starts_with("spec.rules[0].matches[0].path.type: "),
            "{text}"
        );
    }

    #[test]
    fn an_object_of_the_wrong_type_is_rejected() {
        let service =
            json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"ports": "many"}});
        let error = served(Kind::Service, "v1", service).expect_err("ports is a list");
        assert!(matches!(error, InvalidObject::Type(_)), "{error}");
    }

    // The items of a list have neither `apiVersion` nor `kind`. A Secret with a `type` and no `apiVersion` would be a universal document of Kuma.
    #[test]
    fn a_secret_from_a_list_is_a_kubernetes_object() {
        let secret = json!({"metadata": {"name": "tls", "namespace": "shop"}, "type": "kubernetes.io/tls", "data": {"tls.crt": "eA=="}});
        let document = served(Kind::Secret, "v1", secret).expect("it is valid");
        assert_eq!(&*document.resource.meta().namespace, "shop");
        assert_eq!(document.object(), Json::Null, "no text is stored");
    }
}
