//! A one-time list of a cluster's objects, for commands that report on them. It uses the kinds, selectors and parser of the watches.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use pointsman_binding::ServedApi;
use pointsman_resources::read::Document;
use pointsman_resources::{Kind, Name, ObjectKey};
use serde_json::json;

use crate::decode::decode;
use crate::discovery::{self, BUNDLE_VERSION};
use crate::object::RawObject;
use crate::watch::field_selector;

/// Number of concurrent list requests.
const CONCURRENT: usize = 8;

/// Number of objects in one response.
const PAGE: u32 = 500;

/// The objects of a cluster.
#[derive(Default)]
pub struct Listing {
    /// Valid objects.
    pub documents: Vec<Arc<Document>>,
    /// Objects that can't be used, with the reason.
    pub rejected: BTreeMap<ObjectKey, String>,
    /// Kinds that the cluster serves.
    pub served: ServedApi,
    /// Kinds that may not be listed everywhere.
    pub restrictions: Vec<Restriction>,
}

/// A kind that may not be listed in all namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restriction {
    /// Plural name of the kind with its group, as in a Role.
    pub resource: String,
    /// The only namespace whose objects are known; `None` if none are known.
    pub namespace: Option<String>,
}

impl fmt::Display for Restriction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resource = &self.resource;
        match &self.namespace {
            Some(namespace) => write!(
                f,
                "{resource} may be listed in namespace {namespace} only: references to those of other namespaces are reported as unresolved"
            ),
            None => write!(
                f,
                "{resource} may not be listed: references to them are reported as unresolved"
            ),
        }
    }
}

/// The installation for which the cluster is evaluated.
#[derive(Clone, Copy, Debug)]
pub struct Installation<'i> {
    /// Controller name.
    pub controller: &'i str,
    /// Name of its GatewayClass, which is assumed to exist if GatewayClasses may not be listed.
    pub class: &'i str,
}

/// Lists all kinds in use. Those that may not be listed in all namespaces are listed in one.
pub async fn list(
    client: &Client,
    namespace: &str,
    installation: Installation<'_>,
) -> kube::Result<Listing> {
    let resources = discovery::discover(client).await?;
    let lists = resources.into_iter().map(|(kind, resource)| async move {
        let list = list_kind(client, kind, &resource.api, namespace).await?;
        Ok::<_, kube::Error>((kind, resource.api, list))
    });
    let mut lists = stream::iter(lists).buffered(CONCURRENT);
    let mut listing = Listing::default();
    let mut missing: Vec<Kind> = Kind::ALL.into_iter().collect();
    while let Some((kind, api, list)) = lists.try_next().await? {
        missing.retain(|other| *other != kind);
        let objects = match list {
            KindList::Everywhere(objects) => objects,
            KindList::Namespace(objects) => {
                listing.restrict(&api, Some(namespace));
                objects
            }
            KindList::Forbidden => {
                listing.restrict(&api, None);
                if kind == Kind::GatewayClass {
                    listing.documents.extend(assumed_class(installation));
                }
                Vec::new()
            }
        };
        for object in &objects {
            listing.read(kind, &api.version, object);
        }
    }
    listing.served = ServedApi {
        missing: missing.into_iter().collect(),
        bundle_version: bundle_version(client).await.map(Into::into),
    };
    Ok(listing)
}

/// Returns the GatewayClass of an installation, for input that lacks it.
pub fn assumed_class(installation: Installation<'_>) -> Option<Arc<Document>> {
    let Installation { controller, class } = installation;
    let class = json!({"metadata": {"name": class}, "spec": {"controllerName": controller}});
    decode(Kind::GatewayClass, "v1", &class.to_string())
        .map(Arc::new)
        .ok()
}

impl Listing {
    fn restrict(&mut self, api: &ApiResource, namespace: Option<&str>) {
        let resource = match api.group.is_empty() {
            true => api.plural.clone(),
            false => format!("{}.{}", api.plural, api.group),
        };
        self.restrictions.push(Restriction {
            resource,
            namespace: namespace.map(str::to_owned),
        });
    }

    fn read(&mut self, kind: Kind, version: &str, object: &RawObject) {
        match decode(kind, version, object.json()) {
            Ok(document) => self.documents.push(Arc::new(document)),
            Err(invalid) => {
                let namespace = object.namespace().unwrap_or_default();
                let name = Name::new(namespace, object.name_any());
                let key = ObjectKey { kind, name };
                self.rejected.insert(key, invalid.to_string());
            }
        }
    }
}

/// Objects of a kind that the user may list.
enum KindList {
    Everywhere(Vec<RawObject>),
    Namespace(Vec<RawObject>),
    Forbidden,
}

async fn list_kind(
    client: &Client,
    kind: Kind,
    resource: &ApiResource,
    namespace: &str,
) -> kube::Result<KindList> {
    let everywhere = Api::all_with(client.clone(), resource);
    if let Some(objects) = permitted(list_pages(kind, &everywhere).await)? {
        return Ok(KindList::Everywhere(objects));
    }
    if kind.is_cluster_scoped() {
        return Ok(KindList::Forbidden);
    }
    let one = Api::namespaced_with(client.clone(), namespace, resource);
    let objects = permitted(list_pages(kind, &one).await)?;
    Ok(objects.map_or(KindList::Forbidden, KindList::Namespace))
}

/// Returns `None` if a request was forbidden.
fn permitted<T>(result: kube::Result<T>) -> kube::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
        Err(error) => Err(error),
    }
}

async fn list_pages(kind: Kind, api: &Api<RawObject>) -> kube::Result<Vec<RawObject>> {
    let mut parameters = ListParams::default().limit(PAGE);
    if let Some(selector) = field_selector(kind) {
        parameters = parameters.fields(selector);
    }
    let mut objects = Vec::new();
    loop {
        let page = api.list(&parameters).await?;
        objects.extend(page.items);
        match page.metadata.continue_ {
            Some(token) if !token.is_empty() => parameters.continue_token = Some(token),
            _ => return Ok(objects),
        }
    }
}

/// Returns the release of the Gateway API's CustomResourceDefinitions, if they may be read.
async fn bundle_version(client: &Client) -> Option<String> {
    let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions: Api<DynamicObject> =
        Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
    let gateways = "gateways.gateway.networking.k8s.io";
    let definition = definitions.get_metadata(gateways).await.ok()?;
    definition.annotations().get(BUNDLE_VERSION).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restriction_names_the_resource_as_a_role_does_and_its_consequence() {
        let mut listing = Listing::default();
        let gvk = GroupVersionKind::gvk("gateway.networking.k8s.io", "v1", "Gateway");
        let gateways = ApiResource::from_gvk_with_plural(&gvk, "gateways");
        listing.restrict(&gateways, Some("shop"));
        let gvk = GroupVersionKind::gvk("", "v1", "Secret");
        listing.restrict(&ApiResource::from_gvk_with_plural(&gvk, "secrets"), None);
        let texts: Vec<String> = listing
            .restrictions
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            texts,
            [
                "gateways.gateway.networking.k8s.io may be listed in namespace shop only: references to those of other namespaces are reported as unresolved",
                "secrets may not be listed: references to them are reported as unresolved",
            ]
        );
    }
}
