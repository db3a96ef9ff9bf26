//! Messages of a newer version: unknown fields are ignored, and an unknown case of a `oneof` or value of an enum never leaves a part of a resource in effect.

use std::collections::HashMap;

use pointsman_wire::xds::discovery::DeltaDiscoveryResponse;
use pointsman_wire::{decode, encode};
use prost::Message;
use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, FieldDescriptorProto};

use crate::support::bind;

/// The messages of `resources.proto`, by their full names.
struct Schema(HashMap<String, DescriptorProto>);

impl Schema {
    fn new() -> Schema {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/proto");
        let files = protox::compile(["pointsman/v1/resources.proto"], [folder]);
        let mut all = HashMap::new();
        for file in files.expect("a schema").file {
            for message in file.message_type {
                let name = format!(
                    ".{}.{}",
                    file.package.as_deref().unwrap_or(""),
                    message.name()
                );
                all.insert(name, message);
            }
        }
        Schema(all)
    }

    fn message(&self, name: &str) -> &DescriptorProto {
        self.0
            .get(name)
            .unwrap_or_else(|| panic!("{name} is defined"))
    }
}

/// A field in bytes: its number, its bytes with the tag, and its length-delimited content.
struct Field<'b> {
    number: i32,
    bytes: &'b [u8],
    content: Option<&'b [u8]>,
}

fn varint(bytes: &mut &[u8]) -> u64 {
    prost::encoding::decode_varint(bytes).expect("a number")
}

/// Splits a message into its fields.
fn fields(mut bytes: &[u8]) -> Vec<Field<'_>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let start = bytes;
        let tag = varint(&mut bytes);
        let content = match tag & 7 {
            0 => {
                varint(&mut bytes);
                None
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (content, rest) = bytes.split_at(length);
                bytes = rest;
                Some(content)
            }
            other => panic!("resources have no fields of wire type {other}"),
        };
        all.push(Field {
            number: (tag >> 3) as i32,
            bytes: &start[..start.len() - bytes.len()],
            content,
        });
    }
    all
}

/// A field with content.
fn delimited(number: i32, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::encode_varint((number as u64) << 3 | 2, &mut bytes);
    prost::encoding::encode_varint(content.len() as u64, &mut bytes);
    bytes.extend(content);
    bytes
}

/// A field that no version has.
fn unknown() -> Vec<u8> {
    delimited(15_000, b"newer")
}

/// Concatenates fields, with one of them replaced.
fn replace(fields: &[Field], at: usize, new: &[u8]) -> Vec<u8> {
    let parts = fields.iter().enumerate();
    let parts = parts.map(|(number, field)| if number == at { new } else { field.bytes });
    parts.collect::<Vec<_>>().concat()
}

/// The message with an unknown field in each message within.
fn with_unknown_fields(schema: &Schema, name: &str, bytes: &[u8]) -> Vec<u8> {
    let descriptor = schema.message(name);
    let mut out = unknown();
    for field in fields(bytes) {
        let known = descriptor
            .field
            .iter()
            .find(|known| known.number() == field.number);
        match (known, field.content) {
            (Some(known), Some(content)) if known.r#type() == Type::Message => {
                let content = with_unknown_fields(schema, known.type_name(), content);
                out.extend(delimited(field.number, &content));
            }
            _ => out.extend(field.bytes),
        }
    }
    out
}

/// Returns true if a field is a case of a declared `oneof`.
fn is_case(field: &FieldDescriptorProto) -> bool {
    field.oneof_index.is_some() && !field.proto3_optional()
}

/// All messages that differ in one value that a newer version has set: a case of a `oneof`, or a value of an enum. Each comes with its path.
fn newer(schema: &Schema, name: &str, bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let descriptor = schema.message(name);
    let fields = fields(bytes);
    let mut all = Vec::new();
    for (at, field) in fields.iter().enumerate() {
        let known = descriptor
            .field
            .iter()
            .find(|known| known.number() == field.number);
        let known = known.unwrap_or_else(|| panic!("{name} has field {}", field.number));
        let path = format!("{}.{}", descriptor.name(), known.name());
        if is_case(known) {
            all.push((path.clone(), replace(&fields, at, &unknown())));
        }
        match (known.r#type(), field.content) {
            (Type::Message, Some(content)) => {
                for (inner, content) in newer(schema, known.type_name(), content) {
                    let new = delimited(field.number, &content);
                    all.push((format!("{path}/{inner}"), replace(&fields, at, &new)));
                }
            }
            (Type::Enum, None) => {
                let mut new = Vec::new();
                prost::encoding::encode_varint((field.number as u64) << 3, &mut new);
                prost::encoding::encode_varint(99, &mut new);
                all.push((path, replace(&fields, at, &new)));
            }
            _ => {}
        }
    }
    all
}

