//! Results for every folder of `examples/`, and for every alternative that the GEPs considered and rejected.

mod common;

use std::path::{Path, PathBuf};

use common::{Bound, attached, condition, conditions};
use pointsman_binding::Change;
use pointsman_resources::read::ManifestReader;
use pointsman_resources::{Kind, Severity};

/// A folder or file of manifests, bound, with the findings of the reader.
struct Example {
    bound: Bound,
    findings: Vec<String>,
    passed_over: usize,
}

fn load(path: &Path) -> Example {
    let mut files: Vec<PathBuf> = match path.is_dir() {
        true => std::fs::read_dir(path)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").path())
            .collect(),
        false => vec![path.to_owned()],
    };
    files.sort();
    let mut reader = ManifestReader::new();
    for file in &files {
        let text = std::fs::read(file).expect("a file");
        assert!(
            text.starts_with(b"# "),
            "{}: a comment says what it shows",
            file.display()
        );
        reader.read(&file.to_string_lossy(), &text);
    }
    let input = reader.finish();
    assert!(
        input.findings.iter().all(|f| f.severity != Severity::Error),
        "{:?}",
        input.findings
    );
    let mut bound = Bound::default();
    bound.apply(input.documents.into_iter().map(|d| Change::Put(d.resource)));
    Example {
        bound,
        findings: input.findings.iter().map(ToString::to_string).collect(),
        passed_over: input.ignored.values().sum(),
    }
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn example(name: &str) -> Bound {
    let loaded = load(&examples().join(name));
    assert!(loaded.findings.is_empty(), "{name}: {:?}", loaded.findings);
    let warnings = loaded.bound.warnings();
    assert!(warnings.is_empty(), "{name}: {warnings:?}");
    loaded.bound
}

/// Returns the objects of an example with a condition that reports a problem.
fn problems(bound: &Bound) -> Vec<String> {
    let mut all = Vec::new();
    for (key, status) in &bound.statuses {
        for (_, condition) in status.conditions() {
            if condition.is_problem() {
                all.push(format!("{key} {}", condition.reason));
            }
        }
    }
    all
}

/// The expected attachments and problems of each folder.
const EXPECTED: &[(&str, &[&str], &[&str])] = &[
    (
        "broken",
        &["infra/edge http HTTPRoute shop/cart"],
        &[
            "HTTPRoute shop/admin NotAllowedByListeners",
            "HTTPRoute shop/admin BackendNotFound",
            "HTTPRoute shop/cart RefNotPermitted",
        ],
    ),
    (
        "gateway-cross-namespace",
        &["infra/lb foo HTTPRoute foo/foo"],
        &[],
    ),
    (
        "kuma-cross-mesh",
        &[
            "mesh:shop/catalog-gateway 10443/catalog.mesh MeshGateway 10443/catalog.mesh/",
            "mesh:partners/orders-1 -> MeshService mesh:shop/catalog-gateway with kuma.io/mesh=shop MeshService mesh:shop/catalog-gateway",
        ],
        &[],
    ),
    (
        "kuma-kubernetes",
        &[
            "edge-gateway 80/example.com MeshGateway 80/example.com/example.com",
            "kuma-demo/backend-1 -> Service kuma-demo/backend port 3001 Service kuma-demo/backend",
            "kuma-demo/backend-2 -> Service kuma-demo/backend port 3001 Service kuma-demo/backend",
            "kuma-demo/web-1 -> Service kuma-demo/backend port 3001 Service kuma-demo/backend",
        ],
        &[],
    ),
    (
        "kuma-labels",
        &[
            "mesh:default/batch-1 -> MeshService mesh:default/backend port 80 MeshService mesh:default/backend",
        ],
        &[],
    ),
    (
        "kuma-universal",
        &[
            "mesh:default/edge 10080/*.example.com MeshGateway 10080/*.example.com/*.example.com",
            "mesh:default/edge 10080/*.example.com MeshGateway 10080/*.example.com/test.example.com",
            "mesh:default/frontend-1 -> MeshService mesh:default/backend MeshService mesh:default/backend",
        ],
        &[],
    ),
    (
        "mesh-and-gateway",
        &[
            "store/lb http HTTPRoute store/foo-route",
            "store/foo:80 everyone HTTPRoute store/foo-route",
        ],
        &[],
    ),
    (
        "mesh-consumer",
        &[
            "store/foo:80 everyone HTTPRoute store/foo-route",
            "store/foo:80 billing HTTPRoute billing/foo-trial",
        ],
        &[],
    ),
    (
        "mesh-omitted-backends",
        &["store/foo:80 everyone HTTPRoute store/foo-route"],
        &[],
    ),
    (
        "mesh-operator",
        &["store/foo:80 billing HTTPRoute billing/foo-route"],
        &["HTTPRoute lab/foo-route NotAllowedByMesh"],
    ),
    (
        "mesh-pure-frontend",
        &["store/foo:80 everyone HTTPRoute store/foo-route"],
        &[],
    ),
    (
        "mesh-service-import",
        &["store/foo:80 everyone HTTPRoute store/foo-route"],
        &[],
    ),
    (
        "mesh-split",
        &["store/foo:80 everyone HTTPRoute store/foo-route"],
        &[],
    ),
    (
        "mesh-strict",
        &["store/foo:80 everyone HTTPRoute store/foo-route"],
        &[
            "HTTPRoute store/foo-second ParentRefConflict",
            "HTTPRoute store/foo-v2-route ParentRefConflict",
        ],
    ),
    (
        "shop",
        &[
            "shop/front http HTTPRoute shop/cart",
            "shop/front http HTTPRoute shop/web",
            "shop/front http GRPCRoute shop/catalog",
            "shop/cart:80 everyone HTTPRoute shop/cart-calls",
        ],
        &[],
    ),
    (
        "shop-next",
        &[
            "shop/front http HTTPRoute shop/cart",
            "shop/front http HTTPRoute shop/web",
            "shop/front http GRPCRoute shop/catalog",
            "shop/cart:80 everyone HTTPRoute shop/cart-calls",
        ],
        &[],
    ),
];

#[test]
fn every_example_has_the_expected_attachments_and_problems() {
    let mut folders: Vec<String> = std::fs::read_dir(examples())
        .expect("the examples")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_dir())
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect();
    folders.sort();
    let known: Vec<&str> = EXPECTED.iter().map(|(name, ..)| *name).collect();
    assert_eq!(folders, known, "every folder is expected to give something");
    for (name, attached_routes, refused) in EXPECTED {
        let bound = example(name);
        assert_eq!(bound.attached_routes(), *attached_routes, "{name}");
        assert_eq!(problems(&bound), *refused, "{name}");
    }
}

