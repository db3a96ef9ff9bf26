//! Files to resources, as a user sees it.

use pointsman_resources::read::{ManifestReader, Manifests};
use pointsman_resources::{Kind, Severity};

fn read(files: &[(&str, &str)]) -> Manifests {
    let mut reader = ManifestReader::new();
    files
        .iter()
        .for_each(|(name, text)| reader.read(name, text.as_bytes()));
    reader.finish()
}

/// Every finding in one line.
fn lines(input: &Manifests) -> Vec<String> {
    input.findings.iter().map(ToString::to_string).collect()
}

const CLASS: &str = "apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: class}
spec: {controllerName: example.com/controller}
";

const ROUTE: &str = "apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: route
spec:
  rules:
  - matches:
    - path: {type: Prefix, value: /}
    backendRefs:
    - name: cart
      prot: 80
";

#[test]
fn all_mistakes_of_all_documents_are_reported_at_once() {
    let broken = format!("{ROUTE}---\na: [\n---\n{CLASS}---\nkind: Gateway\n---\n- 1\n");
    let input = read(&[("a.yaml", &broken), ("b.yaml", "text")]);
    assert_eq!(
        lines(&input),
        [
            "a.yaml:8:20: error: spec.rules[0].matches[0].path.type: `Prefix` is none of Exact, PathPrefix, RegularExpression",
            "a.yaml:10:7: error: spec.rules[0].backendRefs[0].port: a reference to a Service needs `port`",
            "a.yaml:11:7: warning: spec.rules[0].backendRefs[0].prot: this field is unknown; did you mean `port`?",
            "a.yaml:14:1: error: while parsing a node, did not find expected node content",
            "a.yaml:20:1: error: apiVersion: this required field is missing",
            "a.yaml:22:1: error: this is a list, not an object",
            "b.yaml:1:1: error: this is a string, not an object",
        ]
    );
    assert_eq!(input.documents.len(), 1);
    let document = &input.documents[0];
    assert_eq!(
        (document.resource.kind(), &*document.file, document.line),
        (Kind::GatewayClass, "a.yaml", 15)
    );
}

#[test]
fn unknown_fields_are_warnings_and_stay_in_the_object() {
    let input = read(&[(
        "a.yaml",
        &CLASS.replace("spec: {", "spec: {Description: x, wholly: z, "),
    )]);
    assert_eq!(
        lines(&input),
        [
            "a.yaml:4:8: warning: spec.Description: this field is unknown; did you mean `description`?",
            "a.yaml:4:24: warning: spec.wholly: this field is unknown",
        ]
    );
    assert_eq!(input.documents[0].object()["spec"]["wholly"], "z");
}

#[test]
fn a_version_that_is_not_read_is_an_error_that_names_those_that_are() {
    let input = read(&[("a.yaml", &ROUTE.replace("k8s.io/v1", "k8s.io/v1alpha2"))]);
    assert_eq!(
        lines(&input),
        [
            "a.yaml:1:13: error: apiVersion: HTTPRoute is read in gateway.networking.k8s.io/v1, \
          gateway.networking.k8s.io/v1beta1, not in `gateway.networking.k8s.io/v1alpha2`"
        ]
    );
}

#[test]
fn kinds_that_are_not_ours_are_passed_over_and_counted() {
    let text = "{apiVersion: apps/v1, kind: Deployment}\n---\n{apiVersion: apps/v1, kind: Deployment}\n---\n\
                {apiVersion: gateway.networking.k8s.io/v1, kind: HttpRoute}\n---\n{apiVersion: v2, kind: Gateway}\n";
    let input = read(&[("a.yaml", text)]);
    let passed: Vec<_> = input
        .ignored
        .iter()
        .map(|(kind, count)| (kind.as_str(), *count))
        .collect();
    assert_eq!(
        passed,
        [
            ("apps/v1/Deployment", 2),
            ("gateway.networking.k8s.io/v1/HttpRoute", 1),
            ("v2/Gateway", 1)
        ]
    );
    assert_eq!(
        lines(&input),
        [
            "a.yaml:5:50: warning: kind: `HttpRoute` is not known and passed over; did you mean `HTTPRoute`?",
            "a.yaml:7:14: warning: apiVersion: Gateway is not known in `v2` and passed over; did you mean `gateway.networking.k8s.io/v1`?"
        ]
    );
}

