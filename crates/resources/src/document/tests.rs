//! Tests of parsed values, positions and syntax errors.

use serde_json::{Value as Json, json};

use super::*;

fn one(text: &str) -> Json {
    let mut documents = parse(text.as_bytes());
    assert_eq!(documents.len(), 1, "{text}: {documents:?}");
    documents
        .remove(0)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
        .to_json()
}

fn error(text: &str) -> SyntaxError {
    let found = parse(text.as_bytes()).into_iter().find_map(Result::err);
    found.unwrap_or_else(|| panic!("{text}: no error"))
}

fn at(line: u32, column: u32) -> Position {
    Position { line, column }
}

#[test]
fn scalars_have_the_types_that_kubectl_assigns() {
    let cases = [
        ("yes", json!(true)),
        ("Off", json!(false)),
        ("on", json!(true)),
        ("NO", json!(false)),
        ("'yes'", json!("yes")),
        ("~", Json::Null),
        ("Null", Json::Null),
        ("", Json::Null),
        ("nULL", json!("nULL")),
        ("017", json!(15)),
        ("0o17", json!(15)),
        ("0x1F", json!(31)),
        ("0b101", json!(5)),
        ("-0x10", json!(-16)),
        ("089", json!(89)),
        ("1_000", json!(1000)),
        ("+5", json!(5)),
        ("--5", json!("--5")),
        ("1.5", json!(1.5)),
        ("80.0", json!(80)),
        ("1e3", json!(1000)),
        (".5", json!(0.5)),
        ("1.", json!(1)),
        ("1e400", json!("1e400")),
        ("9223372036854775807", json!(9_223_372_036_854_775_807_i64)),
        ("9223372036854775808", json!(9_223_372_036_854_775_808.0)),
        ("1.2.3", json!("1.2.3")),
        ("12:30:45", json!("12:30:45")),
        ("2026-01-31", json!("2026-01-31")),
        ("2026-01-31T12:00:00Z", json!("2026-01-31T12:00:00Z")),
        ("!!str 5", json!("5")),
        ("!!int \"5\"", json!(5)),
        ("!!str yes", json!("yes")),
        ("!custom 5", json!("5")),
        ("|\n  a\n  b\n", json!("a\nb\n")),
        (">-\n  a\n  b\n", json!("a b")),
        ("\"\\u00e9\\x41\"", json!("éA")),
    ];
    for (text, value) in cases {
        assert_eq!(one(&format!("a: {text}"))["a"], value, "{text}");
    }
}

#[test]
fn keys_are_strings() {
    assert_eq!(
        one("{1: a, on: b, 1.5: c, 'x y': e}"),
        json!({"1": "a", "true": "b", "1.5": "c", "x y": "e"})
    );
}

#[test]
fn json_with_tabs_surrogates_and_several_values_is_read() {
    assert_eq!(
        one("{\n\t\"a\":\t[1,\t2.5, -3e2],\n\t\"b\": \"\\ud83d\\ude00\\n\\/\"\n}"),
        json!({"a": [1, 2.5, -300], "b": "😀\n/"})
    );
    assert_eq!(parse(b"{\"a\": 1}\n{\"a\": 2}").len(), 2);
    // A lone surrogate is replaced.
    assert_eq!(one("{\"a\": \"\\ud83dx\"}")["a"], json!("\u{fffd}x"));
    // Strings that YAML would resolve to other types stay strings, and keys may be long.
    let key = "k".repeat(2000);
    assert_eq!(one(&format!("{{\"{key}\": \"yes\"}}")), json!({key: "yes"}));
    let node = parse(b"{\n  \"a\": {\"b\": 1}\n}")
        .remove(0)
        .expect("valid");
    assert_eq!(
        node.get("a").and_then(|a| a.get("b")).map(|b| b.at),
        Some(at(2, 14))
    );
}

#[test]
fn braces_that_are_not_json_are_yaml() {
    assert_eq!(
        one("{a: [b, 'c'], # comment\n d: yes}"),
        json!({"a": ["b", "c"], "d": true})
    );
}

#[test]
fn every_node_has_its_position() {
    let node = parse("# comment\na:\n  b: [x,\n    ü, y]\n  c:\n  - d: 1\n".as_bytes())
        .remove(0)
        .expect("valid");
    let a = node.get("a").expect("a");
    assert_eq!(node.at, at(2, 1));
    assert_eq!(a.at, at(3, 3));
    let positions: Vec<_> = a
        .get("b")
        .expect("b")
        .items()
        .iter()
        .map(|item| item.at)
        .collect();
    assert_eq!(positions, [at(3, 7), at(4, 5), at(4, 8)]);
    assert_eq!(a.get("c").expect("c").items()[0].at, at(6, 5));
    assert_eq!(a.entries()[1].at, at(5, 3));
}

