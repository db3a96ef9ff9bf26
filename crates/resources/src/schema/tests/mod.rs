//! Tests of the schemas with valid documents of every kind, and with documents that violate each limit and rule.

mod api_server;
mod limits;
mod rules;

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use super::{Schema, Shape, of};
use crate::meta::Kind;
use crate::read::{ManifestReader, Manifests};
use crate::{Finding, Resource, Severity, document};

/// Documents that together set every field of their kind.
const VALID: &[(Kind, &str)] = &[
    (
        Kind::GatewayClass,
        include_str!("../../../tests/valid/GatewayClass.yaml"),
    ),
    (
        Kind::Gateway,
        include_str!("../../../tests/valid/Gateway.yaml"),
    ),
    (
        Kind::ListenerSet,
        include_str!("../../../tests/valid/ListenerSet.yaml"),
    ),
    (
        Kind::HTTPRoute,
        include_str!("../../../tests/valid/HTTPRoute.yaml"),
    ),
    (
        Kind::GRPCRoute,
        include_str!("../../../tests/valid/GRPCRoute.yaml"),
    ),
    (
        Kind::TLSRoute,
        include_str!("../../../tests/valid/TLSRoute.yaml"),
    ),
    (
        Kind::TCPRoute,
        include_str!("../../../tests/valid/TCPRoute.yaml"),
    ),
    (
        Kind::UDPRoute,
        include_str!("../../../tests/valid/UDPRoute.yaml"),
    ),
    (
        Kind::ReferenceGrant,
        include_str!("../../../tests/valid/ReferenceGrant.yaml"),
    ),
    (
        Kind::BackendTLSPolicy,
        include_str!("../../../tests/valid/BackendTLSPolicy.yaml"),
    ),
    (
        Kind::XBackend,
        include_str!("../../../tests/valid/XBackend.yaml"),
    ),
    (
        Kind::XBackendTrafficPolicy,
        include_str!("../../../tests/valid/XBackendTrafficPolicy.yaml"),
    ),
    (
        Kind::XTelemetryPolicy,
        include_str!("../../../tests/valid/XTelemetryPolicy.yaml"),
    ),
    (Kind::XMesh, include_str!("../../../tests/valid/XMesh.yaml")),
    (
        Kind::MeshSettings,
        include_str!("../../../tests/valid/MeshSettings.yaml"),
    ),
    (
        Kind::GatewayParameters,
        include_str!("../../../tests/valid/GatewayParameters.yaml"),
    ),
    (Kind::Mesh, include_str!("../../../tests/valid/Mesh.yaml")),
    (
        Kind::Dataplane,
        include_str!("../../../tests/valid/Dataplane.yaml"),
    ),
    (
        Kind::MeshService,
        include_str!("../../../tests/valid/MeshService.yaml"),
    ),
    (
        Kind::MeshExternalService,
        include_str!("../../../tests/valid/MeshExternalService.yaml"),
    ),
    (
        Kind::MeshMultiZoneService,
        include_str!("../../../tests/valid/MeshMultiZoneService.yaml"),
    ),
    (
        Kind::MeshGateway,
        include_str!("../../../tests/valid/MeshGateway.yaml"),
    ),
    (
        Kind::MeshGatewayInstance,
        include_str!("../../../tests/valid/MeshGatewayInstance.yaml"),
    ),
    (
        Kind::MeshHTTPRoute,
        include_str!("../../../tests/valid/MeshHTTPRoute.yaml"),
    ),
    (
        Kind::MeshTCPRoute,
        include_str!("../../../tests/valid/MeshTCPRoute.yaml"),
    ),
    (
        Kind::MeshGatewayHTTPRoute,
        include_str!("../../../tests/valid/MeshGatewayHTTPRoute.yaml"),
    ),
];

/// Fields of Kuma's references that are in the schema only to be rejected with a message of their own.
const REJECTED: &[&str] = &[
    ".spec.targetRef.sectionName",
    "argetRef.mesh",
    "ackendRefs[].mesh",
    "ackendRef.mesh",
    ".spec.to[].targetRef.tags",
    "ackendRefs[].proxyTypes",
    "ackendRef.proxyTypes",
    "MeshGatewayHTTPRoute.spec.targetRef.namespace",
    "MeshGatewayHTTPRoute.spec.targetRef.labels",
    "MeshGatewayHTTPRoute.spec.targetRef.proxyTypes",
];