// Kuma's own form has `type` and `name` where Kubernetes has `apiVersion` and `kind`.
#[test]
fn kinds_of_kuma_that_are_not_ours_are_passed_over_in_both_forms() {
    let text = "{apiVersion: kuma.io/v1alpha1, kind: MeshTimeout}\n---\n{type: MeshTimeout, name: a, mesh: default}\n---\n\
                {type: MeshHttpRoute, name: a}\n";
    let input = read(&[("a.yaml", text)]);
    let passed: Vec<&str> = input.ignored.keys().map(String::as_str).collect();
    assert_eq!(
        passed,
        [
            "MeshHttpRoute",
            "MeshTimeout",
            "kuma.io/v1alpha1/MeshTimeout"
        ]
    );
    assert_eq!(
        lines(&input),
        [
            "a.yaml:5:8: warning: type: `MeshHttpRoute` is not known and passed over; did you mean `MeshHTTPRoute`?"
        ]
    );
}

#[test]
fn a_kind_of_ours_in_another_group_of_kubernetes_is_passed_over_with_a_warning() {
    let text = "{apiVersion: networking.k8s.io/v1, kind: HTTPRoute}\n---\n{apiVersion: networking.istio.io/v1, kind: Gateway}\n";
    assert_eq!(
        lines(&read(&[("a.yaml", text)])),
        [
            "a.yaml:1:14: warning: apiVersion: HTTPRoute is not known in `networking.k8s.io/v1` and passed over; \
          did you mean `gateway.networking.k8s.io/v1`?"
        ]
    );
}

#[test]
fn lists_are_unpacked() {
    let class = "{metadata: {name: b}, spec: {controllerName: example.com/c}}";
    let text = format!(
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata: {{name: shop}}\n- {{apiVersion: v1}}\n\
         - apiVersion: v1\n  kind: List\n  items: [{{apiVersion: v1, kind: Namespace, metadata: {{name: UPPER}}}}]\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClassList\nmetadata: {{}}\nitems: [{class}]\n---\n\
         {{apiVersion: v1, kind: PodList, items: null}}\n---\n{{apiVersion: v1, kind: PodList, items: 5}}\n"
    );
    let input = read(&[("a.yaml", &text)]);
    let kinds: Vec<_> = input
        .documents
        .iter()
        .map(|document| document.resource.kind())
        .collect();
    assert_eq!(kinds, [Kind::Namespace, Kind::GatewayClass]);
    assert_eq!(input.documents[0].position("metadata.name"), (6, 20));
    let found = lines(&input);
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(
        found[0].starts_with("a.yaml:7:3: error: items[1].kind: this required"),
        "{found:#?}"
    );
    assert!(
        found[1].starts_with("a.yaml:10:62: error: items[2].items[0].metadata.name: `UPPER`"),
        "{found:#?}"
    );
    assert!(
        found[2].starts_with("a.yaml:19:40: error: items: this is an integer, not a list"),
        "{found:#?}"
    );
}

#[test]
fn the_second_object_of_a_name_is_an_error_that_names_the_first() {
    let other = CLASS.replace("example.com/controller", "example.com/other");
    let input = read(&[("a.yaml", &format!("---\n{CLASS}")), ("b.yaml", &other)]);
    assert_eq!(
        lines(&input),
        ["b.yaml:3:18: error: metadata.name: GatewayClass class stands at a.yaml:2:1 already"]
    );
    assert_eq!(
        input.documents[0].object()["spec"]["controllerName"],
        "example.com/controller"
    );
    // Another namespace is another object, and `default` is the one left out.
    let pod =
        |namespace| format!("{{apiVersion: v1, kind: Pod, metadata: {{name: a{namespace}}}}}");
    let input = read(&[
        ("a", &pod("")),
        ("b", &pod(", namespace: b")),
        ("c", &pod(", namespace: default")),
    ]);
    assert_eq!(
        lines(&input),
        ["c:1:46: error: metadata.name: Pod default/a stands at a:1:1 already"]
    );
}

#[test]
fn namespaces_are_settled() {
    let input = read(&[
        (
            "a",
            "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: ''}}",
        ),
        (
            "b",
            &CLASS.replace("name: class", "name: class, namespace: shop"),
        ),
    ]);
    assert_eq!(
        lines(&input),
        ["b:3:25: warning: metadata.namespace: a GatewayClass is in no namespace; this is ignored"]
    );
    let names: Vec<_> = input
        .documents
        .iter()
        .map(|document| document.resource.key().to_string())
        .collect();
    assert_eq!(names, ["Pod default/a", "GatewayClass class"]);
    assert!(
        input.documents[1].object()["metadata"]
            .get("namespace")
            .is_none()
    );
}

