//! The console examples of the README and of docs/ must show the actual output.

use std::collections::BTreeSet;
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

/// Returns the dependencies of a manifest that are not crates of the project, each with whether only tests or benchmarks use it.
fn dependencies(manifest: &str) -> Vec<(String, bool)> {
    let mut section = "";
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
            continue;
        }
        let is_dev = match section {
            "dependencies" | "build-dependencies" => false,
            "dev-dependencies" => true,
            _ => continue,
        };
        let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
        if !name.is_empty() && !name.starts_with(['#', '}']) && !name.starts_with("pointsman-") {
            found.push((name.to_owned(), is_dev));
        }
    }
    found
}

#[test]
fn docs_dependencies_md_has_a_line_for_each_dependency() {
    let page = std::fs::read_to_string(root().join("docs/dependencies.md")).expect("a text");
    let (mut documented, mut named) = (BTreeSet::new(), BTreeSet::new());
    for row in page.lines().filter(|line| line.starts_with("| ")).skip(2) {
        let cells: Vec<&str> = row.split(" | ").collect();
        for name in cells[0].trim_start_matches("| ").split(", ") {
            named.insert(name.to_owned());
            let users = cells[1].split(", ").filter(|user| *user != "tests");
            documented.extend(users.map(|user| (name.to_owned(), user.to_owned())));
        }
    }
    let (mut used, mut all) = (BTreeSet::new(), BTreeSet::new());
    for entry in std::fs::read_dir(root().join("crates")).expect("crates") {
        let folder = entry.expect("an entry").path();
        let user = folder.file_name().expect("a name").to_string_lossy();
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        for (name, is_dev) in dependencies(&manifest) {
            all.insert(name.clone());
            if !is_dev && user != "test-support" {
                used.insert((name, user.clone().into_owned()));
            }
        }
    }
    assert_eq!(documented, used);
    assert_eq!(named, all);
}
