//! Schemas of all kinds: fields, limits, defaults and validation rules, as in the CRDs.
//!
//! The modules named after the kinds define the schema of each kind and version with the builder below; [`validate`] applies it to a
//! document. Constraints between fields, which the CRDs express in CEL, are [`ValidationRule`]s.

mod core;
mod filters;
mod findings;
mod gateway;
mod kuma;
mod meta;
mod parameters;
mod patterns;
mod policy;
mod route;
mod rules;
mod shared;
mod telemetry;
pub(crate) mod validate;

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value as Json;

use crate::document::Node;
use crate::meta::{KUMA_GROUP, Kind};
pub(crate) use findings::Findings;
pub(crate) use patterns::Pattern;

/// Error message for a required field that is missing.
pub(crate) const MISSING: &str = "required field is missing";

/// The schema of a value.
pub(crate) struct Schema {
    pub(crate) shape: Shape,
    pub(crate) default: Option<Json>,
    pub(crate) rules: Vec<ValidationRule>,
    /// Replaces the standard message for a missing or out-of-range value, if Kuma has its own message.
    pub(crate) message: Option<&'static str>,
    /// Fields that belong elsewhere, and the error messages for them.
    pub(crate) misplaced: Vec<(&'static str, &'static str)>,
}

/// A constraint beyond type and limits. It runs only if the value has the right type. It must tolerate parts that are missing or have the wrong type, because
/// those are reported separately.
pub(crate) type ValidationRule = Box<dyn Fn(&Node, &mut Findings<'_>) + Send + Sync>;

/// The type of a value, with its limits.
pub(crate) enum Shape {
    /// Named fields. An open object may have other fields, which are not validated. At least `min` fields must be set.
    Object {
        fields: Vec<FieldSchema>,
        open: bool,
        min: usize,
    },
    /// Arbitrary keys, with values of one schema.
    Map {
        values: Box<Schema>,
        min: usize,
        max: usize,
    },
    List {
        items: Box<Schema>,
        min: usize,
        max: usize,
        unique: Unique,
    },
    /// Lengths are in characters.
    String {
        min: usize,
        max: usize,
        pattern: Option<&'static Pattern>,
        one_of: &'static [&'static str],
    },
    Integer {
        min: i64,
        max: i64,
        one_of: &'static [i64],
    },
    Bool,
    /// A port number or name, for example.
    IntOrString,
    Any,
}

/// Uniqueness constraint on the items of a list.
pub(crate) enum Unique {
    No,
    /// No two items are equal.
    Items,
    /// No two items have equal values in all of these fields.
    Keys(&'static [&'static str]),
}

/// The schema of a field of an object.
pub(crate) struct FieldSchema {
    pub(crate) name: &'static str,
    pub(crate) required: bool,
    pub(crate) schema: Schema,
}

impl Schema {
    fn new(shape: Shape) -> Self {
        Schema {
            shape,
            default: None,
            rules: Vec::new(),
            message: None,
            misplaced: Vec::new(),
        }
    }

    /// Sets the default value.
    fn default(mut self, default: Json) -> Self {
        self.default = Some(default);
        self
    }

    /// Sets the message for a missing or out-of-range value.
    fn message(mut self, message: &'static str) -> Self {
        self.message = Some(message);
        self
    }

    /// Adds a field that belongs elsewhere. It is rejected with the message.
    fn misplaced(mut self, name: &'static str, message: &'static str) -> Self {
        self.misplaced.push((name, message));
        self
    }

    /// Adds a validation rule.
    fn rule(mut self, rule: impl Fn(&Node, &mut Findings<'_>) + Send + Sync + 'static) -> Self {
        self.rules.push(Box::new(rule));
        self
    }

    /// Limits the number of characters of a string, items of a list or entries of a map.
    fn size(mut self, range: std::ops::RangeInclusive<usize>) -> Self {
        match &mut self.shape {
            Shape::String { min, max, .. }
            | Shape::List { min, max, .. }
            | Shape::Map { min, max, .. } => {
                (*min, *max) = (*range.start(), *range.end());
            }
            _ => {}
        }
        self
    }

    /// Limits the size to at most `max`.
    fn max(self, max: usize) -> Self {
        self.size(0..=max)
    }

    /// Requires a string to match a pattern.
    fn like(mut self, required: &'static Pattern) -> Self {
        if let Shape::String { pattern, .. } = &mut self.shape {
            *pattern = Some(required);
        }
        self
    }

    /// Requires the items of a list to be unique.
    fn set(mut self) -> Self {
        if let Shape::List { unique, .. } = &mut self.shape {
            *unique = Unique::Items;
        }
        self
    }

    /// Requires the items of a list to be unique in the combination of these fields.
    fn keyed(mut self, keys: &'static [&'static str]) -> Self {
        if let Shape::List { unique, .. } = &mut self.shape {
            *unique = Unique::Keys(keys);
        }
        self
    }

    /// Adds an optional field.
    fn field(mut self, name: &'static str, schema: Schema) -> Self {
        if let Shape::Object { fields, .. } = &mut self.shape {
            fields.push(FieldSchema {
                name,
                required: false,
                schema,
            });
        }
        self
    }

    /// Adds a required field.
    fn required(mut self, name: &'static str, schema: Schema) -> Self {
        if let Shape::Object { fields, .. } = &mut self.shape {
            fields.push(FieldSchema {
                name,
                required: true,
                schema,
            });
        }
        self
    }

