//! Authorization by ServiceAccount. Each Gateway has its own account, whose proxies receive only the configuration of this Gateway. Other controllers have the
//! account of this one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pointsman_control::Snapshots;
use pointsman_kube::gateways::GatewayAccounts;
use pointsman_kube::identity::tokens::{Reviewer, ServiceAccount, TokenError};
use pointsman_resources::Name;
use pointsman_wire::server::{
    Authorize, AuthorizeController, CredentialValidity, Grant, Peer, PermissionCheck, ProxyName,
    Refusal, Selector, Subscription, Token, Verify,
};
use tokio::time::Instant;

/// Authorizes proxies by the ServiceAccount tokens that they present.
pub fn authorize(reviewer: Arc<Reviewer>, snapshots: Arc<Snapshots>) -> Authorize {
    let gateways = Arc::new(GatewayAccounts::new(snapshots));
    Arc::new(move |peer| {
        let (reviewer, gateways) = (reviewer.clone(), gateways.clone());
        Box::pin(async move { decide(&peer, &reviewer, gateways).await })
    })
}

async fn decide(
    peer: &Peer,
    reviewer: &Arc<Reviewer>,
    gateways: Arc<GatewayAccounts>,
) -> Result<Grant, Refusal> {
    let token = peer.token.as_ref();
    let token =
        token.ok_or_else(|| Refusal::Unauthenticated("no token was presented".to_owned()))?;
    let account = reviewer.verify(token.secret()).await.map_err(refusal)?;
    let verify = verify_again(reviewer, token);
    grant(account, verify, gateways)
}

fn refusal(error: TokenError) -> Refusal {
    match &error {
        TokenError::Invalid(_) => Refusal::Unauthenticated(error.to_string()),
        TokenError::Unavailable(_) => Refusal::Unavailable(error.to_string()),
    }
}

/// Verifies a token again while a stream is open.
fn verify_again(reviewer: &Arc<Reviewer>, token: &Token) -> Verify {
    let (reviewer, token) = (reviewer.clone(), token.clone());
    Arc::new(move || {
        let (reviewer, token) = (reviewer.clone(), token.clone());
        Box::pin(async move {
            let account = reviewer.verify_again(token.secret()).await;
            account.map(drop).map_err(refusal)
        })
    })
}

/// Accepts controllers that present a token of this controller's own account, which `own` contains.
pub fn authorize_controller(reviewer: Arc<Reviewer>, own: Option<PathBuf>) -> AuthorizeController {
    Arc::new(move |peer| {
        let (reviewer, own) = (reviewer.clone(), own.clone());
        Box::pin(async move { decide_controller(&peer, &reviewer, own.as_deref()).await })
    })
}

async fn decide_controller(
    peer: &Peer,
    reviewer: &Arc<Reviewer>,
    own: Option<&Path>,
) -> Result<CredentialValidity, Refusal> {
    let unavailable = |why: String| Refusal::Unavailable(why);
    let own = own.ok_or_else(|| unavailable("this controller has no token".to_owned()))?;
    let text = std::fs::read_to_string(own);
    let text = text.map_err(|error| unavailable(format!("{}: {error}", own.display())))?;
    let own = reviewer.verify(text.trim()).await;
    let own = own.map_err(|error| unavailable(format!("this controller's own token: {error}")))?;
    let token = peer.token.as_ref();
    let token = token.ok_or_else(|| Refusal::Unauthenticated("it presents no token".to_owned()))?;
    let account = reviewer.verify(token.secret()).await.map_err(refusal)?;
    if (&account.namespace, &account.name) != (&own.namespace, &own.name) {
        let ServiceAccount {
            namespace, name, ..
        } = account;
        let why = format!("ServiceAccount {namespace}/{name} is not that of the controller");
        return Err(Refusal::Forbidden(why));
    }
    Ok(CredentialValidity {
        expires: Some(Instant::from_std(account.expires)),
        verify: Some(verify_again(reviewer, token)),
    })
}

