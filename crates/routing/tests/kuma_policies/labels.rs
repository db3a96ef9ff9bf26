//! Dataplanes as of Kuma 2.14 and 3.0: without tags, without inbounds, selected by labels.

use pointsman_resources::Kind;
use pointsman_resources::read::ManifestReader;

use crate::{World, fate, policies};

/// Two versions of `backend` and a client, none of which has a tag.
const TAGLESS: &str = r#"
{type: Mesh, name: default}
---
{type: Dataplane, mesh: default, name: backend-v1, labels: {app: backend, version: v1}, networking: {address: 10.0.1.1, inbound: [{name: main, port: 3001, protocol: http}]}}
---
{type: Dataplane, mesh: default, name: backend-v2, labels: {app: backend, version: v2}, networking: {address: 10.0.1.2, inbound: [{name: main, port: 3002, protocol: http}, {name: admin, port: 3003, protocol: http}]}}
---
{type: Dataplane, mesh: default, name: batch-1, labels: {app: batch}, networking: {address: 10.0.0.1, outbound: [{port: 10001, backendRef: {kind: MeshService, name: backend, port: 80}}, {port: 10002, backendRef: {kind: MeshService, labels: {tier: old}, port: 80}}]}}
---
{type: Dataplane, mesh: default, name: other-1, labels: {app: other}, networking: {address: 10.0.0.2, outbound: [{port: 10001, backendRef: {kind: MeshService, name: backend, port: 80}}]}}
---
{type: MeshService, mesh: default, name: backend, spec: {selector: {dataplaneLabels: {matchLabels: {app: backend}}}, ports: [{port: 80, targetPort: main, appProtocol: http}]}}
---
{type: MeshService, mesh: default, name: backend-v1, labels: {tier: old}, spec: {selector: {dataplaneLabels: {matchExpressions: [{key: app, operator: In, values: [backend]}, {key: version, operator: NotIn, values: [v2]}]}}, ports: [{port: 80, targetPort: 3001, appProtocol: http}]}}
---
{type: MeshService, mesh: default, name: one, spec: {selector: {dataplaneLabels: {matchLabels: {kuma.io/display-name: backend-v2}}}, ports: [{port: 80, targetPort: main, appProtocol: http}]}}
"#;

const V1_FOR_BATCH: &str = "
---
{type: MeshHTTPRoute, mesh: default, name: batch, spec: {targetRef: {kind: Dataplane, labels: {app: batch}}, to: [{targetRef: {kind: MeshService, name: backend}, rules: [{matches: [{path: {type: PathPrefix, value: /v1}}], default: {backendRefs: [{kind: MeshService, name: backend-v1, port: 80}]}}, {matches: [{path: {type: PathPrefix, value: /one}}], default: {backendRefs: [{kind: MeshService, name: one}]}}, {matches: [{path: {type: PathPrefix, value: /}}], default: {}}]}]}}";

/// "inbound `protocol: http` field instead of tags, `labels:` on the Dataplane, outbound `backendRef {kind: MeshService, name, port}`, `MeshService`
/// resource, targets by labels".
#[test]
fn a_mesh_without_tags_is_served_by_labels() {
    let world = World::of(&format!("{TAGLESS}{V1_FOR_BATCH}"));
    let found = world.from("batch-1", "http://backend.mesh/v1");
    assert_eq!(fate(&found), "backend-v1 100");
    assert_eq!(found.backends[0].endpoints, ["10.0.1.1:3001"]);
    assert_eq!(policies(&found), ["batch"]);
    // By a computed label, and by the port's own name.
    let found = world.from("batch-1", "http://backend.mesh/one");
    assert_eq!(found.backends[0].endpoints, ["10.0.1.2:3002"]);
    let rest = world.from("batch-1", "http://127.0.0.1:10001/rest");
    assert_eq!(fate(&rest), "backend 100");
    assert_eq!(
        rest.backends[0].endpoints,
        ["10.0.1.1:3001", "10.0.1.2:3002"]
    );
    // An outbound that names its destination by labels.
    let old = world.from("batch-1", "http://127.0.0.1:10002/");
    assert_eq!(fate(&old), "backend-v1 100");
    // The policy applies only to Dataplanes with its labels.
    let other = world.from("other-1", "http://backend.mesh/v1");
    assert_eq!(
        (fate(&other).as_str(), policies(&other).len()),
        ("backend 100", 0)
    );
    let warnings = world.binder.warnings();
    assert!(warnings.is_empty(), "{warnings:?}");
    let said = world.conditions(Kind::MeshHTTPRoute, "batch");
    assert!(said.iter().all(|c| c.contains("=true/")), "{said:?}");
}

/// A delegated gateway needs no tags. A builtin one does, because MeshGateways select it by them.
#[test]
fn only_builtin_gateways_need_a_service_tag() {
    let read = |networking: &str| {
        let text = format!("{{type: Dataplane, name: a, networking: {networking}}}");
        let mut reader = ManifestReader::new();
        reader.read("a.yaml", text.as_bytes());
        let findings = reader.finish().findings;
        findings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for valid in [
        "{address: 10.0.0.1}",
        "{address: 10.0.0.1, inbound: []}",
        "{address: 10.0.0.1, inbound: [{port: 80}]}",
        "{address: 10.0.0.1, inbound: [{port: 80, protocol: HTTP2}]}",
        "{address: 10.0.0.1, inbound: [{port: 80, tags: {version: v1}}]}",
        "{address: 10.0.0.1, gateway: {type: DELEGATED}}",
    ] {
        assert_eq!(read(valid), [""; 0], "{valid}");
    }
    let builtin = read("{address: 10.0.0.1, gateway: {type: BUILTIN}}");
    assert!(
        builtin[0].contains("mandatory tag \"kuma.io/service\" is missing"),
        "{builtin:?}"
    );
}

/// A port that is not named must be the only one.
#[test]
fn a_reference_without_a_port_names_the_ports_there_are() {
    let two = TAGLESS.replace(
        "name: one, spec: {selector: {dataplaneLabels: {matchLabels: {kuma.io/display-name: backend-v2}}}, ports: [",
        "name: one, spec: {selector: {dataplaneLabels: {matchLabels: {kuma.io/display-name: backend-v2}}}, ports: [{port: 81, targetPort: admin, appProtocol: http}, ",
    );
    let world = World::of(&format!("{two}{V1_FOR_BATCH}"));
    let said = world.conditions(Kind::MeshHTTPRoute, "batch");
    let wanted = "ResolvedRefs=false/BackendNotFound: MeshService mesh:default/one has ports 81, 80; set `port` to one of them";
    assert_eq!(said[1], wanted);
}
