//! Changed resources, encoded once for all proxies.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use pointsman_binding::Delta;
use pointsman_resources::ObjectKey;
use prost::Message;
use prost_types::Any;

use super::selector::Root;
use crate::digest::Fingerprint;
use crate::id::ResourceId;
use crate::resource::{Resource, ResourceType, changes};
use crate::xds::discovery;

/// A changed resource.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// Name in xDS.
    pub(super) name: Arc<str>,
    pub(super) kind: ResourceType,
    /// Objects whose rules it contains: a route of the Gateway API, or Kuma policies. Empty for the removal of a Kuma rule.
    pub(super) owners: Vec<ObjectKey>,
    /// `None` for a removal.
    pub(super) update: Option<Update>,
}

/// A new version of a resource.
#[derive(Clone, Debug)]
pub(super) struct Update {
    /// The resource as a `Resource` message of xDS.
    pub(super) message: Bytes,
    pub(super) fingerprint: Fingerprint,
    /// Names of the resources that this one references.
    pub(super) references: Vec<Arc<str>>,
    /// Name of the resource whose subscribers also receive this one.
    pub(super) parent: Option<Arc<str>>,
    pub(super) root: Option<Box<Root>>,
}

/// Encodes the changes of a delta in the order in which they are sent: updates after the resources that they reference, then removals before the resources that
/// they reference.
pub fn encode_all(delta: &Delta) -> Vec<Encoded> {
    let changes = changes(delta);
    let mut all: Vec<Encoded> = changes
        .map(|(id, resource)| encode(&id, resource.as_ref()))
        .collect();
    // A stable sort would need memory for half of them.
    all.sort_unstable_by_key(|encoded| match encoded.update {
        Some(_) => (false, encoded.kind as i8),
        None => (true, -(encoded.kind as i8)),
    });
    all
}

fn encode(id: &ResourceId, resource: Option<&Resource>) -> Encoded {
    let name = id.name();
    let route = match id {
        ResourceId::Route(id) => Some(&id.route),
        ResourceId::Rule(id) => Some(&id.route.route),
        ResourceId::Attachment(id) => Some(&id.route.route),
        _ => None,
    };
    let mut owners: Vec<ObjectKey> = match resource {
        Some(Resource::Rule(_, rule)) => {
            let policies = rule.from.iter().map(|source| &source.policy);
            policies.cloned().collect()
        }
        _ => Vec::new(),
    };
    owners.extend(route.filter(|key| key.kind.is_route()).cloned());
    owners.sort_unstable();
    owners.dedup();
    let update = resource.map(|resource| {
        let value = resource.encode();
        let version = version_of(&value);
        let message = discovery::Resource {
            name: name.clone(),
            version: version.clone(),
            resource: Some(Any {
                type_url: id.resource_type().url().to_owned(),
                value,
            }),
        };
        let references = resource.references();
        Update {
            fingerprint: Fingerprint::new(&name, &version),
            message: message.encode_to_vec().into(),
            references: references.iter().map(|id| id.name().into()).collect(),
            parent: id.parent().map(|parent| parent.name().into()),
            root: Root::of(resource).map(Box::new),
        }
    });
    Encoded {
        name: name.into(),
        kind: id.resource_type(),
        owners,
        update,
    }
}

/// Version of a resource: a hash of its content, the same after a restart of the control plane.
fn version_of(value: &[u8]) -> String {
    let hash = digest(&SHA256, value);
    let hash = hash.as_ref().iter().take(8);
    hash.map(|byte| format!("{byte:02x}")).collect()
}