/// Documents of core kinds.
const CORE: &str = include_str!("../../../tests/valid/core.yaml");

/// Returns the valid documents of a kind, in one of its versions.
fn valid(kind: Kind, version: &str) -> Vec<Json> {
    let (_, text) = VALID
        .iter()
        .find(|(known, _)| *known == kind)
        .expect("every kind has documents");
    let mut objects = objects(text);
    for object in &mut objects {
        object["apiVersion"] = json!(format!("{}/{version}", kind.group()));
    }
    objects
}

fn objects(text: &str) -> Vec<Json> {
    let documents = document::parse(text.as_bytes()).into_iter();
    documents
        .map(|document| document.expect("valid YAML").to_json())
        .collect()
}

fn read(object: &Json) -> Manifests {
    let mut reader = ManifestReader::new();
    reader.read("case.json", object.to_string().as_bytes());
    reader.finish()
}

fn errors(input: &Manifests) -> Vec<&Finding> {
    input
        .findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .collect()
}

/// Iterates over the kinds in [`VALID`] and their supported versions.
fn kinds() -> impl Iterator<Item = (Kind, &'static str)> {
    VALID
        .iter()
        .flat_map(|(kind, _)| kind.versions().iter().map(|version| (*kind, *version)))
}

#[test]
fn valid_documents_have_no_findings_in_any_version() {
    for (kind, version) in kinds() {
        for object in valid(kind, version) {
            let input = read(&object);
            assert_eq!(input.findings, [], "{kind} {version}");
            assert_eq!(input.documents.len(), 1);
            assert_eq!(input.documents[0].resource.kind(), kind);
        }
    }
    for object in objects(CORE) {
        let input = read(&object);
        assert_eq!(input.findings, [], "{object}");
        assert_eq!(input.documents.len(), 1, "{object}");
    }
}

/// Collects the field paths of a schema, with `[]` for items and `{}` for entries.
fn paths(schema: &Schema, path: &str, found: &mut BTreeSet<String>) {
    found.insert(path.to_owned());
    match &schema.shape {
        Shape::Object { fields, .. } => {
            fields
                .iter()
                .for_each(|field| paths(&field.schema, &format!("{path}.{}", field.name), found));
        }
        Shape::Map { values, .. } => paths(values, &format!("{path}{{}}"), found),
        Shape::List { items, .. } => paths(items, &format!("{path}[]"), found),
        _ => {}
    }
}

fn set_paths(schema: &Schema, value: &Json, path: &str, found: &mut BTreeSet<String>) {
    found.insert(path.to_owned());
    match (&schema.shape, value) {
        (Shape::Object { fields, .. }, Json::Object(map)) => {
            for field in fields {
                if let Some(value) = map.get(field.name) {
                    set_paths(
                        &field.schema,
                        value,
                        &format!("{path}.{}", field.name),
                        found,
                    );
                }
            }
        }
        (Shape::Map { values, .. }, Json::Object(map)) => {
            map.values()
                .for_each(|value| set_paths(values, value, &format!("{path}{{}}"), found));
        }
        (Shape::List { items, .. }, Json::Array(list)) => {
            list.iter()
                .for_each(|value| set_paths(items, value, &format!("{path}[]"), found));
        }
        _ => {}
    }
}

#[test]
fn the_valid_documents_of_a_kind_set_all_of_its_fields() {
    for (kind, version) in kinds() {
        let schema = of(kind, version).expect("a supported version");
        let (mut all, mut set) = (BTreeSet::new(), BTreeSet::new());
        paths(schema, "", &mut all);
        valid(kind, version)
            .iter()
            .for_each(|object| set_paths(schema, object, "", &mut set));
        let missing: Vec<_> = all
            .difference(&set)
            .filter(|path| !path.starts_with(".metadata") && *path != ".status")
            .filter(|path| {
                let path = format!("{kind}{path}");
                !REJECTED.iter().any(|rejected| path.contains(rejected))
            })
            .collect();
        assert!(missing.is_empty(), "{kind} {version}: {missing:?}");
    }
}

