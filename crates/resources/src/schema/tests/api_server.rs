//! The same documents to a real API server: it must accept and refuse what we do.
//!
//! Runs only where `KUBECONFIG_COMPARE` names the kubeconfig of a cluster with the CRDs of the experimental channel
//! (Gateway API v1.7.0). `KUBECTL` is the command, `kubectl` if it is not set. Nothing is written: all is a dry run.

use std::collections::HashSet;
use std::process::Command;

use serde_json::{Value as Json, json};

use super::{errors, kinds, limits, read, rules, valid};
use crate::meta::Kind;

/// All documents that the other tests try, but those that change what an object is called.
fn documents() -> Vec<(String, Json)> {
    let mut all = Vec::new();
    for (kind, version) in kinds().filter(|(kind, _)| *kind != Kind::MeshSettings) {
        all.extend(
            valid(kind, version)
                .into_iter()
                .map(|object| (format!("{kind} {version}: valid"), object)),
        );
        all.extend(limits::cases(kind, version).into_iter().filter_map(|case| {
            let named = [
                "metadata",
                "metadata.name",
                "metadata.namespace",
                "apiVersion",
                "kind",
            ];
            let what = format!("{kind} {version}: {}: {:?}", case.field, case.says);
            (!named.contains(&case.field.as_str())).then_some((what, case.object))
        }));
    }
    let cases = rules::broken().into_iter().chain(rules::kept());
    all.extend(cases.map(|case| (format!("{}: {}", case.kind, case.change), case.object)));
    all
}

#[test]
fn the_api_server_gives_the_same_verdict() {
    let Some(kubeconfig) = std::env::var_os("KUBECONFIG_COMPARE") else {
        return;
    };
    let folder = std::env::temp_dir().join(format!("pointsman-compare-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the documents");
    let mut documents = documents();
    for (number, (_, object)) in documents.iter_mut().enumerate() {
        object["metadata"]["name"] = json!(format!("case-{number}"));
        // The namespace must exist; a cluster-scoped object has none.
        object["metadata"]
            .as_object_mut()
            .expect("an object")
            .remove("namespace");
        let file = folder.join(format!("case-{number:05}.json"));
        std::fs::write(file, object.to_string()).expect("a file for a document");
    }
    let kubectl = std::env::var("KUBECTL").unwrap_or_else(|_| "kubectl".to_owned());
    let output = Command::new(kubectl)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(["create", "--dry-run=server", "--validate=ignore", "-f"])
        .arg(&folder)
        .output()
        .expect("kubectl runs");
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
    let (accepted, refused) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    let created: HashSet<_> = accepted
        .lines()
        .filter_map(|line| {
            line.strip_suffix(" created (server dry run)")?
                .rsplit_once('/')
        })
        .map(|(_, name)| name.to_owned())
        .collect();
    assert!(created.len() > 50, "{refused}");
    let mut differences = Vec::new();
    for (number, (what, object)) in documents.iter().enumerate() {
        let input = read(object);
        let (ours, theirs) = (
            errors(&input).is_empty(),
            created.contains(&format!("case-{number}")),
        );
        if ours != theirs {
            let verdict = |accepts| if accepts { "accept" } else { "refuse" };
            let why = refused
                .lines()
                .find(|line| line.contains(&format!("case-{number:05}.json")))
                .unwrap_or_default();
            let said = errors(&input)
                .first()
                .map(ToString::to_string)
                .unwrap_or_default();
            differences.push(format!(
                "{what}: we {}, the API server {}s: {said}{why}",
                verdict(ours),
                verdict(theirs)
            ));
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {} differ:\n{}",
        differences.len(),
        documents.len(),
        differences.join("\n")
    );
}
