//! Identity and permissions of proxies.
//!
//! A proxy proves its identity by a certificate (mutual TLS) or by a bearer token in the metadata of each stream. An [`Authorize`] function turns either into a
//! [`Grant`], or refuses the stream. A refused proxy gets no configuration at all, not even an empty one, so its last configuration stays in effect.

use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use tokio::time::Instant;
use tonic::Status;

use super::selector::Subscription;
use crate::jitter::jittered;

/// The other side of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Address that it connects from.
    pub address: SocketAddr,
    /// Names in its certificate; `None` without one.
    pub identities: Option<Arc<[String]>>,
    /// Time at which its certificate expires; `None` without one.
    pub certificate_expires: Option<Instant>,
    /// Token that it presents.
    pub token: Option<Token>,
}

/// A bearer token. It is a credential, so it is never printed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Token(Arc<str>);

impl Token {
    /// Reads the token of a request.
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = value.split_once(' ')?;
        let is_bearer = scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty();
        is_bearer.then(|| Token(token.trim().into()))
    }

    /// Returns the token itself. It must not be printed.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Permission of a proxy.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Permitted subscription.
    pub subscription: Subscription,
    /// Proven names, for display.
    pub identities: Vec<String>,
    /// Name of the proxy, as far as it is proven.
    pub name: ProxyName,
    /// Validity of its credential.
    pub validity: CredentialValidity,
    /// Rechecks the permission while the stream is open.
    pub permission_check: PermissionCheck,
}

/// Validity of a credential. Streams end with it.
#[derive(Clone, Default)]
pub struct CredentialValidity {
    /// Time at which the credential expires. The peer has to present another one then.
    pub expires: Option<Instant>,
    /// Verifies the credential again while the stream is open; it may have been revoked.
    pub verify: Option<Verify>,
}

/// Verifies a credential. It may take a request to another server, so it is called about once a minute for each stream.
pub type Verify = Arc<dyn Fn() -> Verification + Send + Sync>;

/// Result of a [`Verify`].
pub type Verification = Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send>>;

/// Longest time between two verifications. The shortest is three quarters of it, so that those of many streams spread.
const VERIFY_INTERVAL: Duration = Duration::from_secs(60);

impl CredentialValidity {
    /// Waits until the credential has expired or was revoked. While it can't be verified, it stays valid.
    pub(super) async fn ended(&self) -> Status {
        let expired = async {
            match self.expires {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let revoked = async {
            let Some(verify) = &self.verify else {
                return std::future::pending().await;
            };
            loop {
                tokio::time::sleep(jittered(VERIFY_INTERVAL, VERIFY_INTERVAL / 4)).await;
                match verify().await {
                    Ok(()) | Err(Refusal::Unavailable(_)) => {}
                    Err(refusal) => return refusal,
                }
            }
        };
        tokio::select! {
            () = expired => {
                Status::unauthenticated("the credential has expired: connect again with a new one")
            }
            refusal = revoked => refusal.into(),
        }
    }
}

impl fmt::Debug for CredentialValidity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialValidity")
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

/// Evaluates the permission of a proven identity again. It is called every few seconds for each stream and therefore must not make requests to other servers.
#[derive(Clone)]
pub struct PermissionCheck(Arc<dyn Fn() -> Result<Subscription, Refusal> + Send + Sync>);

impl PermissionCheck {
    /// Creates a check that returns the subscription that is permitted at the time of the call.
    pub fn new(
        permitted: impl Fn() -> Result<Subscription, Refusal> + Send + Sync + 'static,
    ) -> Self {
        PermissionCheck(Arc::new(permitted))
    }

    /// Returns the currently permitted subscription.
    pub fn permitted(&self) -> Result<Subscription, Refusal> {
        (self.0)()
    }
}

impl fmt::Debug for PermissionCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PermissionCheck(..)")
    }
}

/// Name of a proxy, and the part of it that the credential proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyName {
    /// The name that the proxy gives itself.
    Claimed,
    /// The name that its credential contains.
    Proven(String),
    /// The name that the proxy gives itself, qualified by the account that its credential contains.
    Qualified(String),
}

impl ProxyName {
    /// Returns the name of a proxy that calls itself `claimed`.
    pub fn resolve(&self, claimed: &str) -> String {
        match self {
            ProxyName::Claimed => claimed.to_owned(),
            ProxyName::Proven(name) => name.clone(),
            ProxyName::Qualified(account) => format!("{account}:{claimed}"),
        }
    }

    /// Returns the key under which the reports of a proxy are kept. It contains what the credential proves, so that no proxy can replace the reports of another one.
    pub fn key(&self, claimed: &str, identities: &[String]) -> String {
        match self {
            ProxyName::Claimed if !identities.is_empty() => {
                format!("{} {claimed}", identities.join(","))
            }
            _ => self.resolve(claimed),
        }
    }
}

