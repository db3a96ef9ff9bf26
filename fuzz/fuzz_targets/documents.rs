//! Fuzzes the manifest reader: reading terminates and never panics.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pointsman_resources::read::ManifestReader;

fuzz_target!(|bytes: &[u8]| {
    let mut reader = ManifestReader::new();
    reader.read("input", bytes);
    for document in &reader.finish().documents {
        document.position("spec.rules[0].matches[0].path");
    }
});