#[test]
fn metadata_is_checked() {
    let long = "a".repeat(254);
    // (kind, metadata, field, message)
    let cases = [
        (
            "Pod",
            "{}",
            "metadata.name",
            "this required field is missing",
        ),
        (
            "Pod",
            "{generateName: a-}",
            "metadata.name",
            "`generateName` is for the API server",
        ),
        ("Pod", "{name: ''}", "metadata.name", "this is empty"),
        (
            "Pod",
            "{name: A}",
            "metadata.name",
            "`A` is not a lowercase DNS name",
        ),
        (
            "Pod",
            &format!("{{name: {long}}}"),
            "metadata.name",
            "at most 253",
        ),
        (
            "Pod",
            "{name: 5}",
            "metadata.name",
            "this is an integer, not a string; quotes make it one",
        ),
        (
            "Namespace",
            "{name: a.b}",
            "metadata.name",
            "is not a DNS label",
        ),
        (
            "Namespace",
            &format!("{{name: {}}}", &long[..64]),
            "metadata.name",
            "at most 63",
        ),
        (
            "Pod",
            "{name: a, namespace: a.b}",
            "metadata.namespace",
            "is not a DNS label",
        ),
        (
            "Pod",
            "{name: a, labels: {a b: c}}",
            "metadata.labels[a b]",
            "the key `a b` is not",
        ),
        (
            "Pod",
            "{name: a, labels: {a: b c}}",
            "metadata.labels[a]",
            "is not a label's value",
        ),
        (
            "Pod",
            "{name: a, labels: {a: yes}}",
            "metadata.labels[a]",
            "this is a boolean, not a string",
        ),
        (
            "Pod",
            "{name: a, annotations: {'': c}}",
            "metadata.annotations[]",
            "is not a key",
        ),
        (
            "Pod",
            "{name: a, annotations: []}",
            "metadata.annotations",
            "this is a list, not an object",
        ),
        (
            "Pod",
            "{name: a, creationTimestamp: yesterday}",
            "metadata.creationTimestamp",
            "is not a time",
        ),
        (
            "Pod",
            "{name: a, generation: one}",
            "metadata.generation",
            "this is a string, not an integer",
        ),
        ("Pod", "[]", "metadata", "this is a list, not an object"),
        ("Pod", "~", "metadata", "this required field is missing"),
    ];
    for (kind, metadata, field, message) in cases {
        let input = read(&[(
            "a",
            &format!("{{apiVersion: v1, kind: {kind}, metadata: {metadata}}}"),
        )]);
        let found = lines(&input);
        assert_eq!(found.len(), 1, "{metadata}: {found:#?}");
        assert_eq!(input.findings[0].field, field, "{metadata}");
        assert!(
            input.findings[0].message.contains(message),
            "{metadata}: {found:#?}"
        );
    }
    let fine = "{name: a.b, uid: x, managedFields: [5], ownerReferences: 7, creationTimestamp: null, labels: null, \
                annotations: {Example.com/X: ''}}";
    let input = read(&[(
        "a",
        &format!("{{apiVersion: v1, kind: Pod, metadata: {fine}}}"),
    )]);
    assert_eq!(lines(&input), Vec::<String>::new());
}

