//! Each limit of each field, broken once in a document that is valid otherwise. Made by walking schema and document.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use super::{errors, kinds, of, read, valid};
use crate::Severity;
use crate::schema::{FieldSchema, Schema, Shape, Unique};

/// A document with one change.
pub(super) struct Case {
    pub(super) object: Json,
    /// The field that a finding must name.
    pub(super) field: String,
    /// What the finding must say; nothing where the verdict follows from rules that are tested elsewhere.
    pub(super) message: Option<String>,
    pub(super) severity: Severity,
}

/// All cases of a kind in a version.
pub(super) fn cases(kind: crate::Kind, version: &str) -> Vec<Case> {
    let schema = of(kind, version).expect("a version that is read");
    let mut maker = Maker {
        cases: Vec::new(),
        seen: BTreeSet::new(),
        base: Json::Null,
    };
    for object in valid(kind, version) {
        maker.base = object.clone();
        maker.walk(schema, &object, &Place::default());
    }
    // MADR 011 has a text for the path of Kuma's redirects.
    let is_fine = |case: &Case| {
        kind.is_mesh_route()
            && case.field.ends_with("requestRedirect.path")
            && case.message.as_deref() == Some("this is a string, not an object")
    };
    maker.cases.retain(|case| !is_fine(case));
    maker.cases
}

#[derive(Clone, Default)]
struct Place {
    pointer: String,
    field: String,
    /// The field without indexes: each is broken once.
    pattern: String,
}

impl Place {
    fn field(&self, name: &str) -> Place {
        let dot = if self.field.is_empty() { "" } else { "." };
        Place {
            pointer: format!("{}/{name}", self.pointer),
            field: format!("{}{dot}{name}", self.field),
            pattern: format!("{}.{name}", self.pattern),
        }
    }

    fn part(&self, key: &str) -> Place {
        Place {
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

struct Maker {
    cases: Vec<Case>,
    seen: BTreeSet<String>,
    base: Json,
}

impl Maker {
    /// A case in which the value at a place is another one.
    fn put(&mut self, at: &Place, value: Json, message: impl Into<String>) {
        let mut object = self.base.clone();
        *object
            .pointer_mut(&at.pointer)
            .expect("a place in the document") = value;
        self.cases.push(Case {
            object,
            field: at.field.clone(),
            message: Some(message.into()),
            severity: Severity::Error,
        });
    }

    fn walk(&mut self, schema: &Schema, value: &Json, at: &Place) {
        let new = self.seen.insert(at.pattern.clone()) && !at.pointer.is_empty();
        match (&schema.shape, value) {
            (Shape::Object { fields, open, .. }, Json::Object(map)) => {
                for field in fields {
                    let place = at.field(field.name);
                    if map.contains_key(field.name)
                        && self.seen.insert(format!("{}?", place.pattern))
                    {
                        self.leave_out(&place, field);
                    }
                    if let Some(value) = map.get(field.name) {
                        self.walk(&field.schema, value, &place);
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
                    self.put(at, json!("x"), "this is a string, not an object");
                }
            }
            (Shape::Map { values, min, max }, Json::Object(map)) => {
                for (key, value) in map {
                    self.walk(values, value, &at.part(key));
                }
                if new {
                    self.put(at, json!([]), "this is a list, not an object");
                    if *min > 0 {
                        self.put(at, json!({}), schema.message.unwrap_or("this is empty"));
                    }
                    if *max < 1000 {
                        let value = map.values().next().expect("an entry");
                        let many = (0..=*max)
                            .map(|n| (format!("key{n}"), value.clone()))
                            .collect();
                        self.put(at, Json::Object(many), format!("at most {max} are allowed"));
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

    fn leave_out(&mut self, place: &Place, field: &FieldSchema) {
        let required = field.required;
        for null in [true, false] {
            let missing = "this required field is missing";
            let message = field.schema.message.unwrap_or(missing);
            self.put(place, Json::Null, message);
            let case = self.cases.last_mut().expect("just put");
            if !required {
                case.message = None;
            }
            if !null {
                let (parent, name) = place.pointer.rsplit_once('/').expect("a field's place");
                let parent = case
                    .object
                    .pointer_mut(parent)
                    .and_then(Json::as_object_mut);
                parent.expect("the parent is an object").remove(name);
            }
        }
    }

    fn list(&mut self, schema: &Schema, list: &[Json], at: &Place) {
        let Shape::List {
            min, max, unique, ..
        } = &schema.shape
        else {
            return;
        };
        self.put(at, json!("x"), "this is a string, not a list");
        let mut with_null = list.to_vec();
        with_null.push(Json::Null);
        if list.len() < *max {
            self.put(at, Json::Array(with_null), "this is null");
            self.cases.last_mut().expect("just put").field =
                format!("{}[{}]", at.field, list.len());
        }
        if *min > 0 {
            self.put(at, json!([]), schema.message.unwrap_or("this is empty"));
        }
        if *max < 5000 {
            self.put(
                at,
                Json::Array(vec![list[0].clone(); max + 1]),
                schema
                    .message
                    .map_or(format!("at most {max} are allowed"), str::to_owned),
            );
        }
        if !matches!(unique, Unique::No) {
            let mut twice = list.to_vec();
            twice.push(list[0].clone());
            let message = if matches!(unique, Unique::Items) {
                "twice"
            } else {
                "has the same"
            };
            self.put(at, Json::Array(twice), message);
            self.cases.last_mut().expect("just put").field =
                format!("{}[{}]", at.field, list.len());
        }
    }

    fn scalar(&mut self, schema: &Schema, at: &Place) {
        match &schema.shape {
            Shape::String {
                min,
                max,
                pattern,
                one_of,
            } => {
                self.put(at, json!(5), "this is an integer, not a string");
                if !one_of.is_empty() {
                    self.put(at, json!("Nonsense"), "`Nonsense` is none of ");
                }
                if *min > 0 {
                    self.put(at, json!(""), schema.message.unwrap_or("this is empty"));
                }
                if *max < 5000 {
                    // Characters count, not bytes.
                    self.put(
                        at,
                        json!("ü".repeat(max + 1)),
                        format!("at most {max} are allowed"),
                    );
                }
                if let Some(pattern) = pattern {
                    let wrong = "\u{7f}ü";
                    self.put(at, json!(wrong), pattern.message(wrong));
                }
            }
            Shape::Integer { min, max, one_of } => {
                self.put(at, json!("5"), "this is a string, not an integer");
                self.put(at, json!(5.5), "this is a number, not an integer");
                if let [number, ..] = one_of {
                    self.put(at, json!(number - 1), "is none of");
                }
                if *min > i64::MIN {
                    self.put(at, json!(min - 1), schema.message.unwrap_or("is not"));
                }
                if *max < i64::MAX {
                    self.put(at, json!(max + 1), schema.message.unwrap_or("is not"));
                }
            }
            Shape::Bool => self.put(at, json!("true"), "this is a string, not a boolean"),
            _ => {}
        }
    }
}

#[test]
fn every_limit_of_every_field_is_kept() {
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
            if message.is_some_and(|message| message.starts_with("this is a")) {
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
