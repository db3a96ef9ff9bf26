//! Changes of the bound form as xDS responses.

use std::fmt;

use pointsman_binding::Delta;
use prost::Message;
use prost_types::Any;

use crate::error::DecodeError;
use crate::id::ResourceId;
use crate::resource::{Resource, ResourceType, changes};
use crate::xds::discovery::{self, DeltaDiscoveryResponse};

/// Decoded changes, and resources that could not be decoded.
#[derive(Debug, Default)]
pub struct DecodedDelta {
    /// Changes that can be applied.
    pub delta: Delta,
    /// Resources that could not be decoded. They never affect the others.
    pub rejected: Vec<Rejection>,
}

/// A resource that could not be decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejection {
    /// Name of the resource.
    pub name: String,
    /// Reason.
    pub error: DecodeError,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.error)
    }
}

/// Encodes the changes of a delta, except for statuses.
pub fn encode(delta: &Delta) -> Vec<u8> {
    let mut message = DeltaDiscoveryResponse::default();
    for (id, value) in changes(delta) {
        match value {
            Some(resource) => message.resources.push(discovery::Resource {
                name: id.name(),
                version: String::new(),
                resource: Some(Any {
                    type_url: id.resource_type().url().to_owned(),
                    value: resource.encode(),
                }),
            }),
            None => message.removed_resources.push(id.name()),
        }
    }
    message.encode_to_vec()
}

/// Decodes changes. Types of resources that this version does not know are ignored; other resources that can't be decoded are reported. Fails only if the
/// bytes are not a message at all.
pub fn decode(bytes: &[u8]) -> Result<DecodedDelta, prost::DecodeError> {
    let message = DeltaDiscoveryResponse::decode(bytes)?;
    let mut decoded = DecodedDelta::default();
    for resource in message.resources {
        match decode_resource(&resource) {
            None => {}
            Some(Ok(resource)) => resource.record(&mut decoded.delta),
            Some(Err(error)) => decoded.rejected.push(Rejection {
                name: resource.name,
                error,
            }),
        }
    }
    for name in message.removed_resources {
        // If this version does not know the name, it has ignored or rejected the resource before.
        if let Ok(id) = name.parse::<ResourceId>() {
            id.record_removal(&mut decoded.delta);
        }
    }
    Ok(decoded)
}

/// Decodes a resource; `None` if this version does not know its type.
pub(crate) fn decode_resource(
    resource: &discovery::Resource,
) -> Option<Result<Resource, DecodeError>> {
    let any = resource.resource.as_ref();
    let type_url = any.map_or("", |any| any.type_url.as_str());
    let wanted = match any {
        Some(_) => ResourceType::find(type_url)?,
        None => return Some(Err(DecodeError::Unset("Resource.resource"))),
    };
    let decode = || {
        let id: ResourceId = resource.name.parse()?;
        if id.resource_type() != wanted {
            let expected = "a name that fits the type URL";
            return Err(DecodeError::invalid("name", &resource.name, expected));
        }
        let bytes = any.map_or(&[][..], |any| &any.value);
        Resource::decode(id, bytes)
    };
    Some(decode())
}
