//! JSON values as YAML, in the style of kubectl.

use serde_json::Value;

/// The value as a YAML document.
pub fn to_string(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => block(value, 0, &mut out),
        Value::Array(list) if !list.is_empty() => block(value, 0, &mut out),
        scalar => {
            inline(scalar, 0, &mut out);
            out.push('\n');
        }
    }
    out
}

/// Writes the lines of a map or list that is not empty.
fn block(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(map) => {
            for (at, (key, value)) in map.iter().enumerate() {
                if at > 0 || !out.ends_with("- ") {
                    out.extend(std::iter::repeat_n(' ', indent));
                }
                out.push_str(&scalar(key));
                out.push(':');
                after_colon(value, indent, out);
            }
        }
        Value::Array(list) => {
            for (at, value) in list.iter().enumerate() {
                if at > 0 || !out.ends_with("- ") {
                    out.extend(std::iter::repeat_n(' ', indent));
                }
                out.push_str("- ");
                if is_block(value) {
                    block(value, indent + 2, out);
                } else {
                    inline(value, indent + 2, out);
                    out.push('\n');
                }
            }
        }
        _ => {}
    }
}

fn after_colon(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            block(value, indent + 2, out);
        }
        // Like kubectl, a list stands at its key's own column.
        Value::Array(list) if !list.is_empty() => {
            out.push('\n');
            block(value, indent, out);
        }
        other => {
            out.push(' ');
            inline(other, indent + 2, out);
            out.push('\n');
        }
    }
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    }
}

fn inline(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::String(text) if is_literal(text) => {
            out.push_str(if text.ends_with('\n') { "|" } else { "|-" });
            for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
                out.push('\n');
                if !line.is_empty() {
                    out.extend(std::iter::repeat_n(' ', indent));
                    out.push_str(line);
                }
            }
        }
        Value::String(text) => out.push_str(&scalar(text)),
        other => out.push_str(&other.to_string()),
    }
}

/// Whether a text of several lines can be written as it is.
fn is_literal(text: &str) -> bool {
    let body = text.strip_suffix('\n').unwrap_or(text);
    body.contains('\n')
        && !text.starts_with([' ', '\n'])
        && !body.ends_with('\n')
        && text.chars().all(|c| c == '\n' || !c.is_control())
        && !body.split('\n').any(|line| line.ends_with(' '))
}

/// A text on one line: plain where nobody can read it as something else, else in double quotes, where JSON is YAML.
fn scalar(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || " ./_-()".contains(c))
        && !text.ends_with(' ')
        && !WORDS.iter().any(|word| text.eq_ignore_ascii_case(word));
    if plain {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

/// Words that YAML 1.1 takes for something else than text.
const WORDS: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_reads_back_the_same() {
        let value = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "x", "namespace": "shop", "labels": {"yes": "no", "a/b": "1.5"}},
            "data": {
                "lines": "a: b\n  c\n\nd\n", "open": "a\nb", "odd": " lead\nx", "colon": "a: b", "hash": "a #b", "empty": "",
                "number": "12", "tilde": "~", "quote": "say \"hi\" \\ \t", "unicode": "grüße \u{1F600}", "null": "null",
                "trail": "a \nb", "dash": "- x", "cr": "a\r\nb",
            },
            "nested": [[1, [2, {"k": []}]], {"m": {}}, {"a": 1, "b": [{"c": null}, true, -1.5]}],
        });
        let mut reader = pointsman_resources::read::ManifestReader::new();
        reader.read("out.yaml", to_string(&value).as_bytes());
        let input = reader.finish();
        let errors: Vec<String> = input
            .findings
            .iter()
            .filter(|f| f.severity == pointsman_resources::Severity::Error)
            .map(ToString::to_string)
            .collect();
        assert_eq!(errors, [] as [&str; 0], "{}", to_string(&value));
        assert_eq!(input.documents[0].object(), value, "{}", to_string(&value));
    }
}
