//! The console examples of the README and of docs/ must show the actual output.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the commands in a text's `console` blocks, each with the output shown.
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
fn console_examples_in_the_docs_show_the_actual_output() {
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

/// Returns the names in backticks that contain `::`.
fn test_names(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    let paths = quoted.filter(|name| !name.contains(['…', ' ']));
    paths
        .filter_map(|name| Some(name.rsplit_once("::")?.1))
        .collect()
}

fn sources(folder: &Path, all: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|end| end == "rs") {
            all.push_str(&std::fs::read_to_string(path).expect("a text"));
        }
    }
}

#[test]
fn tests_named_by_the_docs_exist() {
    let mut all = String::new();
    sources(&root().join("crates"), &mut all);
    for page in ["security.md", "known-problems.md"] {
        let text = std::fs::read_to_string(root().join("docs").join(page)).expect("a text");
        let names = test_names(&text);
        assert!(names.len() > 20, "{page}: {names:?}");
        for name in names {
            assert!(
                all.contains(&format!("fn {name}(")),
                "{page}: there is no test {name}"
            );
        }
    }
}
