//! The schema of every kind as data: fields, limits, defaults and rules, as the CRDs have them.
//!
//! A schema is written with the small builder below, once per kind and version, in the modules named after the kinds;
//! [`check`] carries it out. What one field demands of another (CEL in the CRDs) is a [`ValidationRule`], one function each.

mod core;
mod filters;
mod findings;
mod gateway;
mod kuma;
mod meta;
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

/// What a value must be.
pub(crate) struct Schema {
    pub(crate) shape: Shape,
    pub(crate) default: Option<Json>,
    pub(crate) rules: Vec<ValidationRule>,
    /// What is said where the value is needed and missing, or out of its bounds, if a dialect has words of its own.
    pub(crate) message: Option<&'static str>,
    /// Fields that people write here and that stand elsewhere, and where.
    pub(crate) misplaced: Vec<(&'static str, &'static str)>,
}

/// A demand beyond type and limits. It runs where the value has the right type, and reads its inputs carefully: a part
/// that is missing or of the wrong type has its own finding already, so the rule passes over it.
pub(crate) type ValidationRule = Box<dyn Fn(&Node, &mut Findings<'_>) + Send + Sync>;

/// The type of a value, with its limits.
pub(crate) enum Shape {
    /// Named fields. An open object may have others that nobody looks at.
    Object {
        fields: Vec<FieldSchema>,
        open: bool,
        min: usize,
    },
    /// Any keys, values of one schema.
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
    /// Lengths are counted in characters.
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
    /// A number or a name.
    IntOrString,
    Any,
}

/// Which items of a list must differ.
pub(crate) enum Unique {
    No,
    /// All.
    Items,
    /// Those with the same values in all of these fields.
    Keys(&'static [&'static str]),
}

/// A field of an object.
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

    /// What the value is if it is left out.
    fn default(mut self, default: Json) -> Self {
        self.default = Some(default);
        self
    }

    /// A dialect's own words for a value that is missing or out of its bounds.
    fn message(mut self, message: &'static str) -> Self {
        self.message = Some(message);
        self
    }

    /// A field that stands elsewhere: it is refused, and `says` tells where.
    fn misplaced(mut self, name: &'static str, message: &'static str) -> Self {
        self.misplaced.push((name, message));
        self
    }

    /// One more rule.
    fn rule(mut self, rule: impl Fn(&Node, &mut Findings<'_>) + Send + Sync + 'static) -> Self {
        self.rules.push(Box::new(rule));
        self
    }

    /// Bounds: characters of a string, items of a list, entries of a map.
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

    /// At most so many.
    fn max(self, max: usize) -> Self {
        self.size(0..=max)
    }

    /// What a string must look like.
    fn like(mut self, wanted: &'static Pattern) -> Self {
        if let Shape::String { pattern, .. } = &mut self.shape {
            *pattern = Some(wanted);
        }
        self
    }

    /// No two items of the list are the same.
    fn set(mut self) -> Self {
        if let Shape::List { unique, .. } = &mut self.shape {
            *unique = Unique::Items;
        }
        self
    }

    /// No two items of the list are the same in these fields.
    fn keyed(mut self, keys: &'static [&'static str]) -> Self {
        if let Shape::List { unique, .. } = &mut self.shape {
            *unique = Unique::Keys(keys);
        }
        self
    }

    /// One more field, which may be left out.
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

    /// One more field, which must be there.
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

    /// At least so many fields must be set.
    fn at_least(mut self, count: usize) -> Self {
        if let Shape::Object { min, .. } = &mut self.shape {
            *min = count;
        }
        self
    }
}

/// An object with the fields that are added to it; others are warned about.
fn object() -> Schema {
    Schema::new(Shape::Object {
        fields: Vec::new(),
        open: false,
        min: 0,
    })
}

/// An object of which only the fields that are added to it are looked at.
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

fn one_of(words: &'static [&'static str]) -> Schema {
    Schema::new(Shape::String {
        min: 0,
        max: usize::MAX,
        pattern: None,
        one_of: words,
    })
}

fn integer(range: std::ops::RangeInclusive<i64>) -> Schema {
    Schema::new(Shape::Integer {
        min: *range.start(),
        max: *range.end(),
        one_of: &[],
    })
}

/// An integer of 32 bits that is at least `min`.
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

/// The schemas of all kinds in all versions that are read, built once.
static ALL: LazyLock<HashMap<(Kind, &'static str), Schema>> = LazyLock::new(|| {
    let all = Kind::ALL.into_iter();
    all.flat_map(|kind| {
        kind.versions()
            .iter()
            .map(move |&version| ((kind, version), build(kind, version)))
    })
    .collect()
});

/// The schema of a kind in one of its versions.
pub(crate) fn of(kind: Kind, version: &str) -> Option<&'static Schema> {
    let known = kind.versions().iter().find(|&&known| known == version)?;
    ALL.get(&(kind, *known))
}

/// The schemas of Kuma's universal documents, built once.
static UNIVERSAL: LazyLock<HashMap<Kind, Schema>> = LazyLock::new(|| {
    let all = Kind::ALL.into_iter();
    all.filter(|kind| kind.has_universal_form())
        .map(|kind| (kind, kuma::universal(kind)))
        .collect()
});

/// The schema of a universal document, if the kind has that form.
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
        _ if kind.group() == KUMA_GROUP => kuma::fields(kind, object),
        _ => core::fields(kind, object),
    }
}

#[cfg(test)]
mod tests;