#[test]
fn the_examples_send_traffic_to_the_expected_backends() {
    for (name, route, goes) in [
        (
            "mesh-split",
            "HTTPRoute store/foo-route",
            vec!["store/foo:80 everyone #0: store/foo:80=90 store/foo-v2:80=10"],
        ),
        (
            "mesh-omitted-backends",
            "HTTPRoute store/foo-route",
            vec!["store/foo:80 everyone #0: store/foo:80=1"],
        ),
        (
            "mesh-consumer",
            "HTTPRoute billing/foo-trial",
            vec!["store/foo:80 billing #0: store/foo-v2:80=1"],
        ),
        (
            "mesh-service-import",
            "HTTPRoute store/foo-route",
            vec!["store/foo:80 everyone #0: store/foo:80=80 store/foo:80=20"],
        ),
        (
            "gateway-cross-namespace",
            "HTTPRoute foo/foo",
            vec!["infra/lb foo #0: foo/bar:80=1"],
        ),
        (
            "shop",
            "HTTPRoute shop/cart",
            vec![
                "shop/front http #0: shop/cart:80=90 shop/cart-v2:80=10",
                "shop/front http #1: shop/cart-v2:80=1",
            ],
        ),
        (
            "shop",
            "GRPCRoute shop/catalog",
            vec!["shop/front http #0: shop/catalog:9090=1"],
        ),
    ] {
        assert_eq!(example(name).destinations(route), goes, "{name}");
    }
    assert_eq!(
        example("shop").addresses("shop/catalog", 9090),
        ["127.0.0.1:9004"]
    );
}

fn alternative(name: &str) -> Example {
    let file = format!("tests/data/alternatives/{name}.yaml");
    load(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file))
}

fn warns(example: &Example, words: &str) -> bool {
    example
        .bound
        .warnings()
        .iter()
        .any(|w| w.message.contains(words))
}

