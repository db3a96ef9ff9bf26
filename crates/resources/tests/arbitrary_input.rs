//! Property tests: reading arbitrary input terminates, is deterministic and never panics.

use pointsman_resources::read::{ManifestReader, Manifests};
use proptest::prelude::*;

const VALID: &[&str] = &[
    include_str!("valid/Gateway.yaml"),
    include_str!("valid/HTTPRoute.yaml"),
    include_str!("valid/GRPCRoute.yaml"),
    include_str!("valid/XBackend.yaml"),
    include_str!("valid/XTelemetryPolicy.yaml"),
    include_str!("valid/core.yaml"),
    include_str!("valid/MeshHTTPRoute.yaml"),
    include_str!("valid/MeshGateway.yaml"),
    UNIVERSAL,
];

/// Universal documents of Kuma, in the syntax of MADR 011.
const UNIVERSAL: &str = "type: MeshHTTPRoute
mesh: default
name: a
spec:
  to:
  - targetRef: {kind: MeshService, name: a}
    rules:
    - matches: {path: {prefix: /v1}}
      default: {filters: [{requestRedirect: {path: /v2}}]}
---
type: Dataplane
name: a
networking: {address: 10.0.0.1, inbound: [{port: 80, tags: {kuma.io/service: a}}]}
";

/// Fragments of documents, with which mutations get past the first line.
const PIECES: &[&str] = &[
    "---\n",
    "...\n",
    "\n",
    "  ",
    "- ",
    ": ",
    "? ",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\"",
    "'",
    "#",
    "&a ",
    "*a",
    "<<: ",
    "|\n",
    ">-\n",
    "!!str ",
    "%YAML 1.2\n",
    "\t",
    "\r\n",
    "\0",
    "\u{feff}",
    "\\u",
    "null",
    "yes",
    "0x",
    "1e9",
    "kind: ",
    "type: ",
    "apiVersion: v1\n",
    "items: ",
    "spec:",
    "metadata",
];

fn read(bytes: &[u8]) -> Manifests {
    let mut reader = ManifestReader::new();
    reader.read("first", bytes);
    // In the second file, every object is a duplicate.
    reader.read("second", bytes);
    reader.finish()
}

fn check(bytes: &[u8]) {
    let (once, again) = (read(bytes), read(bytes));
    assert_eq!(once.findings, again.findings);
    assert_eq!(once.documents.len(), again.documents.len());
    let lines = bytes.iter().filter(|&&b| b == b'\n' || b == b'\r').count() + 2;
    for finding in &once.findings {
        assert!(
            (1..=lines).contains(&finding.line) && finding.column >= 1,
            "{finding}"
        );
    }
    for document in &once.documents {
        let (line, column) = document.position("spec.rules[0].backendRefs[0].name");
        assert!((1..=lines).contains(&line) && column >= 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn random_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        check(&bytes);
    }

    #[test]
    fn random_pieces_are_read(pieces in prop::collection::vec(0..PIECES.len(), 0..80)) {
        check(pieces.iter().map(|&piece| PIECES[piece]).collect::<String>().as_bytes());
    }

    #[test]
    fn mutated_documents_are_read(
        which in 0..VALID.len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..12_usize, 0..PIECES.len() + 1), 1..6),
    ) {
        let mut bytes = VALID[which].as_bytes().to_vec();
        for (at, cut, piece) in edits {
            let at = at.index(bytes.len() + 1);
            let end = (at + cut).min(bytes.len());
            let piece = PIECES.get(piece).copied().unwrap_or("\u{fffd}").as_bytes();
            bytes.splice(at..end, piece.iter().copied());
        }
        check(&bytes);
    }
}
