//! Tests of reading Kuma's resources.

mod forms;
mod madr;

use pointsman_resources::Resource;
use pointsman_resources::kuma::MeshRoute;
use pointsman_resources::read::{ManifestReader, Manifests};

fn read(text: &str) -> Manifests {
    let mut reader = ManifestReader::new();
    reader.read("a.yaml", text.as_bytes());
    reader.finish()
}

/// Formats each finding as a line.
fn lines(input: &Manifests) -> Vec<String> {
    input.findings.iter().map(ToString::to_string).collect()
}

/// Reads resources and asserts that there are no findings.
fn read_valid(text: &str) -> Vec<Resource> {
    let input = read(text);
    assert_eq!(lines(&input), [] as [&str; 0], "{text}");
    let documents = input.documents.into_iter();
    documents.map(|document| document.resource).collect()
}

fn routes(text: &str) -> Vec<MeshRoute> {
    let documents = read_valid(text).into_iter();
    documents
        .map(|resource| match resource {
            Resource::MeshRoute(route) => (*route).clone(),
            other => panic!("{other:?}"),
        })
        .collect()
}

fn route(text: &str) -> MeshRoute {
    routes(text).remove(0)
}
