//! Violates each limit of each field once, in a document that is valid otherwise. The cases are generated from the schemas and the valid
//! documents.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use super::{errors, kinds, of, read, valid};
use crate::Severity;
use crate::schema::{FieldSchema, MISSING, Schema, Shape, Unique};

/// A document with one change.
pub(super) struct Case {
    pub(super) object: Json,
    /// Field of the expected finding.
    pub(super) field: String,
    /// Part of the expected message. `None` if the result depends on rules that are tested elsewhere.
    pub(super) message: Option<String>,
    pub(super) severity: Severity,
}

/// Generates all cases of a kind in a version.
pub(super) fn cases(kind: crate::Kind, version: &str) -> Vec<Case> {
    let schema = of(kind, version).expect("a supported version");
    let mut generator = Generator {
        cases: Vec::new(),
        seen: BTreeSet::new(),
        base: Json::Null,
    };
    for object in valid(kind, version) {
        generator.base = object.clone();
        generator.walk(schema, &object, &FieldPath::default());
    }
    // In the syntax of MADR 011, the path of a redirect is a string.
    let is_valid = |case: &Case| {
        kind.is_mesh_route()
            && case.field.ends_with("requestRedirect.path")
            && case.message.as_deref() == Some("must be an object, found a string")
    };
    generator.cases.retain(|case| !is_valid(case));
    generator.cases
}

#[derive(Clone, Default)]
struct FieldPath {
    /// JSON pointer.
    pointer: String,
    /// Path as in findings.
    field: String,
    /// Path without indexes. Each pattern is tested once.
    pattern: String,
}

impl FieldPath {
    fn field(&self, name: &str) -> FieldPath {
        let dot = if self.field.is_empty() { "" } else { "." };
        FieldPath {
            pointer: format!("{}/{name}", self.pointer),
            field: format!("{}{dot}{name}", self.field),
            pattern: format!("{}.{name}", self.pattern),
        }
    }

    fn part(&self, key: &str) -> FieldPath {
        FieldPath {
            pointer: format!(
                "{}/{}",
                self.pointer,
                key.replace('~', "~0").replace('/', "~1")
            ),
            field: format!("{}[{key}]", self.field),
            pattern: format!("{}[]", self.pattern),
        }
    }
}

struct Generator {
    cases: Vec<Case>,
    seen: BTreeSet<String>,
    base: Json,
}

impl Generator {
    /// Adds a case with another value at a path.
    fn put(&mut self, at: &FieldPath, value: Json, message: impl Into<String>) {
        let mut object = self.base.clone();
        *object
            .pointer_mut(&at.pointer)
            .expect("a path in the document") = value;
        self.cases.push(Case {
            object,
            field: at.field.clone(),
            message: Some(message.into()),
            severity: Severity::Error,
        });
    }

    fn walk(&mut self, schema: &Schema, value: &Json, at: &FieldPath) {
        let new = self.seen.insert(at.pattern.clone()) && !at.pointer.is_empty();
        match (&schema.shape, value) {
            (Shape::Object { fields, open, .. }, Json::Object(map)) => {
                for field in fields {
                    let path = at.field(field.name);
                    if map.contains_key(field.name)
                        && self.seen.insert(format!("{}?", path.pattern))
                    {
                        self.unset(&path, field);
                    }
                    if let Some(value) = map.get(field.name) {
                        self.walk(&field.schema, value, &path);
                    }
                }
                if new && !open {
                    let mut changed = map.clone();
                    changed.insert("unheardOf".to_owned(), json!(1));
                    self.put(at, Json::Object(changed), "unknown");
                    let case = self.cases.last_mut().expect("just put");
                    case.field.push_str(".unheardOf");
                    case.severity = Severity::Warning;
                }
                if new {
                    self.put(at, json!("x"), "must be an object, found a string");
                }
            }
            (Shape::Map { values, min, max }, Json::Object(map)) => {
                for (key, value) in map {
                    self.walk(values, value, &at.part(key));
                }
                if new {
                    self.put(at, json!([]), "must be an object, found a list");
                    if *min > 0 {
                        self.put(at, json!({}), schema.message.unwrap_or(EMPTY));
                    }
                    if *max < 1000 {
                        let value = map.values().next().expect("an entry");
                        let many = (0..=*max)
                            .map(|n| (format!("key{n}"), value.clone()))
                            .collect();
                        self.put(at, Json::Object(many), format!("must have at most {max} "));
                    }
                }
            }
            (Shape::List { items, .. }, Json::Array(list)) => {
                for (index, value) in list.iter().enumerate() {
                    self.walk(items, value, &at.part(&index.to_string()));
                }
                if new && !list.is_empty() {
                    self.list(schema, list, at);
                }
            }
            _ if new => self.scalar(schema, at),
            _ => {}
        }
    }