/// A refused stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The credential is missing or invalid. A retry needs a new credential.
    #[error("{0}")]
    Unauthenticated(String),
    /// The identity is proven but has no permissions.
    #[error("{0}")]
    Forbidden(String),
    /// The credential could not be verified.
    #[error("{0}")]
    Unavailable(String),
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Unauthenticated(reason) => Status::unauthenticated(reason),
            Refusal::Forbidden(reason) => Status::permission_denied(reason),
            Refusal::Unavailable(reason) => Status::unavailable(reason),
        }
    }
}

/// Authorization of a proxy, which may require a request to another server.
pub type AuthorizationFuture = Pin<Box<dyn Future<Output = Result<Grant, Refusal>> + Send>>;

/// Decides whether a peer is another controller of the same cluster.
pub type AuthorizeController = Arc<dyn Fn(Peer) -> ControllerAuthorizationFuture + Send + Sync>;

/// Authorization of a controller, which may require a request to another server.
pub type ControllerAuthorizationFuture =
    Pin<Box<dyn Future<Output = Result<CredentialValidity, Refusal>> + Send>>;

/// Decides what a proxy may subscribe to.
pub type Authorize = Arc<dyn Fn(Peer) -> AuthorizationFuture + Send + Sync>;

/// Authorizes proxies by their certificates.
pub fn authorize_by_certificate(
    allowed: impl Fn(&Peer) -> Subscription + Send + Sync + 'static,
) -> Authorize {
    let allowed = Arc::new(allowed);
    Arc::new(move |peer| {
        let allowed = allowed.clone();
        let grant = Grant {
            subscription: allowed(&peer),
            identities: peer.identities.as_deref().unwrap_or_default().to_vec(),
            name: ProxyName::Claimed,
            validity: CredentialValidity {
                expires: peer.certificate_expires,
                verify: None,
            },
            permission_check: PermissionCheck::new(move || Ok(allowed(&peer))),
        };
        Box::pin(std::future::ready(Ok(grant)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_from_the_authorization_header_and_never_printed() {
        let token = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().expect("a value"));
            Token::from_headers(&headers)
        };
        for good in ["Bearer abc", "bearer abc", "BEARER  abc "] {
            let token = token(good).unwrap_or_else(|| panic!("{good}"));
            assert_eq!(token.secret(), "abc");
            assert!(!format!("{token:?}").contains("abc"));
        }
        for bad in ["abc", "Basic abc", "Bearer", "Bearer  "] {
            assert_eq!(token(bad), None, "{bad}");
        }
        assert_eq!(Token::from_headers(&HeaderMap::new()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_is_a_credential_until_it_expires() {
        let authorize = authorize_by_certificate(|_| Subscription::Everything);
        let peer = Peer {
            address: ([127, 0, 0, 1], 1).into(),
            identities: Some(["edge-1.example".to_owned()].into()),
            certificate_expires: Some(Instant::now() + Duration::from_secs(60)),
            token: None,
        };
        let grant = authorize(peer).await.expect("it is permitted");
        let ended = grant.validity.ended();
        let ended = tokio::time::timeout(Duration::from_secs(61), ended).await;
        let status = ended.expect("it expires");
        assert_eq!(status.code(), tonic::Code::Unauthenticated);
    }

    #[tokio::test(start_paused = true)]
    async fn a_credential_that_is_revoked_ends_and_one_that_cannot_be_verified_does_not() {
        let (answers, current) = tokio::sync::watch::channel(Ok(()));
        let verify: Verify = Arc::new(move || {
            let answer = current.borrow().clone();
            Box::pin(std::future::ready(answer))
        });
        let validity = CredentialValidity {
            expires: None,
            verify: Some(verify),
        };
        let mut ended = std::pin::pin!(validity.ended());
        let minutes = |count: u32| VERIFY_INTERVAL * count;
        let waited = tokio::time::timeout(minutes(3), &mut ended).await;
        assert!(waited.is_err(), "it is valid");
        answers
            .send(Err(Refusal::Unavailable("no answer".to_owned())))
            .expect("it is read");
        let waited = tokio::time::timeout(minutes(3), &mut ended).await;
        assert!(waited.is_err(), "nothing is known");
        answers
            .send(Err(Refusal::Unauthenticated("deleted".to_owned())))
            .expect("it is read");
        let status = tokio::time::timeout(minutes(1), ended).await;
        let status = status.expect("within a minute");
        assert_eq!(status.code(), tonic::Code::Unauthenticated);
        assert_eq!(status.message(), "deleted");
    }

    #[test]
    fn a_name_that_is_not_proven_cannot_be_that_of_another_proxy() {
        let resolve = |name: ProxyName| name.resolve("edge-1");
        assert_eq!(resolve(ProxyName::Claimed), "edge-1");
        assert_eq!(resolve(ProxyName::Proven("shop/a".to_owned())), "shop/a");
        assert_eq!(
            resolve(ProxyName::Qualified("shop/account".to_owned())),
            "shop/account:edge-1"
        );
        let key = |identity: &str| ProxyName::Claimed.key("edge-1", &[identity.to_owned()]);
        assert_ne!(key("edge-1.example"), key("edge-2.example"));
        assert_eq!(ProxyName::Claimed.key("edge-1", &[]), "edge-1");
    }
}
