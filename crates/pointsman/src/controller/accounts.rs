//! Authorization of proxies by ServiceAccount: each Gateway has an account of its own, whose proxies receive what belongs to this Gateway and nothing else.

use std::sync::Arc;

use pointsman_control::{Snapshot, Snapshots};
use pointsman_kube::gateways::object_name;
use pointsman_kube::identity::tokens::{Account, Reviewer, TokenError};
use pointsman_resources::{Name, Resource};
use pointsman_wire::server::{Authorize, Grant, Peer, ProxyName, Refusal, Selector, Subscription};
use tokio::time::Instant;

/// Authorizes proxies by the ServiceAccount tokens that they present.
pub fn authorize(reviewer: Arc<Reviewer>, snapshots: Arc<Snapshots>) -> Authorize {
    Arc::new(move |peer| {
        let (reviewer, snapshots) = (reviewer.clone(), snapshots.clone());
        Box::pin(async move { decide(&peer, &reviewer, &snapshots).await })
    })
}

async fn decide(peer: &Peer, reviewer: &Reviewer, snapshots: &Snapshots) -> Result<Grant, Refusal> {
    let token = peer.token.as_ref();
    let token = token.ok_or_else(|| Refusal::Unauthenticated("it presents no token".to_owned()))?;
    let account = reviewer.verify(token.secret()).await;
    let account = account.map_err(|error| match &error {
        TokenError::Invalid(_) => Refusal::Unauthenticated(error.to_string()),
        TokenError::Unavailable(_) => Refusal::Unavailable(error.to_string()),
    })?;
    grant(&account, &snapshots.latest())
}

fn grant(account: &Account, snapshot: &Snapshot) -> Result<Grant, Refusal> {
    let Account {
        namespace, name, ..
    } = account;
    let gateways = gateways(account, snapshot);
    if gateways.is_empty() {
        let why = format!("ServiceAccount {namespace}/{name} is that of no Gateway");
        return Err(Refusal::Forbidden(why));
    }
    let selectors = gateways
        .iter()
        .map(|gateway| Selector::gateway(&gateway.to_string()));
    let selectors: Result<_, _> = selectors.collect();
    Ok(Grant {
        subscription: Subscription::Selected(selectors.map_err(Refusal::Forbidden)?),
        identities: vec![format!("system:serviceaccount:{namespace}:{name}")],
        name: match &account.pod {
            Some(pod) => ProxyName::Proven(format!("{namespace}/{pod}")),
            None => ProxyName::Within(format!("{namespace}/{name}")),
        },
        expires: Some(Instant::from_std(account.expires)),
    })
}

/// Gateways that an account belongs to. Its name is that of the objects which are generated for a Gateway, so hardly ever more than one.
fn gateways(account: &Account, snapshot: &Snapshot) -> Vec<Name> {
    let entries = snapshot.entries.values();
    // Gateways of other controllers have no status here.
    let managed = entries.filter(|entry| entry.status.is_some());
    let gateways = managed.filter_map(|entry| match &entry.document.resource {
        Resource::Gateway(gateway) => Some(gateway),
        _ => None,
    });
    let named = gateways.filter_map(|gateway| {
        let name = gateway.metadata.key();
        let is_own = *name.namespace == *account.namespace
            && object_name(&name, &gateway.spec.gateway_class_name) == account.name;
        is_own.then_some(name)
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use pointsman_control::{Reconciler, SourceUpdate, clock};
    use pointsman_resources::read::{Document, ManifestReader};

    use super::*;

    const MANIFESTS: &str = "
{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: pointsman}, spec: {controllerName: pointsman.io/controller}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: edge, namespace: shop}, spec: {gatewayClassName: pointsman, listeners: [{name: http, port: 80, protocol: HTTP}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: edge, namespace: other}, spec: {gatewayClassName: pointsman, listeners: [{name: http, port: 80, protocol: HTTP}]}}
---
{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: foreign, namespace: shop}, spec: {gatewayClassName: elsewhere, listeners: [{name: http, port: 80, protocol: HTTP}]}}
";

    fn snapshot() -> Arc<Snapshot> {
        let snapshots: Arc<Snapshots> = Arc::default();
        let mut reader = ManifestReader::new();
        reader.read("m.yaml", MANIFESTS.as_bytes());
        let documents = reader.finish().documents.into_iter().map(Arc::new);
        let objects =
            documents.map(|document: Arc<Document>| (document.resource.key(), Some(document)));
        let mut reconciler = Reconciler::new(Vec::new(), snapshots.clone());
        reconciler.apply_changes(SourceUpdate {
            objects: objects.collect(),
            ..SourceUpdate::default()
        });
        snapshots.latest()
    }

    fn account(namespace: &str, name: &str, pod: Option<&str>) -> Account {
        Account {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            pod: pod.map(str::to_owned),
            expires: clock::instant(),
        }
    }

    #[test]
    fn an_account_may_have_its_own_gateway_and_no_other() {
        let snapshot = snapshot();
        let own = grant(
            &account("shop", "edge-pointsman", Some("edge-1")),
            &snapshot,
        );
        let own = own.expect("its Gateway exists");
        assert_eq!(own.subscription.names(), ["gateway/shop/edge"]);
        assert_eq!(own.name, ProxyName::Proven("shop/edge-1".to_owned()));
        assert!(own.expires.is_some());
        for (namespace, name) in [
            ("shop", "default"),
            ("shop", "foreign-elsewhere"),
            ("infra", "edge-pointsman"),
            ("shop", "edge"),
        ] {
            let refused = grant(&account(namespace, name, None), &snapshot);
            assert!(
                matches!(refused, Err(Refusal::Forbidden(_))),
                "{namespace}/{name}"
            );
        }
    }
}
