//! Kuma's resources, as a user writes them, in both forms.

use pointsman_resources::kuma::{Filter, HeaderTest, MeshRoute, TargetKind};
use pointsman_resources::read::{Input, Reader};
use pointsman_resources::{ObjectKey, Resource};

fn read(text: &str) -> Input {
    let mut reader = Reader::new();
    reader.read("a.yaml", text.as_bytes());
    reader.finish()
}

/// Every finding in one line.
fn lines(input: &Input) -> Vec<String> {
    input.findings.iter().map(ToString::to_string).collect()
}

/// What was read without findings.
fn fine(text: &str) -> Vec<Resource> {
    let input = read(text);
    assert_eq!(lines(&input), [] as [&str; 0], "{text}");
    let documents = input.documents.into_iter();
    documents.map(|document| document.resource).collect()
}

fn route(text: &str) -> MeshRoute {
    match fine(text).remove(0) {
        Resource::MeshRoute(route) => (*route).clone(),
        other => panic!("{other:?}"),
    }
}

const SPEC: &str = "spec:
  targetRef: {kind: MeshSubset, tags: {version: v1}, proxyTypes: [Sidecar]}
  to:
  - targetRef: {kind: MeshService, name: backend, sectionName: http}
    rules:
    - matches:
      - path: {type: PathPrefix, value: /v1}
        method: GET
        headers: [{name: a, value: b}, {type: Absent, name: c}, {type: Prefix, name: d, value: e}]
        queryParams: [{type: Exact, name: q, value: '1'}]
      default:
        filters: []
        backendRefs: [{kind: MeshServiceSubset, name: backend, tags: {version: v2}, weight: 90}]
";

#[test]
fn both_forms_of_a_policy_are_the_same_but_for_where_they_stand() {
    let kubernetes = route(&format!(
        "apiVersion: kuma.io/v1alpha1\nkind: MeshHTTPRoute\n\
         metadata: {{name: a, namespace: shop, labels: {{kuma.io/mesh: demo}}}}\n{SPEC}"
    ));
    let universal = route(&format!(
        "type: MeshHTTPRoute\nname: a\nmesh: demo\nlabels: {{kuma.io/effect: shadow}}\n{SPEC}"
    ));
    assert_eq!(kubernetes.spec, universal.spec);
    assert_eq!((&*kubernetes.mesh, &*universal.mesh), ("demo", "demo"));
    assert_eq!(kubernetes.metadata.key().to_string(), "shop/a");
    assert_eq!(universal.metadata.key().to_string(), "mesh:demo/a");
    assert_eq!(
        universal.metadata.labels.get("kuma.io/effect"),
        Some("shadow")
    );
    let to = &universal.spec.to[0];
    assert_eq!(universal.spec.target_ref.kind, TargetKind::MeshSubset);
    assert_eq!(to.target_ref.section_name.as_deref(), Some("http"));
    let [rule] = &to.rules[..] else { panic!() };
    assert_eq!(rule.matches[0].headers[1].test, HeaderTest::Absent);
    assert_eq!(rule.default.filters, Some(Vec::<Filter>::new()));
    let backends = rule.default.backend_refs.as_deref().unwrap();
    assert_eq!((backends[0].weight, backends[0].port), (90, None));
}

#[test]
fn an_object_that_names_no_mesh_is_in_default() {
    let documents = fine(
        "{apiVersion: kuma.io/v1alpha1, kind: Dataplane, metadata: {name: a}, spec: {networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: a}}]}}}\n---\n\
         {type: Dataplane, name: a, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: a}}]}}\n---\n\
         {type: Dataplane, mesh: other, name: a, networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: a}}]}}\n---\n\
         {type: Mesh, name: other}\n---\n{apiVersion: kuma.io/v1alpha1, kind: Mesh, metadata: {name: third}}\n",
    );
    let keys: Vec<String> = documents
        .iter()
        .map(Resource::key)
        .map(|key: ObjectKey| key.to_string())
        .collect();
    assert_eq!(
        keys,
        [
            "Dataplane default/a",
            "Dataplane mesh:default/a",
            "Dataplane mesh:other/a",
            "Mesh other",
            "Mesh third"
        ]
    );
    let [
        Resource::Dataplane(kubernetes),
        Resource::Dataplane(universal),
        ..,
    ] = &documents[..]
    else {
        panic!()
    };
    assert_eq!(
        (&*kubernetes.mesh, &*universal.mesh),
        ("default", "default")
    );
    assert_eq!(kubernetes.spec, universal.spec);
}
