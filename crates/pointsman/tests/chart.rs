//! The Helm chart and `pointsman install` create the same installation. `scripts/chart` runs these tests with the binary of helm that HELM names.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const CHART: &str = "deploy/helm/pointsman";

/// Values of the chart, and the flags of `install` with the same meaning.
const CASES: &[(&str, &str)] = &[
    ("", ""),
    (
        "image.tag=v2,image.pullPolicy=Never,replicas=3,logLevel=debug,bindAddress=::",
        "--image registry.example/pointsman:v2 --image-pull-policy Never --replicas 3 --log-level debug --bind-address ::",
    ),
    (
        "controllerName=example.com/c,gatewayClass.name=edge.example,gatewayClass.parameters.namespace=infra,gatewayClass.parameters.name=p.1",
        "--controller-name example.com/c --gateway-class edge.example --parameters infra/p.1",
    ),
    (
        "watchNamespaces={a,b},crds.install=false,serviceMonitor.enabled=true",
        "--watch-namespace a --watch-namespace b --skip-crds --service-monitor",
    ),
    (
        "crds.kuma=true,serviceMonitor.enabled=true,dashboard.enabled=true",
        "--kuma-crds --service-monitor --grafana-dashboard",
    ),
];

fn run(program: &str, arguments: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(program)
        .args(arguments)
        .current_dir(root)
        .output();
    output.unwrap_or_else(|error| panic!("{program}: {error}"))
}

fn helm(values: &str) -> Output {
    let helm = std::env::var("HELM").expect("HELM names helm");
    let values = format!("image.repository=registry.example/pointsman,{values}");
    run(
        &helm,
        &[
            "template",
            "p",
            CHART,
            "--namespace",
            "own",
            "--set",
            &values,
        ],
    )
}

/// The objects of YAML documents, by kind, namespace and name.
fn objects(output: &Output) -> BTreeMap<String, Value> {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let text = String::from_utf8_lossy(&output.stdout);
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("it is YAML");
    let objects = documents.into_iter().filter(|object| !object.is_null());
    let named = objects.map(|object| {
        let metadata = &object["metadata"];
        let name = format!(
            "{} {} {}",
            object["kind"], metadata["namespace"], metadata["name"]
        );
        (name, object)
    });
    named.collect()
}

#[test]
#[ignore = "needs helm"]
fn the_chart_renders_the_objects_that_install_prints() {
    for (values, flags) in CASES {
        let chart = objects(&helm(&format!("namespace.create=true,{values}")));
        let mut line = vec!["install", "--namespace", "own"];
        if !flags.contains("--image ") {
            line.extend(["--image", "registry.example/pointsman:0.1.0"]);
        }
        line.extend(flags.split_whitespace());
        let printed = objects(&run(env!("CARGO_BIN_EXE_pointsman"), &line));
        let names = |objects: &BTreeMap<String, Value>| objects.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&chart), names(&printed), "{values}");
        for (name, object) in &printed {
            assert_eq!(&chart[name], object, "{values}: {name}");
        }
    }
}

#[test]
#[ignore = "needs helm"]
fn values_that_the_schema_excludes_are_rejected() {
    for (values, field) in [
        ("image.repository=", "image/repository"),
        ("replicas=0", "replicas"),
        ("controllerName=example.com", "controllerName"),
        ("watchNamespaces={A}", "watchNamespaces"),
        ("bindAddress=10.0.0.1", "bindAddress"),
        ("gatewayClass.parameters.name=p", "parameters"),
        (
            "watchNamespaces={a},gatewayClass.parameters.name=p,gatewayClass.parameters.namespace=infra",
            "namespace infra is not in watchNamespaces",
        ),
        ("image.repository=bad image", "image/repository"),
        ("logLevel=!!", "logLevel"),
        ("podLabels.app\\.kubernetes\\.io/name=x", "podLabels"),
        ("unknown=1", "unknown"),
    ] {
        let output = helm(values);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{values}");
        assert!(error.contains(field), "{values}: {error}");
    }
}

#[test]
#[ignore = "needs helm"]
fn kept_custom_resource_definitions_say_so() {
    let all = objects(&helm("crds.keep=true"));
    let crds = all
        .values()
        .filter(|object| object["kind"] == "CustomResourceDefinition");
    let policies = crds.map(|crd| &crd["metadata"]["annotations"]["helm.sh/resource-policy"]);
    let policies: Vec<&Value> = policies.collect();
    assert!(!policies.is_empty());
    assert!(
        policies.iter().all(|policy| *policy == "keep"),
        "{policies:?}"
    );
}
