//! Conversion of JSON values to YAML in the style of kubectl.

use serde_json::Value;

/// Converts a value to a YAML document.
pub fn to_yaml(value: &Value) -> String {
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

/// Writes a non-empty map or list in block style.
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
        // Like kubectl, indents a list as far as its key.
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

/// Returns whether a multi-line text can be a literal block scalar.
fn is_literal(text: &str) -> bool {
    let body = text.strip_suffix('\n').unwrap_or(text);
    body.contains('\n')
        && !text.starts_with([' ', '\n'])
        && !body.ends_with('\n')
        && text.chars().all(|c| c == '\n' || !c.is_control())
        && !body.split('\n').any(|line| line.ends_with(' '))
}

/// Returns text as a single-line scalar: plain if that is unambiguous, otherwise in double quotes as in JSON, which is valid YAML.
fn scalar(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || " ./_-()".contains(c))
        && !text.ends_with(' ')
        && !RESERVED.iter().any(|word| text.eq_ignore_ascii_case(word));
    if plain {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

/// Plain scalars that YAML 1.1 parses as a boolean or null.
const RESERVED: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parsing_the_output_returns_the_value() {
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
        let mut reader = crate::read::ManifestReader::new();
        reader.read("out.yaml", to_yaml(&value).as_bytes());
        let input = reader.finish();
        let errors: Vec<String> = input
            .findings
            .iter()
            .filter(|f| f.severity == crate::Severity::Error)
            .map(ToString::to_string)
            .collect();
        assert_eq!(errors, [] as [&str; 0], "{}", to_yaml(&value));
        assert_eq!(input.documents[0].object(), value, "{}", to_yaml(&value));
    }
}
