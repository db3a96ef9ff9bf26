//! Ownership of objects. An object that does not belong to the Gateway is never changed, even if it has the name of a generated one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use pointsman_binding::bound::Infrastructure;
use pointsman_resources::meta::GATEWAY_GROUP;

use super::objects::GATEWAY;

/// Relation of an object to a Gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The Gateway owns it.
    Own,
    /// It was generated for a deleted Gateway of the same name, and is about to be removed.
    Stale,
    /// It belongs to another owner, described by the text.
    Foreign(String),
}

/// A Gateway that owns an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayOwner {
    /// Its name, in the namespace of the object.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// Returns the Gateways that own an object.
pub fn owners(metadata: &ObjectMeta) -> Vec<GatewayOwner> {
    let owners = metadata.owner_references.iter().flatten();
    let is_gateway = |owner: &&OwnerReference| {
        let group = owner.api_version.split_once('/').map(|(group, _)| group);
        owner.kind == "Gateway" && group == Some(GATEWAY_GROUP)
    };
    let gateways = owners.filter(is_gateway);
    gateways
        .map(|owner| GatewayOwner {
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        })
        .collect()
}

/// Returns the relation of an object to a Gateway.
pub fn ownership(metadata: &ObjectMeta, gateway: &Infrastructure) -> Ownership {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    if owners
        .iter()
        .any(|owner| Some(&*owner.uid) == gateway.uid.as_deref())
    {
        return Ownership::Own;
    }
    let annotations = metadata.annotations.as_ref();
    let generated_for = annotations.and_then(|annotations| annotations.get(GATEWAY));
    let owner = owners.iter().find(|owner| owner.controller == Some(true));
    match (generated_for, owner) {
        (Some(name), Some(owner)) if **name == *gateway.gateway.name && owner.kind == "Gateway" => {
            Ownership::Stale
        }
        (_, Some(owner)) => Ownership::Foreign(format!("belongs to {} {}", owner.kind, owner.name)),
        (_, None) => Ownership::Foreign("exists and does not belong to this Gateway".to_owned()),
    }
}

/// Returns the name of the Gateway that an object was generated for by the installation with this controller name.
pub fn gateway_of<'m>(metadata: &'m ObjectMeta, controller_name: &str) -> Option<&'m str> {
    let annotations = metadata.annotations.as_ref()?;
    let by = annotations.get(super::objects::CONTROLLER_NAME)?;
    (by == controller_name).then(|| annotations.get(GATEWAY).map(String::as_str))?
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pointsman_resources::Name;
    use serde_json::{Value, json};

    use super::*;

    fn relation(metadata: Value) -> Ownership {
        let gateway = Infrastructure {
            gateway: Name::new("shop", "edge"),
            uid: Some("2".into()),
            class: "pointsman".into(),
            ports: Default::default(),
            labels: Default::default(),
            annotations: Default::default(),
            addresses: Vec::new(),
            parameters: Arc::default(),
        };
        let metadata = serde_json::from_value(metadata).expect("it is metadata");
        ownership(&metadata, &gateway)
    }

    fn owner(kind: &str, uid: &str) -> Value {
        json!([{"apiVersion": "v1", "kind": kind, "name": "edge", "uid": uid, "controller": true}])
    }

    #[test]
    fn only_gateways_count_as_owners() {
        let owners = |reference: Value| {
            let metadata = serde_json::from_value(json!({"ownerReferences": [reference]}));
            super::owners(&metadata.expect("it is metadata")).len()
        };
        let reference = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind, "name": "edge", "uid": "1"});
        assert_eq!(
            owners(reference("gateway.networking.k8s.io/v1", "Gateway")),
            1
        );
        assert_eq!(owners(reference("example.com/v1", "Gateway")), 0);
        assert_eq!(owners(reference("v1", "Service")), 0);
    }

    #[test]
    fn an_object_belongs_to_the_gateway_that_its_owner_reference_identifies() {
        assert_eq!(
            relation(json!({"ownerReferences": owner("Gateway", "2")})),
            Ownership::Own
        );
        let earlier =
            json!({"ownerReferences": owner("Gateway", "1"), "annotations": {GATEWAY: "edge"}});
        assert_eq!(relation(earlier), Ownership::Stale);
        for foreign in [
            json!({}),
            json!({"annotations": {GATEWAY: "edge"}}),
            json!({"ownerReferences": owner("Deployment", "1"), "annotations": {GATEWAY: "edge"}}),
            json!({"ownerReferences": owner("Gateway", "1"), "annotations": {GATEWAY: "other"}}),
        ] {
            assert!(
                matches!(relation(foreign.clone()), Ownership::Foreign(_)),
                "{foreign}"
            );
        }
    }
}
