use std::path::PathBuf;

use clap::Parser;
use pointsman_kube::permissions::{PERMISSIONS, Permission, Scope};

use super::*;
use crate::cli::{Cli, Verb};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn arguments(line: &str) -> Install {
    let words = ["pointsman", "install", "--image=example.com/pointsman:1"];
    let cli = Cli::try_parse_from(words.into_iter().chain(line.split_whitespace()));
    match cli.unwrap_or_else(|error| panic!("{line}: {error}")).verb {
        Verb::Install(install) => install,
        _ => unreachable!("it is `install`"),
    }
}

fn objects(line: &str) -> Vec<Value> {
    let documents = documents(&arguments(line))
        .expect("it is valid")
        .join("---\n");
    serde_saphyr::from_multiple(&documents).expect("it is YAML")
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects
        .iter()
        .filter(|object| object["kind"] == kind)
        .collect()
}

#[test]
fn the_charts_rules_are_those_of_the_table() {
    let rules = json!({
        "cluster": rbac::rules(&[Scope::Cluster]),
        "unrestricted": rbac::rules(&[Scope::Unrestricted]),
        "watched": rbac::rules(&[Scope::Watched]),
        "own": rbac::rules(&[Scope::Own]),
    });
    let text = format!(
        "# From crates/kube/src/permissions.rs. UPDATE=1 cargo test -p pointsman install writes it.\n{}",
        to_yaml(&rules)
    );
    let path = root().join("deploy/helm/pointsman/files/permissions.yaml");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &text).expect("it can be written");
    }
    let chart = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(chart, text);
}

#[test]
fn the_documented_permissions_are_those_of_the_table() {
    let list = |items: &[&str]| {
        let quoted = items.iter().map(|item| format!("`{item}`"));
        quoted.collect::<Vec<_>>().join(", ")
    };
    let rows = PERMISSIONS.iter().map(|permission| {
        let Permission {
            resources,
            verbs,
            purpose,
            ..
        } = permission;
        let group = permission.api_groups.concat();
        let group = if group.is_empty() {
            "core".to_owned()
        } else {
            format!("`{group}`")
        };
        let scope = permission.scope.description();
        let names = match permission.resource_names {
            [] => String::new(),
            names => format!(" named {}", list(names)),
        };
        format!(
            "| {group} | {}{names} | {} | {scope} | {purpose} |",
            list(resources),
            verbs.join(", ")
        )
    });
    let path = root().join("docs/kubernetes.md");
    let page = std::fs::read_to_string(&path).expect("a page");
    let is_heading = |line: &&str| line.starts_with("| API group |");
    let before = page
        .lines()
        .position(|line| is_heading(&line))
        .expect("a table")
        + 2;
    let lines: Vec<&str> = page.lines().collect();
    let documented = lines[before..]
        .iter()
        .take_while(|line| line.starts_with('|'));
    let documented: Vec<&str> = documented.copied().collect();
    let rows: Vec<String> = rows.collect();
    if std::env::var_os("UPDATE").is_some() {
        let (head, tail) = (&lines[..before], &lines[before + documented.len()..]);
        let text = [head.join("\n"), rows.join("\n"), tail.join("\n")].join("\n");
        std::fs::write(path, text + "\n").expect("it can be written");
        return;
    }
    assert_eq!(documented, rows);
}

#[test]
fn all_custom_resource_definitions_of_the_folder_are_installed() {
    let files = std::fs::read_dir(root().join("deploy/crds")).expect("a folder");
    let files = files.map(|file| std::fs::read_to_string(file.expect("a file").path()));
    let mut files: Vec<String> = files.map(|file| file.expect("a text")).collect();
    let mut installed = CRDS.map(str::to_owned);
    files.sort();
    installed.sort();
    assert_eq!(installed[..], files[..]);
    let kinds = |line: &str| {
        let objects = objects(line);
        let crds = of_kind(&objects, "CustomResourceDefinition");
        crds.len()
    };
    assert_eq!(kinds(""), CRDS.len());
    assert_eq!(kinds("--kuma-crds"), CRDS.len() + 10);
    assert_eq!(kinds("--skip-crds"), 0);
}

#[test]
fn no_custom_resource_definition_of_others_is_installed() {
    for crd in of_kind(&objects(""), "CustomResourceDefinition") {
        assert_eq!(crd["spec"]["group"], "pointsman.io");
    }
}

#[test]
fn with_watched_namespaces_the_cluster_role_covers_only_what_no_role_can() {
    let objects = objects("--namespace own --watch-namespace a --watch-namespace b");
    let cluster = of_kind(&objects, "ClusterRole");
    assert_eq!(cluster.len(), 1);
    assert_eq!(cluster[0]["rules"], json!(rbac::rules(&[Scope::Cluster])));
    let roles = of_kind(&objects, "Role").into_iter();
    let namespaces: Vec<&Value> = roles.map(|role| &role["metadata"]["namespace"]).collect();
    assert_eq!(namespaces, ["own", "a", "b"]);
    for kind in ["RoleBinding", "ClusterRoleBinding"] {
        for binding in of_kind(&objects, kind) {
            assert_eq!(binding["roleRef"]["name"], binding["metadata"]["name"]);
            assert_eq!(binding["subjects"][0]["namespace"], "own");
        }
    }
    let deployment = of_kind(&objects, "Deployment")[0];
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let line = container["args"].as_array().cloned().unwrap_or_default();
    for argument in [
        "--gateway-class=pointsman",
        "--watch-namespace=a",
        "--watch-namespace=b",
    ] {
        assert!(line.contains(&argument.into()), "{argument}");
    }
}

#[test]
fn names_may_have_dots_where_the_api_server_accepts_them() {
    let objects = objects("--gateway-class edge.example --parameters infra/p.1");
    let class = of_kind(&objects, "GatewayClass")[0];
    assert_eq!(class["metadata"]["name"], "edge.example");
    assert_eq!(class["spec"]["parametersRef"]["name"], "p.1");
}

#[test]
fn parameters_in_a_namespace_that_is_not_watched_are_refused() {
    let result = |line: &str| documents(&arguments(line)).map(drop);
    let error = result("--watch-namespace a --parameters infra/p").expect_err("not watched");
    assert_eq!(
        error.to_string(),
        "--parameters infra/p: the namespace is not watched; add --watch-namespace infra"
    );
    assert!(result("--watch-namespace a --watch-namespace infra --parameters infra/p").is_ok());
    assert!(result("--parameters infra/p").is_ok());
}

// "install -n default | kubectl delete -f -"
#[test]
fn namespaces_that_every_cluster_has_are_not_printed() {
    let printed = |line: &str| of_kind(&objects(line), "Namespace").len();
    assert_eq!(printed(""), 1);
    assert_eq!(printed("-n default") + printed("-n kube-system"), 0);
}

#[test]
fn names_that_the_api_server_would_reject_are_rejected() {
    for invalid in [
        "--namespace A",
        "--watch-namespace -a",
        "--controller-name example.com",
        "--controller-name Example.com/c",
        "--parameters name",
        "--parameters a.b/name",
        "--image a\u{a0}b",
        "--log-level !!",
        "--gateway-class a..b",
        "--replicas 0",
        "--bind-address 10.0.0.1",
    ] {
        let words = ["pointsman", "install", "--image", "a"];
        let words = words.into_iter().chain(invalid.split(' '));
        assert!(Cli::try_parse_from(words).is_err(), "{invalid}");
    }
}