/// Builds a document with every field of a schema set, without regard to its rules.
fn maximal(schema: &Schema) -> Json {
    let samples = [
        "a",
        "A",
        "example.com/a",
        "/",
        "10s",
        "https://example.com",
        "2026-01-31T12:00:00Z",
        "YQ==",
        "System",
        "10.0.0.1",
        "10.0.0.0/8",
        "MeshService",
        "HostnameGenerator",
        "tcp",
        "TLSAuto",
        "Secured",
    ];
    match &schema.shape {
        Shape::Object { fields, .. } => Json::Object(
            fields
                .iter()
                .map(|field| (field.name.to_owned(), maximal(&field.schema)))
                .collect(),
        ),
        Shape::Map { values, .. } => json!({"a": maximal(values)}),
        Shape::List { items, .. } => json!([maximal(items)]),
        Shape::String {
            one_of: [],
            pattern: None,
            ..
        } => json!("a"),
        Shape::String {
            one_of: [],
            pattern: Some(pattern),
            ..
        } => {
            json!(
                samples
                    .iter()
                    .find(|sample| pattern.matches(sample))
                    .expect(pattern.description)
            )
        }
        Shape::String {
            one_of: [.., last], ..
        } => json!(last),
        Shape::Integer {
            one_of: [last, ..], ..
        } => json!(last),
        Shape::Integer { max, .. } => json!(max),
        Shape::Bool => json!(true),
        Shape::IntOrString => json!("1"),
        Shape::Any => Json::Null,
    }
}

#[test]
fn documents_that_match_a_schema_can_be_deserialized() {
    for kind in Kind::ALL {
        for version in kind.versions() {
            let object = maximal(of(kind, version).expect("a supported version"));
            let resource = Resource::from_json(kind, &object);
            assert!(resource.is_ok(), "{kind} {version}: {resource:?}");
        }
    }
}

#[test]
fn a_document_without_optional_fields_gets_the_defaults() {
    let route = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "a"},
        "spec": {
            "parentRefs": [{"name": "gateway"}],
            "rules": [
                {"backendRefs": [{"name": "cart", "port": 80}], "retry": {}},
                {"matches": [{"headers": [{"name": "x", "value": "y"}]}], "filters": null},
            ],
        },
    });
    let input = read(&route);
    assert_eq!(input.findings, []);
    let any = json!({"type": "PathPrefix", "value": "/"});
    assert_eq!(
        input.documents[0].object()["spec"],
        json!({
            "parentRefs": [{"name": "gateway", "group": "gateway.networking.k8s.io", "kind": "Gateway"}],
            "rules": [
                {
                    "backendRefs": [{"name": "cart", "port": 80, "group": "", "kind": "Service", "weight": 1}],
                    "retry": {"attempts": 1},
                    "matches": [{"path": any}],
                },
                {"matches": [{"headers": [{"name": "x", "value": "y", "type": "Exact"}], "path": any}]},
            ],
        })
    );
    assert_eq!(
        input.documents[0].object()["metadata"],
        json!({"name": "a", "namespace": "default"})
    );
}

#[test]
fn defaults_are_applied_within_default_values() {
    let spec = |rules: Json| {
        let object = json!({
            "apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XBackendTrafficPolicy",
            "metadata": {"name": "a"},
            "spec": {"targetRefs": [{"group": "", "kind": "Service", "name": "a"}], "retryConstraint": rules},
        });
        read(&object).documents[0].object()["spec"]["retryConstraint"].clone()
    };
    let budget = json!({"percent": 20, "interval": "10s"});
    assert_eq!(
        spec(json!({})),
        json!({"budget": budget, "minRetryRate": {"count": 10, "interval": "1s"}})
    );
    // The default of a nested field applies only where its parent is present, and the parent's default only where it is not.
    assert_eq!(
        spec(json!({"budget": {"percent": null}, "minRetryRate": {"count": 5}})),
        json!({"budget": {"interval": "10s", "percent": 20}, "minRetryRate": {"count": 5}})
    );
}
