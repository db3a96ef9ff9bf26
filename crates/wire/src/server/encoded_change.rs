//! Changed resources, encoded once for all proxies.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use pointsman_binding::Delta;
use pointsman_resources::ObjectKey;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

use super::selector::SubscriptionRoot;
use crate::digest::Fingerprint;
use crate::id::ResourceId;
use crate::resource::{Resource, ResourceType, changes};

/// A changed resource.
#[derive(Clone, Debug)]
pub struct EncodedChange {
    /// Name in xDS.
    pub(super) name: Arc<str>,
    pub(super) kind: ResourceType,
    /// Objects whose rules it contains: a route of the Gateway API, or Kuma policies. Empty for the removal of a Kuma rule.
    pub(super) routes: Vec<ObjectKey>,
    /// `None` for a removal.
    pub(super) update: Option<EncodedUpdate>,
}

/// A new version of a resource.
#[derive(Clone, Debug)]
pub(super) struct EncodedUpdate {
    pub(super) payload: Payload,
    pub(super) fingerprint: Fingerprint,
    /// Names of the resources that this one references.
    pub(super) references: Vec<Arc<str>>,
    /// Name of the resource whose subscribers also receive this one.
    pub(super) parent: Option<Arc<str>>,
    pub(super) root: Option<Box<SubscriptionRoot>>,
}

/// The content of a resource. Its name and type are not repeated, and make up almost half of the message that is sent.
#[derive(Clone, Debug)]
pub(super) struct Payload {
    /// Hash of the content, the same after a restart of the control plane.
    pub version: u64,
    /// The encoded content.
    pub value: Box<[u8]>,
}

impl Payload {
    fn new(value: Vec<u8>) -> Self {
        let hash = digest(&SHA256, &value);
        let hash = hash.as_ref().first_chunk().copied().unwrap_or_default();
        Payload {
            version: u64::from_be_bytes(hash),
            value: value.into(),
        }
    }

    /// Returns the version in xDS.
    pub fn version_text(&self) -> String {
        format!("{:016x}", self.version)
    }

    /// Returns the resource as a `Resource` message of xDS.
    pub fn message(&self, name: &str, kind: ResourceType) -> Bytes {
        let any = [kind.url().as_bytes(), &self.value];
        let any_length: usize = any.iter().map(|part| field_length(part.len())).sum();
        let version = self.version_text();
        let length = [version.len(), any_length, name.len()].map(field_length);
        let mut message = Vec::with_capacity(length.iter().sum());
        put_header(&mut message, 1, version.len());
        message.extend_from_slice(version.as_bytes());
        put_header(&mut message, 2, any_length);
        for (part, field) in any.into_iter().zip(1..) {
            put_header(&mut message, field, part.len());
            message.extend_from_slice(part);
        }
        put_header(&mut message, 3, name.len());
        message.extend_from_slice(name.as_bytes());
        message.into()
    }
}

/// Returns the length of a length-delimited field of protobuf, whose number is below 16.
fn field_length(content: usize) -> usize {
    1 + encoded_len_varint(content as u64) + content
}

/// Appends the tag and length of a length-delimited field.
fn put_header(message: &mut Vec<u8>, field: u32, length: usize) {
    encode_key(field, WireType::LengthDelimited, message);
    encode_varint(length as u64, message);
}

/// Encodes the changes of a delta in the order in which they are sent: updates after the resources that they reference, then removals before the resources that
/// they reference.
pub fn encode_all(delta: &Delta) -> Vec<EncodedChange> {
    let changes = changes(delta);
    let mut all: Vec<EncodedChange> = changes
        .map(|(id, resource)| encode(&id, resource.as_ref()))
        .collect();
    // A stable sort would need memory for half of them.
    all.sort_unstable_by_key(|encoded| match encoded.update {
        Some(_) => (false, encoded.kind as i8),
        None => (true, -(encoded.kind as i8)),
    });
    all
}

fn encode(id: &ResourceId, resource: Option<&Resource>) -> EncodedChange {
    let name = id.name();
    let route = match id {
        ResourceId::Route(id) => Some(&id.route),
        ResourceId::Rule(id) => Some(&id.route.route),
        ResourceId::Attachment(id) => Some(&id.route.route),
        _ => None,
    };
    let mut routes: Vec<ObjectKey> = match resource {
        Some(Resource::Rule(_, rule)) => {
            let policies = rule.from.iter().map(|source| &source.policy);
            policies.cloned().collect()
        }
        _ => Vec::new(),
    };
    routes.extend(route.filter(|key| key.kind.is_route()).cloned());
    routes.sort_unstable();
    routes.dedup();
    let update = resource.map(|resource| {
        let payload = Payload::new(resource.encode());
        let references = resource.references();
        EncodedUpdate {
            fingerprint: Fingerprint::new(&name, &payload.version_text()),
            payload,
            references: references.iter().map(|id| id.name().into()).collect(),
            parent: id.parent().map(|parent| parent.name().into()),
            root: SubscriptionRoot::of(resource).map(Box::new),
        }
    });
    EncodedChange {
        name: name.into(),
        kind: id.resource_type(),
        routes,
        update,
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use prost_types::Any;

    use super::*;
    use crate::xds::discovery;

    #[test]
    fn a_message_has_name_version_and_content() {
        for length in [0, 1, 127, 128, 70_000] {
            let payload = Payload::new(vec![7; length]);
            let name = "r".repeat(length);
            let message = payload.message(&name, ResourceType::Rule);
            let expected = discovery::Resource {
                name,
                version: payload.version_text(),
                resource: Some(Any {
                    type_url: ResourceType::Rule.url().to_owned(),
                    value: vec![7; length],
                }),
            };
            assert_eq!(discovery::Resource::decode(&*message), Ok(expected));
        }
    }
}