    fn unset(&mut self, path: &FieldPath, field: &FieldSchema) {
        let required = field.required;
        for null in [true, false] {
            let message = field.schema.message.unwrap_or(MISSING);
            self.put(path, Json::Null, message);
            let case = self.cases.last_mut().expect("just put");
            if !required {
                case.message = None;
            }
            if !null {
                let (parent, name) = path.pointer.rsplit_once('/').expect("the path of a field");
                let parent = case
                    .object
                    .pointer_mut(parent)
                    .and_then(Json::as_object_mut);
                parent.expect("the parent is an object").remove(name);
            }
        }
    }

    fn list(&mut self, schema: &Schema, list: &[Json], at: &FieldPath) {
        let Shape::List {
            min, max, unique, ..
        } = &schema.shape
        else {
            return;
        };
        self.put(at, json!("x"), "must be a list, found a string");
        let mut with_null = list.to_vec();
        with_null.push(Json::Null);
        if list.len() < *max {
            self.put(at, Json::Array(with_null), "found null");
            self.cases.last_mut().expect("just put").field =
                format!("{}[{}]", at.field, list.len());
        }
        if *min > 0 {
            self.put(at, json!([]), schema.message.unwrap_or(EMPTY));
        }
        if *max < 5000 {
            self.put(
                at,
                Json::Array(vec![list[0].clone(); max + 1]),
                schema
                    .message
                    .map_or(format!("must have at most {max} "), str::to_owned),
            );
        }
        if !matches!(unique, Unique::No) {
            let mut repeated = list.to_vec();
            repeated.push(list[0].clone());
            let message = if matches!(unique, Unique::Items) {
                "duplicate value"
            } else {
                "duplicate item: an earlier item has the same"
            };
            self.put(at, Json::Array(repeated), message);
            self.cases.last_mut().expect("just put").field =
                format!("{}[{}]", at.field, list.len());
        }
    }

    fn scalar(&mut self, schema: &Schema, at: &FieldPath) {
        match &schema.shape {
            Shape::String {
                min,
                max,
                pattern,
                one_of,
            } => {
                self.put(at, json!(5), "must be a string, found an integer");
                if !one_of.is_empty() {
                    self.put(
                        at,
                        json!("Nonsense"),
                        "unsupported value `Nonsense`; supported values: ",
                    );
                }
                if *min > 0 {
                    self.put(at, json!(""), schema.message.unwrap_or(EMPTY));
                }
                if *max < 5000 {
                    // Length is in characters, not bytes.
                    self.put(
                        at,
                        json!("ü".repeat(max + 1)),
                        format!("must have at most {max} character"),
                    );
                }
                if let Some(pattern) = pattern {
                    let invalid = "\u{7f}ü";
                    self.put(at, json!(invalid), pattern.message(invalid));
                }
            }
            Shape::Integer { min, max, one_of } => {
                self.put(at, json!("5"), "must be an integer, found a string");
                self.put(at, json!(5.5), "must be an integer, found a number");
                if let [number, ..] = one_of {
                    self.put(at, json!(number - 1), "supported values: ");
                }
                for number in [min.checked_sub(1), max.checked_add(1)]
                    .into_iter()
                    .flatten()
                {
                    let found = format!(", found {number}");
                    let message = schema.message.map_or(found, str::to_owned);
                    self.put(at, json!(number), message);
                }
            }
            Shape::Bool => self.put(at, json!("true"), "must be a boolean, found a string"),
            _ => {}
        }
    }
}

/// Part of the message for an empty value.
const EMPTY: &str = "must not be empty";

#[test]
fn every_limit_of_every_field_is_enforced() {
    let mut count = 0;
    for (kind, version) in kinds() {
        for Case {
            object,
            field,
            message,
            severity,
        } in cases(kind, version)
        {
            let Some(message) = message else { continue };
            let input = read(&object);
            let found = input.findings.iter().find(|finding| {
                finding.severity == severity
                    && finding.field == field
                    && finding.message.contains(&message)
            });
            assert!(
                found.is_some(),
                "{kind} {version}: {field}: {message}\n{:#?}",
                input.findings
            );
            assert_eq!(input.documents.is_empty(), severity == Severity::Error);
            count += 1;
        }
    }
    assert!(count > 3000, "{count} cases");
}

#[test]
fn a_value_of_the_wrong_type_has_one_finding() {
    for (kind, version) in kinds() {
        for Case {
            object,
            field,
            message,
            ..
        } in cases(kind, version)
        {
            if message.is_some_and(|message| message.contains(", found a")) {
                let input = read(&object);
                assert_eq!(
                    errors(&input).len(),
                    1,
                    "{kind} {version}: {field}: {:#?}",
                    input.findings
                );
            }
        }
    }
}