fn grant(
    account: ServiceAccount,
    verify: Verify,
    gateways: Arc<GatewayAccounts>,
) -> Result<Grant, Refusal> {
    let ServiceAccount {
        namespace,
        name,
        pod,
        expires,
    } = account;
    let key = Name::new(&*namespace, &*name);
    Ok(Grant {
        subscription: permitted(&gateways, &key)?,
        identities: vec![format!("system:serviceaccount:{namespace}:{name}")],
        name: match pod {
            Some(pod) => ProxyName::Proven(format!("{namespace}/{pod}")),
            None => ProxyName::Qualified(format!("{namespace}/{name}")),
        },
        validity: CredentialValidity {
            expires: Some(Instant::from_std(expires)),
            verify: Some(verify),
        },
        permission_check: PermissionCheck::new(move || permitted(&gateways, &key)),
    })
}

/// Returns the permitted subscription of an account's proxies.
fn permitted(gateways: &GatewayAccounts, account: &Name) -> Result<Subscription, Refusal> {
    let gateways = gateways.gateways(account);
    if gateways.is_empty() {
        let why = format!("ServiceAccount {account} does not belong to a Gateway");
        return Err(Refusal::Forbidden(why));
    }
    let selectors = gateways
        .iter()
        .map(|gateway| Selector::gateway(&gateway.to_string()));
    let selectors: Result<_, _> = selectors.collect();
    Ok(Subscription::Selected(
        selectors.map_err(Refusal::Forbidden)?,
    ))
}

#[cfg(test)]
mod tests {
    use pointsman_control::{Reconciler, SourceUpdate, clock};
    use pointsman_resources::read::{Document, ManifestReader};
    use pointsman_resources::{Kind, ObjectKey};

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

    struct Cluster {
        reconciler: Reconciler,
        gateways: Arc<GatewayAccounts>,
    }

    fn cluster() -> Cluster {
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
        let gateways = Arc::new(GatewayAccounts::new(snapshots));
        Cluster {
            reconciler,
            gateways,
        }
    }

    fn account(namespace: &str, name: &str, pod: Option<&str>) -> ServiceAccount {
        ServiceAccount {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            pod: pod.map(str::to_owned),
            expires: clock::instant(),
        }
    }

    fn never_revoked() -> Verify {
        Arc::new(|| Box::pin(std::future::ready(Ok(()))))
    }

    #[test]
    fn an_account_may_have_its_own_gateway_and_no_other() {
        let Cluster { gateways, .. } = cluster();
        let own = grant(
            account("shop", "edge-pointsman", Some("edge-1")),
            never_revoked(),
            gateways.clone(),
        );
        let own = own.expect("its Gateway exists");
        assert_eq!(own.subscription.names(), ["gateway/shop/edge"]);
        assert_eq!(own.name, ProxyName::Proven("shop/edge-1".to_owned()));
        assert!(own.validity.expires.is_some());
        for (namespace, name) in [
            ("shop", "default"),
            ("shop", "foreign-elsewhere"),
            ("infra", "edge-pointsman"),
            ("shop", "edge"),
        ] {
            let refused = grant(
                account(namespace, name, None),
                never_revoked(),
                gateways.clone(),
            );
            assert!(
                matches!(refused, Err(Refusal::Forbidden(_))),
                "{namespace}/{name}"
            );
        }
    }

    #[test]
    fn the_permission_of_an_account_ends_with_its_gateway() {
        let Cluster {
            mut reconciler,
            gateways,
        } = cluster();
        let own = grant(
            account("shop", "edge-pointsman", None),
            never_revoked(),
            gateways.clone(),
        );
        let own = own.expect("its Gateway exists");
        let other = grant(
            account("other", "edge-pointsman", None),
            never_revoked(),
            gateways,
        );
        let other = other.expect("its Gateway exists");
        assert_eq!(own.permission_check.permitted(), Ok(own.subscription));
        let deleted = ObjectKey::new(Kind::Gateway, "shop", "edge");
        reconciler.apply_changes(SourceUpdate {
            objects: [(deleted, None)].into_iter().collect(),
            ..SourceUpdate::default()
        });
        assert!(matches!(
            own.permission_check.permitted(),
            Err(Refusal::Forbidden(_))
        ));
        assert_eq!(other.permission_check.permitted(), Ok(other.subscription));
    }
}
