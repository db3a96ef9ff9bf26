//! Compares validation and defaults with a real API server.
//!
//! Runs only if `KUBECONFIG_COMPARE` is the path of a kubeconfig for a cluster with the CRDs of the experimental channel (Gateway API
//! v1.7.0). `KUBECTL` overrides the command `kubectl`. All requests are dry runs.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::process::Command;

use serde_json::{Value as Json, json};

use super::{errors, kinds, limits, read, rules, valid};
use crate::meta::{KUMA_GROUP, POINTSMAN_GROUP};

/// API groups whose CRDs the cluster does not have.
const OTHERS: [&str; 2] = [POINTSMAN_GROUP, KUMA_GROUP];

/// Returns the documents of the other tests, except those that change the identity of an object.
fn documents() -> Vec<(String, Json)> {
    let mut all = Vec::new();
    for (kind, version) in kinds().filter(|(kind, _)| !OTHERS.contains(&kind.group())) {
        all.extend(
            valid(kind, version)
                .into_iter()
                .map(|object| (format!("{kind} {version}: valid"), object)),
        );
        all.extend(limits::cases(kind, version).into_iter().filter_map(|case| {
            let identity = [
                "metadata",
                "metadata.name",
                "metadata.namespace",
                "apiVersion",
                "kind",
            ];
            let title = format!("{kind} {version}: {}: {:?}", case.field, case.message);
            (!identity.contains(&case.field.as_str())).then_some((title, case.object))
        }));
    }
    let cases = rules::violations().into_iter().chain(rules::accepted());
    let cases = cases.filter(|case| !OTHERS.contains(&case.kind.group()));
    all.extend(cases.map(|case| (format!("{}: {}", case.kind, case.change), case.object)));
    all
}

/// Submits the documents to the API server. Returns the objects that it would store, by name, and its error messages for the others.
fn store(kubeconfig: &OsStr, documents: &[(String, Json)]) -> (HashMap<String, Json>, String) {
    let folder = std::env::temp_dir().join(format!("pointsman-compare-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the documents");
    for (number, (_, object)) in documents.iter().enumerate() {
        let file = folder.join(format!("case-{number}.json"));
        std::fs::write(file, object.to_string()).expect("a file for a document");
    }
    let kubectl = std::env::var("KUBECTL").unwrap_or_else(|_| "kubectl".to_owned());
    let output = Command::new(kubectl)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args([
            "create",
            "--dry-run=server",
            "--validate=ignore",
            "-o",
            "json",
            "-f",
        ])
        .arg(&folder)
        .output()
        .expect("kubectl runs");
    std::fs::remove_dir_all(&folder).expect("the folder was created here");
    // kubectl prints either a sequence of objects or a single List.
    let values = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Json>();
    let objects = values.flat_map(|value| {
        let mut value = value.expect("kubectl writes JSON");
        match value["items"].take() {
            Json::Array(items) => items,
            _ => vec![value],
        }
    });
    let stored = objects
        .map(|object| {
            (
                object["metadata"]["name"]
                    .as_str()
                    .expect("a name")
                    .to_owned(),
                object,
            )
        })
        .collect();
    (stored, String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn validation_and_defaults_are_those_of_the_api_server() {
    let Some(kubeconfig) = std::env::var_os("KUBECONFIG_COMPARE") else {
        return;
    };
    let mut documents = documents();
    for (number, (_, object)) in documents.iter_mut().enumerate() {
        object["metadata"]["name"] = json!(format!("case-{number}"));
        // The namespace must exist; a cluster-scoped object has none.
        object["metadata"]
            .as_object_mut()
            .expect("an object")
            .remove("namespace");
    }
    let (stored, rejections) = store(&kubeconfig, &documents);
    assert!(stored.len() > 50, "{rejections}");
    let mut differences = Vec::new();
    for (number, (title, object)) in documents.iter().enumerate() {
        let input = read(object);
        let theirs = stored.get(&format!("case-{number}"));
        match (input.documents.first(), theirs) {
            (Some(ours), Some(theirs)) => {
                // Pointsman keeps unknown fields, with a warning; the API server drops them.
                if input.findings.is_empty() && ours.object()["spec"] != theirs["spec"] {
                    let (ours, theirs) = (&ours.object()["spec"], &theirs["spec"]);
                    differences.push(format!("{title}: Pointsman: {ours}, API server: {theirs}"));
                }
            }
            (None, None) => {}
            (Some(_), None) => {
                let file = format!("case-{number}.json");
                let reason = rejections
                    .lines()
                    .find(|line| line.contains(&file))
                    .unwrap_or_default();
                differences.push(format!("{title}: only the API server rejects it: {reason}"));
            }
            (None, Some(_)) => {
                let reason = errors(&input)[0];
                differences.push(format!("{title}: only Pointsman rejects it: {reason}"));
            }
        }
    }
    let (count, all) = (differences.len(), documents.len());
    assert!(
        differences.is_empty(),
        "{count} of {all} differ:\n{}",
        differences.join("\n")
    );
}
