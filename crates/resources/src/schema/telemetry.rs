//! Schema of XTelemetryPolicy.

use serde_json::json;

use super::patterns::{ATTRIBUTE_KEY, ATTRIBUTE_NAME, SPAN_NAME};
use super::rules::{only_with, required_with, union};
use super::shared::{backend_reference, header_name, headers, local_reference, request_fraction};
use super::{Schema, list, object, one_of, string};

const MODES: &[&str] = &["Enabled", "Disabled", "ImplementationDefault"];

/// Returns the schema of the spec of an XTelemetryPolicy.
pub(super) fn telemetry() -> Schema {
    // The CRD requires "at least one of [tracing]", which is equivalent to a required field.
    object()
        .required("targetRefs", list(local_reference()).size(1..=16))
        .required("tracing", tracing())
}

fn tracing() -> Schema {
    let sampling = object()
        .field("mode", mode())
        .field("samplingRate", request_fraction())
        .rule(only_with("samplingRate", "mode", &["Enabled"]));
    let provider = object()
        .required("backendRef", backend_reference())
        .field("headers", headers());
    let tracing = object()
        .field("mode", mode())
        .field("provider", provider)
        .field("samplingRate", request_fraction())
        .field("parentBasedSampling", sampling)
        .field("serviceName", string().size(1..=253).like(&ATTRIBUTE_NAME))
        .field("spanName", string().size(1..=256).like(&SPAN_NAME))
        .field("attributes", list(attribute()).keyed(&["name"]))
        .rule(required_with("provider", "mode", &["Enabled"]));
    [
        "provider",
        "samplingRate",
        "parentBasedSampling",
        "serviceName",
        "spanName",
        "attributes",
    ]
    .into_iter()
    .fold(tracing, |tracing, field| {
        tracing.rule(only_with(field, "mode", &["Enabled"]))
    })
}

fn mode() -> Schema {
    one_of(MODES).default(json!("ImplementationDefault"))
}

fn attribute() -> Schema {
    object()
        .required("name", string().size(1..=256).like(&ATTRIBUTE_NAME))
        .required("sourceType", one_of(&["Header", "Literal", "Attribute"]))
        .field("headerName", header_name())
        .field("literalValue", string().size(1..=1024))
        .field("attributeKey", string().size(1..=256).like(&ATTRIBUTE_KEY))
        .rule(union(
            "sourceType",
            &[
                ("Header", "headerName"),
                ("Literal", "literalValue"),
                ("Attribute", "attributeKey"),
            ],
        ))
}
