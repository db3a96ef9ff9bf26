//! Objects as a watch delivers them: JSON text, of which only name and version are parsed.
//!
//! Deserialization never fails, whatever the fields contain, so no object can stall the watch of its kind.

use std::borrow::Cow;
use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::core::{ApiResource, DynamicResourceScope};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Annotation of EndpointSlices with the time of the change that they follow.
const LAST_CHANGE: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// An object of any kind, not yet parsed.
#[derive(Clone, Debug)]
pub struct RawObject {
    /// Identity and version of the object; other metadata is not parsed.
    metadata: ObjectMeta,
    json: Box<RawValue>,
}

impl RawObject {
    /// Returns the time of the change of a Pod or Service that an EndpointSlice follows, which the EndpointSlice controller records.
    pub fn endpoints_changed_at(&self) -> Option<Timestamp> {
        #[derive(Deserialize)]
        struct ObjectHead<'j> {
            #[serde(borrow)]
            metadata: Metadata<'j>,
        }
        #[derive(Deserialize)]
        struct Metadata<'j> {
            #[serde(borrow)]
            annotations: HashMap<Cow<'j, str>, Cow<'j, str>>,
        }
        let head: ObjectHead<'_> = serde_json::from_str(self.json()).ok()?;
        head.metadata.annotations.get(LAST_CHANGE)?.parse().ok()
    }

    /// Returns the whole object.
    pub fn json(&self) -> &str {
        self.json.get()
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        struct ObjectHead {
            metadata: Metadata,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            name: Option<String>,
            namespace: Option<String>,
            resource_version: Option<String>,
            uid: Option<String>,
        }
        let json = Box::<RawValue>::deserialize(d)?;
        let ObjectHead { metadata } = serde_json::from_str(json.get()).unwrap_or_default();
        let metadata = ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            resource_version: metadata.resource_version,
            uid: metadata.uid,
            ..ObjectMeta::default()
        };
        Ok(RawObject { metadata, json })
    }
}

impl kube::Resource for RawObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        (&*resource.kind).into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        (&*resource.group).into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        (&*resource.version).into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        (&*resource.plural).into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use kube::core::{ObjectList, WatchEvent};

    use super::*;

    const ODD: &str =
        r#"{"metadata": {"name": "r", "namespace": "shop", "resourceVersion": "7"}, "spec": 5}"#;

    #[test]
    fn the_time_of_the_last_change_of_endpoints_is_read() {
        let slice = |annotations: &str| -> RawObject {
            let json = format!(r#"{{"metadata": {{"name": "s", {annotations} "labels": {{}}}}}}"#);
            serde_json::from_str(&json).expect("it is JSON")
        };
        let annotation = |time: &str| {
            slice(&format!(
                r#""annotations": {{"endpoints.kubernetes.io/last-change-trigger-time": "{time}"}},"#
            ))
        };
        let found = annotation("2026-01-02T03:04:05.25Z").endpoints_changed_at();
        assert_eq!(
            found.map(|time| time.as_microsecond()),
            Some(1_767_323_045_250_000)
        );
        assert_eq!(annotation("lately").endpoints_changed_at(), None);
        assert_eq!(slice("").endpoints_changed_at(), None);
    }

    #[test]
    fn an_object_is_taken_from_an_event_and_from_a_list_as_it_is() {
        let event = format!(r#"{{"type": "ADDED", "object": {ODD}}}"#);
        let WatchEvent::Added(object) =
            serde_json::from_str::<WatchEvent<RawObject>>(&event).expect("whatever the spec holds")
        else {
            panic!("it was added");
        };
        assert_eq!(object.json(), ODD);
        assert_eq!(object.metadata.resource_version.as_deref(), Some("7"));
        let list = format!(
            r#"{{"kind": "HTTPRouteList", "apiVersion": "gateway.networking.k8s.io/v1", "metadata": {{"resourceVersion": "9"}}, "items": [{ODD}, 5]}}"#
        );
        let list: ObjectList<RawObject> = serde_json::from_str(&list).expect("whatever they hold");
        assert_eq!(list.items[0].json(), ODD);
        assert_eq!(list.items[1].metadata.name, None);
    }
}