#[test]
fn core_kinds_are_checked_where_they_are_used() {
    let service = |spec: &str| {
        format!("{{apiVersion: v1, kind: Service, metadata: {{name: a}}, spec: {spec}}}")
    };
    let slice = |rest: &str| {
        format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: a}}, {rest}}}"
        )
    };
    let secret =
        |rest: &str| format!("{{apiVersion: v1, kind: Secret, metadata: {{name: a}}, {rest}}}");
    let cases = [
        ("{apiVersion: v1, kind: Service, metadata: {name: 1a}, spec: {clusterIP: None}}".to_owned(), "metadata.name", "beginning with a letter"),
        (service("{}"), "spec.ports", "needs at least one port"),
        (service("{ports: []}"), "spec.ports", "needs at least one port"),
        (service("{ports: [{port: 0}]}"), "spec.ports[0].port", "0 is not between 1 and 65535"),
        (service("{ports: [{port: 1, protocol: HTTP}]}"), "spec.ports[0].protocol", "none of TCP, UDP, SCTP"),
        (service("{ports: [{port: 1, name: a}, {port: 2}]}"), "spec.ports[1].name", "each needs a name"),
        (service("{ports: [{port: 1, name: a}, {port: 2, name: a}]}"), "spec.ports[1].name", "has the name `a` too"),
        (service("{ports: [{port: 1, name: a}, {port: 1, name: b}]}"), "spec.ports[1]", "number 1 and protocol TCP too"),
        (service("{ports: [{port: 1, name: A}]}"), "spec.ports[0].name", "is not a DNS label"),
        (service("{ports: [{port: 1, targetPort: 70000}]}"), "spec.ports[0].targetPort", "70000 is not between"),
        (service("{ports: [{port: 1, targetPort: '80'}]}"), "spec.ports[0].targetPort", "with a letter among them"),
        (service("{ports: [{port: 1, targetPort: true}]}"), "spec.ports[0].targetPort", "not an integer or a string"),
        (service("{type: Cluster, ports: [{port: 1}]}"), "spec.type", "none of ClusterIP, NodePort"),
        (service("{clusterIP: a, ports: [{port: 1}]}"), "spec.clusterIP", "`a` is not an IP address"),
        (service("{type: ExternalName}"), "spec.externalName", "needs `externalName`"),
        (service("{type: ExternalName, externalName: A_B}"), "spec.externalName", "is not a lowercase DNS name"),
        (service("{clusterIP: None, selector: {a: 5}}"), "spec.selector[a]", "not a string"),
        (slice("endpoints: []"), "addressType", "this required field is missing"),
        (slice("addressType: IPv4, endpoints: [{addresses: ['::1']}]"), "endpoints[0].addresses[0]", "is not of addressType IPv4"),
        (slice("addressType: IPv6, endpoints: [{addresses: [1.2.3.4]}]"), "endpoints[0].addresses[0]", "is not of addressType IPv6"),
        (slice("addressType: FQDN, endpoints: [{addresses: [A]}]"), "endpoints[0].addresses[0]", "is not of addressType FQDN"),
        (slice("addressType: IPv4, endpoints: [{addresses: []}]"), "endpoints[0].addresses", "this is empty"),
        (slice("addressType: IPv4, ports: [{port: 65536}]"), "ports[0].port", "65536 is not between"),
        (slice("addressType: IPv4, ports: [{name: a}, {name: a}]"), "ports[1].name", "has the name `a` too"),
        (secret("data: {a: 'not base64'}"), "data[a]", "is not base64"),
        (secret("data: {a b: ''}"), "data[a b]", "the key is not"),
        (secret("type: kubernetes.io/tls, data: {tls.crt: ''}"), "data[tls.key]", "needs `tls.key`"),
        ("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: 5}}".to_owned(), "data[a]", "not a string"),
        ("{apiVersion: certificates.k8s.io/v1beta1, kind: ClusterTrustBundle, metadata: {name: a}, spec: {}}".to_owned(), "spec.trustBundle", "missing"),
        ("{apiVersion: multicluster.x-k8s.io/v1alpha1, kind: ServiceImport, metadata: {name: a}, spec: {type: X}}".to_owned(), "spec.type", "none of ClusterSetIP, Headless"),
    ];
    for (text, field, message) in cases {
        let input = read(&[("a", &text)]);
        let found = lines(&input);
        assert_eq!(found.len(), 1, "{text}: {found:#?}");
        assert_eq!(input.findings[0].field, field, "{text}");
        assert!(
            input.findings[0].message.contains(message),
            "{text}: {found:#?}"
        );
    }
    let loopback =
        slice("addressType: IPv4, endpoints: [{addresses: [127.0.0.1], zone: x}], other: 1");
    assert_eq!(lines(&read(&[("a", &loopback)])), Vec::<String>::new());
}

#[test]
fn a_document_knows_the_places_of_its_fields() {
    let text = ROUTE
        .replace("Prefix", "PathPrefix")
        .replace("prot", "port")
        .replace("name: route", "name: route\n  labels: {example.com/a: b}");
    let input = read(&[("a.yaml", &format!("# comment\n---\n{text}"))]);
    assert_eq!(lines(&input), Vec::<String>::new());
    let document = &input.documents[0];
    for (field, place) in [
        ("", (3, 1)),
        ("kind", (4, 7)),
        ("metadata.labels[example.com/a]", (7, 27)),
        ("spec.rules[0]", (10, 5)),
        ("spec.rules[0].backendRefs[0].port", (14, 13)),
        // A default stands at its parent, and what is not there falls back to the nearest parent that is.
        ("spec.rules[0].backendRefs[0].weight", (13, 7)),
        ("spec.rules[0].backendRefs[1].name", (13, 7)),
        ("spec.rules[7].backendRefs[0]", (10, 5)),
        ("status.parents", (3, 1)),
    ] {
        assert_eq!(document.position(field), place, "{field}");
    }
}

#[test]
fn places_count_over_all_texts_and_stand_for_age() {
    let pod = |name| format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}}}");
    let input = read(&[
        ("a", &format!("{}\n---\n{}", pod("a"), pod("b"))),
        ("b", &pod("c")),
    ]);
    let places: Vec<_> = input
        .documents
        .iter()
        .map(|document| document.resource.meta().input_order)
        .collect();
    assert!(places.is_sorted_by(|a, b| a < b), "{places:?}");
}

#[test]
fn severities_are_ordered_and_shown() {
    assert!(Severity::Error < Severity::Warning);
    assert_eq!(
        format!("{} {}", Severity::Error, Severity::Warning),
        "error warning"
    );
}