    /// Requires at least `count` fields of an object to be set.
    fn at_least(mut self, count: usize) -> Self {
        if let Shape::Object { min, .. } = &mut self.shape {
            *min = count;
        }
        self
    }
}

/// Creates the schema of an object with named fields. Other fields cause a warning.
fn object() -> Schema {
    Schema::new(Shape::Object {
        fields: Vec::new(),
        open: false,
        min: 0,
    })
}

/// Creates the schema of an object with named fields. Other fields are accepted silently.
fn open_object() -> Schema {
    Schema::new(Shape::Object {
        fields: Vec::new(),
        open: true,
        min: 0,
    })
}

fn map(values: Schema) -> Schema {
    Schema::new(Shape::Map {
        values: Box::new(values),
        min: 0,
        max: usize::MAX,
    })
}

fn list(items: Schema) -> Schema {
    Schema::new(Shape::List {
        items: Box::new(items),
        min: 0,
        max: usize::MAX,
        unique: Unique::No,
    })
}

fn string() -> Schema {
    Schema::new(Shape::String {
        min: 0,
        max: usize::MAX,
        pattern: None,
        one_of: &[],
    })
}

fn one_of(values: &'static [&'static str]) -> Schema {
    Schema::new(Shape::String {
        min: 0,
        max: usize::MAX,
        pattern: None,
        one_of: values,
    })
}

fn integer(range: std::ops::RangeInclusive<i64>) -> Schema {
    Schema::new(Shape::Integer {
        min: *range.start(),
        max: *range.end(),
        one_of: &[],
    })
}

/// Creates the schema of a 32-bit integer that is at least `min`.
fn int32(min: i64) -> Schema {
    integer(min..=i64::from(i32::MAX))
}

fn number_of(numbers: &'static [i64]) -> Schema {
    Schema::new(Shape::Integer {
        min: i64::MIN,
        max: i64::MAX,
        one_of: numbers,
    })
}

fn boolean() -> Schema {
    Schema::new(Shape::Bool)
}

fn int_or_string() -> Schema {
    Schema::new(Shape::IntOrString)
}

fn any() -> Schema {
    Schema::new(Shape::Any)
}

/// The schemas of all kinds in all supported versions.
static ALL: LazyLock<HashMap<(Kind, &'static str), Schema>> = LazyLock::new(|| {
    let all = Kind::ALL.into_iter();
    all.flat_map(|kind| {
        kind.versions()
            .iter()
            .map(move |&version| ((kind, version), build(kind, version)))
    })
    .collect()
});

/// Returns the schema of a kind in one of its versions.
pub(crate) fn of(kind: Kind, version: &str) -> Option<&'static Schema> {
    let known = kind.versions().iter().find(|&&known| known == version)?;
    ALL.get(&(kind, *known))
}

/// Returns the error message for an unsupported version of a kind.
pub(crate) fn unsupported_version(kind: Kind, api_version: &str) -> String {
    let supported: Vec<_> = kind
        .versions()
        .iter()
        .map(|version| kind.api_version_of(version))
        .collect();
    let supported = supported.join(", ");
    format!("unsupported API version `{api_version}` of {kind}; supported versions: {supported}")
}

/// The schemas of Kuma's universal documents.
static UNIVERSAL: LazyLock<HashMap<Kind, Schema>> = LazyLock::new(|| {
    let all = Kind::ALL.into_iter();
    all.filter(|kind| kind.has_universal_form())
        .map(|kind| (kind, kuma::universal(kind)))
        .collect()
});

/// Returns the schema of a kind's universal documents, if the kind has that form.
pub(crate) fn universal(kind: Kind) -> Option<&'static Schema> {
    UNIVERSAL.get(&kind)
}

fn build(kind: Kind, version: &str) -> Schema {
    let object = object()
        .field("apiVersion", string())
        .field("kind", string())
        .required("metadata", meta::metadata(kind))
        .field(
            "status",
            if kind == Kind::Pod {
                core::pod_status()
            } else {
                any()
            },
        );
    match kind {
        Kind::GatewayClass | Kind::XMesh => object.required("spec", gateway::class()),
        Kind::Gateway => object.required("spec", gateway::gateway()),
        Kind::ListenerSet => object.required("spec", gateway::listener_set()),
        Kind::HTTPRoute => object.required("spec", route::http()),
        Kind::GRPCRoute => object.required("spec", route::grpc()),
        Kind::TLSRoute => object.required("spec", route::tls(version)),
        Kind::TCPRoute | Kind::UDPRoute => object.required("spec", route::l4(version)),
        Kind::ReferenceGrant => object.required("spec", policy::reference_grant()),
        Kind::BackendTLSPolicy => object.required("spec", policy::backend_tls()),
        Kind::XBackend => object.required("spec", policy::backend()),
        Kind::XBackendTrafficPolicy => object.required("spec", policy::backend_traffic()),
        Kind::XTelemetryPolicy => object.required("spec", telemetry::telemetry()),
        Kind::MeshSettings => object.field("spec", policy::mesh_settings()),
        Kind::GatewayParameters => object.field("spec", parameters::gateway_parameters()),
        _ if kind.group() == KUMA_GROUP => kuma::fields(kind, object),
        _ => core::fields(kind, object),
    }
}

#[cfg(test)]
mod tests;
