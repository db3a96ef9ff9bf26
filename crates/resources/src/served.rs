//! Objects as an API server serves them: complete, with defaults mostly filled in, and without a place in a text.
//!
//! Kubernetes' own kinds are valid, because the API server has validated them with the same rules. Custom resources are checked again: the
//! CustomResourceDefinitions of a cluster may be older or newer than the rules here.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::document::{Node, Position};
use crate::kuma::spelling;
use crate::meta::{CERTIFICATES_GROUP, Kind};
use crate::read::Document;
use crate::schema::{self, validate};
use crate::{Resource, Severity};

/// Reason why an object of an API server can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A field that is not valid by the rules here.
    #[error("{field}: {message}")]
    Field {
        /// Path of the field, such as `spec.rules[0]`.
        field: String,
        /// Reason, with what is allowed.
        message: String,
    },
    /// An object whose type has no room for it.
    #[error("it can't be read: {0}")]
    Type(String),
}

/// Reads an object. `source` stands where findings in files name their file.
///
/// Documents of Kubernetes' own kinds hold no text: nothing is written to them, and they are the bulk of a cluster.
pub fn read(
    source: &Arc<str>,
    kind: Kind,
    version: &str,
    mut object: Json,
) -> Result<Document, Invalid> {
    // An item of a list has neither.
    object["apiVersion"] = match kind.group() {
        "" => json!(version),
        group => json!(format!("{group}/{version}")),
    };
    object["kind"] = json!(kind.name());
    let is_custom = !is_built_in(kind);
    if is_custom {
        object = validated(kind, version, &object)?;
    }
    let resource = Resource::from_json(kind, &object);
    let resource = resource.map_err(|error| Invalid::Type(error.to_string()))?;
    let text = is_custom.then(|| object.to_string());
    Ok(Document::served(source.clone(), resource, text))
}

/// Reports whether Kubernetes itself defines a kind, rather than a CustomResourceDefinition.
pub fn is_built_in(kind: Kind) -> bool {
    ["", "discovery.k8s.io", CERTIFICATES_GROUP].contains(&kind.group())
}

/// Fills in defaults and checks an object.
fn validated(kind: Kind, version: &str, object: &Json) -> Result<Json, Invalid> {
    let mut node = Node::from_json(object, Position::default());
    let Some(schema) = schema::of(kind, version) else {
        let message = format!("{kind} is not read in this version");
        let field = "apiVersion".to_owned();
        return Err(Invalid::Field { field, message });
    };
    spelling::normalize(&mut node, kind);
    validate::apply_defaults(&mut node, schema);
    let mut found = validate::validate(&node, schema).into_iter();
    match found.find(|found| found.severity == Severity::Error) {
        Some(found) => Err(Invalid::Field {
            field: found.field,
            message: found.message,
        }),
        None => Ok(node.to_json()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(kind: Kind, version: &str, object: Json) -> Result<Document, Invalid> {
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
        assert!(matches!(error, Invalid::Type(_)), "{error}");
    }

    // In lists, items have neither `apiVersion` nor `kind`. A Secret with a `type` and no `apiVersion` would be a universal document of Kuma's.
    #[test]
    fn a_secret_from_a_list_is_a_kubernetes_object() {
        let secret = json!({"metadata": {"name": "tls", "namespace": "shop"}, "type": "kubernetes.io/tls", "data": {"tls.crt": "eA=="}});
        let document = served(Kind::Secret, "v1", secret).expect("it is valid");
        assert_eq!(&*document.resource.meta().namespace, "shop");
        assert_eq!(document.object(), Json::Null, "nothing is kept twice");
    }
}