#[test]
fn documents_are_split_at_separators() {
    let text = "# first\na: 1\n---\n---\n# nothing\n--- # comment\nb: 2\n...\n---\nc: |\n  --- not one\n  x\n--- {d: 4}\n";
    let documents: Vec<_> = parse(text.as_bytes())
        .into_iter()
        .map(|node| node.expect("valid"))
        .collect();
    let values: Vec<_> = documents.iter().map(Node::to_json).collect();
    assert_eq!(
        values,
        [
            json!({"a": 1}),
            json!({"b": 2}),
            json!({"c": "--- not one\nx\n"}),
            json!({"d": 4})
        ]
    );
    let lines: Vec<_> = documents.iter().map(|node| node.at.line).collect();
    assert_eq!(lines, [2, 7, 10, 13]);
}

#[test]
fn directives_windows_line_endings_and_byte_order_marks_are_accepted() {
    assert_eq!(one("%YAML 1.1\n# comment\n---\na: 1\n"), json!({"a": 1}));
    assert_eq!(one("\u{feff}a: 1\r\nb: 2\r\n"), json!({"a": 1, "b": 2}));
    assert_eq!(parse(b"a: 1\r\n---\r\nb: 2\r\n").len(), 2);
    assert_eq!(one("\u{feff}{\"a\": 1}"), json!({"a": 1}));
}

#[test]
fn a_syntax_error_affects_one_document_only() {
    let documents = parse(b"a: 1\n---\nb: [1,\nc: }\n---\nd: 4\n---\n\xff\xfe: 5\n---\ne: 6\n");
    let lines: Vec<_> = documents
        .iter()
        .map(|document| match document {
            Ok(node) => (true, node.at.line),
            Err(error) => (false, error.at.line),
        })
        .collect();
    assert_eq!(
        lines,
        [(true, 1), (false, 4), (true, 6), (false, 8), (true, 10)]
    );
}

#[test]
fn invalid_utf_8_is_an_error_at_the_first_invalid_byte() {
    let error = parse(
        "a: ü\nb: ü"
            .as_bytes()
            .iter()
            .copied()
            .chain([0xff, b'\n'])
            .collect::<Vec<_>>()
            .as_slice(),
    )
    .remove(0);
    assert_eq!(error.expect_err("not UTF-8").at, at(2, 5));
}

#[test]
fn duplicate_keys_are_an_error() {
    for (text, position) in [
        ("a: 1\nb: 2\na: 3\n", at(3, 1)),
        ("{a: 1, a: 2}", at(1, 8)),
        ("{\"a\": 1, \"a\": 2}", at(1, 10)),
    ] {
        let error = error(text);
        assert_eq!(
            (error.at, error.message.contains("duplicate key `a`")),
            (position, true),
            "{error}"
        );
    }
}

#[test]
fn aliases_and_merge_keys_are_resolved() {
    let text = "base: &base {a: 1, b: 2}\nlist: &list [x]\none: {<<: *base, b: 3}\ntwo: {<<: [{a: 9}, *base], c: 4}\nthree: *list\n";
    let value = one(text);
    assert_eq!(value["one"], json!({"b": 3, "a": 1}));
    assert_eq!(value["two"], json!({"c": 4, "a": 9, "b": 2}));
    assert_eq!(value["three"], json!(["x"]));
    assert_eq!(one("'<<': 1"), json!({"<<": 1}));
    assert!(error("a: {<<: 5}").message.contains("must be an object"));
    assert!(error("{~: 1}").message.contains("a key must not be null"));
    assert!(error("a: *nothing").at.line == 1);
    assert!(error("a: &a [*a]").at.line == 1);
}

#[test]
fn aliases_that_expand_exponentially_are_rejected() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..12 {
        let alias = format!("*a{},", n - 1).repeat(10);
        text.push_str(&format!("a{n}: &a{n} [{alias}]\n"));
    }
    assert!(error(&text).message.contains("expand to more than"));
}

#[test]
fn aliases_of_a_large_value_are_rejected() {
    let text = format!("a: &a {}\n", "x".repeat(100_000));
    let many = format!("{text}b: [{}]\n", "*a,".repeat(1000));
    assert_eq!(
        error(&many).message,
        "anchors and aliases expand to more than 16 MiB"
    );
    let few = format!("{text}b: [{}]\n", "*a,".repeat(100));
    assert_eq!(one(&few)["b"].as_array().map(Vec::len), Some(100));
}

#[test]
fn nesting_depth_is_limited() {
    let lists = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    for (text, fits) in [
        (lists(MAX_DEPTH), true),
        (lists(MAX_DEPTH + 1), false),
        (lists(100_000), false),
        ("- ".repeat(MAX_DEPTH + 1), false),
        ("{\"a\":".repeat(100_000), false),
        (
            format!(
                "a: &a {}\nb: [{}*a{}]",
                lists(60),
                "[".repeat(60),
                "]".repeat(60)
            ),
            false,
        ),
    ] {
        assert_eq!(
            parse(text.as_bytes()).iter().all(Result::is_ok),
            fits,
            "{}",
            &text[..40]
        );
    }
}

#[test]
fn empty_documents_are_omitted() {
    for nothing in ["", "\n\n", "# comment\n", "---\n---\n", "~", "\u{feff}"] {
        assert!(parse(nothing.as_bytes()).is_empty(), "{nothing}");
    }
}
