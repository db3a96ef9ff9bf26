//! The console examples of the README and of docs/ are run, and must print what they show.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The commands of a text's `console` blocks, each with the output that it shows.
fn examples(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut parts = text.split("```console\n");
    parts.next();
    for part in parts {
        let block = part.split("```").next().unwrap_or_default();
        let (command, output) = block.split_once('\n').unwrap_or((block, ""));
        let command = command
            .strip_prefix("$ pointsman ")
            .expect("a block begins with `$ pointsman`");
        found.push((command.to_owned(), output.to_owned()));
    }
    found
}

/// Splits a command line at spaces outside single quotes.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (at, part) in command.split('\'').enumerate() {
        let last = words.len() - 1;
        if at % 2 == 1 {
            words[last].push_str(part);
        } else {
            let mut pieces = part.split(' ');
            words[last].push_str(pieces.next().unwrap_or_default());
            words.extend(pieces.map(str::to_owned));
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn every_console_example_prints_what_it_shows() {
    let mut files = vec![root().join("README.md")];
    for entry in std::fs::read_dir(root().join("docs")).expect("docs") {
        files.push(entry.expect("an entry").path());
    }
    let mut number = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a text");
        for (command, shown) in examples(&text) {
            number += 1;
            let output = Command::new(env!("CARGO_BIN_EXE_pointsman"))
                .args(words(&command))
                .current_dir(root())
                .output()
                .expect("the binary runs");
            let printed = String::from_utf8_lossy(&output.stdout);
            assert_eq!(printed, shown, "{}: pointsman {command}", file.display());
        }
    }
    assert!(number >= 2, "only {number} examples were found");
}