const FOO: &str = "HTTPRoute store/foo-route";
const NOT_SERVED: &str = "not a supported kind of parent";

#[test]
fn parents_of_unsupported_kinds_get_a_warning_and_no_status_entry() {
    for (name, passed_over) in [("service-entry", 1), ("service-binding", 1), ("mesh", 0)] {
        let example = alternative(name);
        assert!(conditions(&example.bound, FOO).is_empty(), "{name}");
        assert!(warns(&example, NOT_SERVED), "{name}");
        assert!(example.bound.attachments.is_empty(), "{name}");
        assert_eq!(
            example.passed_over, passed_over,
            "{name}: kinds that are not ours are passed over and counted"
        );
    }
}

#[test]
fn an_unsupported_parent_does_not_affect_a_service_parent() {
    let example = alternative("mesh-beside-service");
    assert_eq!(
        conditions(&example.bound, FOO),
        [
            "parent Service foo: Accepted=True/Accepted",
            "parent Service foo: ResolvedRefs=True/ResolvedRefs"
        ]
    );
    assert!(warns(&example, NOT_SERVED));
}

#[test]
fn unknown_fields_are_reported_and_ignored() {
    let example = alternative("nested-in-parent");
    for field in [
        "spec.parentRefs[0].services",
        "spec.parentRefs[1].hostnames",
    ] {
        assert!(
            example.findings.iter().any(|f| f.contains(field)),
            "{field}: {:?}",
            example.findings
        );
    }
    assert!(example.bound.attachments.is_empty());
    assert!(warns(&example, NOT_SERVED) && warns(&example, "does not exist"));

    let example = alternative("service-binding-field");
    for field in ["spec.serviceBinding", "spec.rules[0].matches[0].service"] {
        assert!(
            example.findings.iter().any(|f| f.contains(field)),
            "{field}: {:?}",
            example.findings
        );
    }
    assert!(
        conditions(&example.bound, FOO).is_empty()
            && conditions(&example.bound, "HTTPRoute store/foo-matches").is_empty()
    );
}

#[test]
fn a_gateway_of_another_class_is_not_managed() {
    let example = alternative("gateway-class-mesh");
    assert!(
        conditions(&example.bound, "Gateway store/foo-gateway").is_empty()
            && conditions(&example.bound, FOO).is_empty()
    );
    assert!(warns(&example, "does not exist, so Gateway"));
}

#[test]
fn a_projection_is_neither_parent_nor_backend() {
    let example = alternative("service-projection");
    assert_eq!(
        conditions(&example.bound, FOO),
        [
            "parent Service foo: Accepted=True/Accepted",
            "parent Service foo: ResolvedRefs=False/InvalidKind"
        ]
    );
    assert_eq!(
        example.bound.destinations(FOO),
        ["store/foo:80 everyone #0: 500 InvalidKind=90 500 InvalidKind=10"]
    );
    assert!(warns(&example, NOT_SERVED));
}

#[test]
fn a_gateway_does_not_select_its_routes() {
    let example = alternative("gateway-selects-routes");
    assert!(
        example
            .findings
            .iter()
            .any(|f| f.contains("allowedRoutes.selector")),
        "{:?}",
        example.findings
    );
    assert_eq!(attached(&example.bound, "Gateway infra/xlb"), ["foo=0"]);
    assert!(conditions(&example.bound, FOO).is_empty());
}

#[test]
fn a_reference_grant_does_not_permit_attachment_to_a_gateway() {
    let example = alternative("grant-to-gateway");
    assert!(
        example.findings.iter().any(|f| f.contains("sectionName")),
        "{:?}",
        example.findings
    );
    assert_eq!(
        condition(&example.bound, FOO, "Accepted"),
        "False/NotAllowedByListeners"
    );
    assert_eq!(attached(&example.bound, "Gateway infra/lb"), ["foo=0"]);
}

#[test]
fn every_alternative_has_a_test() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/alternatives");
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|e| {
            e.expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    assert_eq!(names.len(), 10, "{names:?}");
    let routes = names
        .iter()
        .map(|name| alternative(name.trim_end_matches(".yaml")));
    for example in routes {
        assert!(
            example
                .bound
                .statuses
                .keys()
                .any(|key| key.kind == Kind::HTTPRoute)
        );
    }
}