fn resources() -> DeltaDiscoveryResponse {
    DeltaDiscoveryResponse::decode(&*encode(&bind())).expect("a response")
}

/// Name of the message in a resource.
fn message_name(resource: &pointsman_wire::xds::discovery::Resource) -> String {
    let url = &resource.resource.as_ref().expect("a value").type_url;
    format!(".{}", url.rsplit('/').next().expect("a name"))
}

/// The configuration has each type of resource, so that the other tests cover it.
#[test]
fn the_configuration_has_every_type() {
    let mut types: Vec<String> = resources().resources.iter().map(message_name).collect();
    types.sort();
    types.dedup();
    assert_eq!(types.len(), 10, "{types:?}");
}

// control.proto: "A receiver ignores resource types and fields that it does not know."
#[test]
fn unknown_fields_are_ignored_in_every_message() {
    let schema = Schema::new();
    let mut response = resources();
    let wanted = decode(&response.encode_to_vec()).expect("a response");
    for resource in &mut response.resources {
        let name = message_name(resource);
        let value = &mut resource.resource.as_mut().expect("a value").value;
        *value = with_unknown_fields(&schema, &name, value);
    }
    let mut bytes = response.encode_to_vec();
    bytes.extend(unknown());
    let decoded = decode(&bytes).expect("a response");
    assert_eq!(decoded.rejected, []);
    assert_eq!(encode(&decoded.delta), encode(&wanted.delta));
}

// resources.proto: "If ignoring it would change which traffic a resource governs or how that traffic is handled, it becomes a new case of a `oneof` instead: a
// receiver that does not know the case sees the `oneof` unset, and fails closed".
#[test]
fn an_unknown_case_or_value_rejects_only_its_resource_or_responds_with_500() {
    let schema = Schema::new();
    let response = resources();
    let wanted = decode(&response.encode_to_vec()).expect("a response");
    let count = pointsman_wire::changes(&wanted.delta).count();
    let mut paths = Vec::new();
    for (at, resource) in response.resources.iter().enumerate() {
        let value = &resource.resource.as_ref().expect("a value").value;
        for (path, value) in newer(&schema, &message_name(resource), value) {
            let mut response = response.clone();
            let any = response.resources[at].resource.as_mut().expect("a value");
            any.value = value;
            let decoded = decode(&response.encode_to_vec()).expect("a response");
            let rejected: Vec<&str> = decoded.rejected.iter().map(|one| &*one.name).collect();
            let changes: Vec<_> = pointsman_wire::changes(&decoded.delta).collect();
            match rejected[..] {
                [] => {
                    let (_, changed) = changes
                        .iter()
                        .find(|(id, _)| id.to_string() == resource.name)
                        .expect("it is not rejected");
                    let text = format!("{changed:?}");
                    let answers_500 = text.contains("that this version does not know");
                    assert!(answers_500, "{path} of {}: {text}", resource.name);
                    assert_eq!(changes.len(), count, "{path}");
                }
                [name] => {
                    assert_eq!(name, resource.name, "{path}");
                    assert_eq!(changes.len(), count - 1, "{path}");
                }
                _ => panic!("{path} of {}: {rejected:?} are rejected", resource.name),
            }
            paths.push(path);
        }
    }
    paths.sort();
    paths.dedup();
    for wanted in [
        "Rule.filters/Filter.redirect",
        "Rule.matches/Match.path/PathPredicate.regex",
        "Frontend.protocol",
    ] {
        assert!(
            paths.iter().any(|path| path == wanted),
            "{wanted} of {paths:#?}"
        );
    }
}
