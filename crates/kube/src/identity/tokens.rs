//! ServiceAccount tokens of proxies, verified by TokenReview.
//!
//! A result is cached for at most a minute and never beyond the expiry of the token, so the token of a deleted Pod is rejected after a minute. Obviously
//! invalid tokens are rejected without a request. Tokens of open streams are verified again periodically, at a limited rate.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::PostParams;
use kube::{Api, Client};
use pointsman_control::clock;
use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::rate_limit::TokenBucket;

/// Audience of the tokens that proxies present.
pub const AUDIENCE: &str = "pointsman";

/// Time for which a result is cached.
const ACCEPTED: Duration = Duration::from_secs(60);
const REJECTED: Duration = Duration::from_secs(10);
/// Age of a result up to which it serves a repeated verification: a proxy has two streams with the same token.
const RECENT: Duration = Duration::from_secs(30);
/// Repeated verifications per second, and at once.
const REPEATED_RATE: u32 = 50;
/// Maximum number of cached results.
const CACHED: usize = 4096;
/// Maximum number of concurrent reviews.
const CONCURRENCY: usize = 16;
/// Timeout of a review.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest token. Those of Kubernetes have about a kilobyte.
const MAX_LENGTH: usize = 16 * 1024;
/// Assumed lifetime of a token without expiry.
const UNKNOWN_LIFETIME: Duration = Duration::from_secs(3600);

/// Prefix of the user names of ServiceAccounts, followed by `NAMESPACE:NAME`.
const USER_PREFIX: &str = "system:serviceaccount:";
/// Key of the name of the Pod that a token is bound to.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";

/// A ServiceAccount authenticated by a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccount {
    /// Namespace of the ServiceAccount.
    pub namespace: String,
    /// Name of the ServiceAccount.
    pub name: String,
    /// Name of the Pod that the token is bound to.
    pub pod: Option<String>,
    /// Time at which the token expires.
    pub expires: Instant,
}

/// A rejected token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The token is invalid.
    #[error("the token is invalid: {0}")]
    Invalid(String),
    /// The API server is not available.
    #[error("the token could not be verified: {0}")]
    Unavailable(String),
}

/// Verifies tokens.
pub struct Reviewer {
    api: Api<TokenReview>,
    cache: Mutex<HashMap<String, Cached>>,
    permits: Semaphore,
    repeated: Mutex<TokenBucket>,
}

struct Cached {
    result: Result<ServiceAccount, TokenError>,
    reviewed: Instant,
    until: Instant,
}

impl Reviewer {
    /// Creates a reviewer.
    pub fn new(client: Client) -> Self {
        Reviewer {
            api: Api::all(client),
            cache: Mutex::default(),
            permits: Semaphore::new(CONCURRENCY),
            repeated: Mutex::new(TokenBucket::new(REPEATED_RATE, REPEATED_RATE)),
        }
    }

    /// Verifies the token of an open stream again: it may have been revoked.
    pub async fn verify_again(&self, token: &str) -> Result<ServiceAccount, TokenError> {
        loop {
            if let Some(result) = self.recent(token) {
                return result;
            }
            match self.take_repeated() {
                Ok(()) => break,
                Err(wait) => tokio::time::sleep(wait).await,
            }
        }
        let expires = precheck(token, clock::unix_seconds())?;
        self.review_now(token, expires.unwrap_or(UNKNOWN_LIFETIME))
            .await
    }

    /// Verifies a token.
    pub async fn verify(&self, token: &str) -> Result<ServiceAccount, TokenError> {
        let expires = precheck(token, clock::unix_seconds())?;
        let now = clock::instant();
        let lifetime = expires.unwrap_or(UNKNOWN_LIFETIME);
        let known = self
            .cache()
            .get(token)
            .filter(|known| now < known.until)
            .map(|known| known.result.clone());
        if let Some(result) = known {
            return result;
        }
        self.review_now(token, lifetime).await
    }

    /// Verifies a token with a request, and caches the result.
    async fn review_now(
        &self,
        token: &str,
        lifetime: Duration,
    ) -> Result<ServiceAccount, TokenError> {
        let now = clock::instant();
        let result = match tokio::time::timeout(TIMEOUT, self.review(token)).await {
            Ok(status) => account(&status?, now + lifetime),
            Err(_) => {
                return Err(TokenError::Unavailable(
                    "no response from the API server".to_owned(),
                ));
            }
        };
        let counts = match &result {
            Ok(_) => ACCEPTED.min(lifetime),
            Err(_) => REJECTED,
        };
        let mut cache = self.cache();
        if cache.len() >= CACHED {
            cache.retain(|_, known| now < known.until);
        }
        if cache.len() < CACHED || cache.contains_key(token) {
            let cached = Cached {
                result: result.clone(),
                reviewed: now,
                until: now + counts,
            };
            cache.insert(token.to_owned(), cached);
        }
        result
    }

    async fn review(&self, token: &str) -> Result<TokenReviewStatus, TokenError> {
        let unavailable =
            |error: &dyn std::fmt::Display| TokenError::Unavailable(error.to_string());
        let permit = self.permits.acquire().await;
        let _permit = permit.map_err(|error| unavailable(&error))?;
        let review = TokenReview {
            spec: TokenReviewSpec {
                audiences: Some(vec![AUDIENCE.to_owned()]),
                token: Some(token.to_owned()),
            },
            ..TokenReview::default()
        };
        let reviewed = self.api.create(&PostParams::default(), &review).await;
        let reviewed = reviewed.map_err(|error| unavailable(&error))?;
        Ok(reviewed.status.unwrap_or_default())
    }

    /// Returns the result of a recent review.
    fn recent(&self, token: &str) -> Option<Result<ServiceAccount, TokenError>> {
        let cache = self.cache();
        let known = cache.get(token)?;
        let is_recent = clock::instant() < known.reviewed + RECENT;
        is_recent.then(|| known.result.clone())
    }

    fn take_repeated(&self) -> Result<(), Duration> {
        let limit = self.repeated.lock();
        let mut limit = limit.unwrap_or_else(PoisonError::into_inner);
        limit.take(clock::instant())
    }

    fn cache(&self) -> MutexGuard<'_, HashMap<String, Cached>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Claims of a token that are read before it is verified.
#[derive(Deserialize)]
struct UnverifiedClaims {
    exp: Option<i64>,
    aud: Option<Audience>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

/// Rejects tokens that can't be valid. Returns the remaining lifetime, if the token contains an expiry.
fn precheck(token: &str, now: i64) -> Result<Option<Duration>, TokenError> {
    let invalid = |why: String| TokenError::Invalid(why);
    if token.len() > MAX_LENGTH {
        return Err(invalid(format!("it is longer than {MAX_LENGTH} bytes")));
    }
    // API servers may also accept tokens that are not JSON Web Tokens.
    let claims = token.split('.').nth(1);
    let claims = claims.and_then(|claims| URL_SAFE_NO_PAD.decode(claims).ok());
    let claims = claims.and_then(|claims| serde_json::from_slice::<UnverifiedClaims>(&claims).ok());
    let Some(claims) = claims else {
        return Ok(None);
    };
    let audiences = claims.aud.map(|audience| match audience {
        Audience::One(one) => vec![one],
        Audience::Many(many) => many,
    });
    if let Some(audiences) = audiences.filter(|all| !all.iter().any(|one| one == AUDIENCE)) {
        let found = audiences.join(", ");
        return Err(invalid(format!(
            "its audience is {found}, and {AUDIENCE} is expected"
        )));
    }
    let Some(expires) = claims.exp else {
        return Ok(None);
    };
    match u64::try_from(expires.saturating_sub(now)) {
        Ok(rest) if rest > 0 => Ok(Some(Duration::from_secs(rest))),
        _ => {
            let ago = now.saturating_sub(expires);
            Err(invalid(format!("it expired {ago} s ago")))
        }
    }
}

/// Reads the result of a review.
fn account(status: &TokenReviewStatus, expires: Instant) -> Result<ServiceAccount, TokenError> {
    let invalid = |why: &str| TokenError::Invalid(why.to_owned());
    if status.authenticated != Some(true) {
        let why = status.error.as_deref().filter(|error| !error.is_empty());
        return Err(invalid(why.unwrap_or("the API server does not accept it")));
    }
    // An API server without support for audiences returns none and has not checked it.
    let audiences = status.audiences.as_deref().unwrap_or_default();
    if !audiences.iter().any(|audience| audience == AUDIENCE) {
        return Err(invalid("the API server did not confirm its audience"));
    }
    let user = status.user.as_ref();
    let name = user.and_then(|user| user.username.as_deref());
    let account = name.and_then(|name| name.strip_prefix(USER_PREFIX)?.split_once(':'));
    let Some((namespace, name)) = account else {
        let name = name.unwrap_or_default();
        return Err(TokenError::Invalid(format!(
            "its user is {name}, and a ServiceAccount is expected"
        )));
    };
    let extra = user.and_then(|user| user.extra.as_ref());
    let pod = extra.and_then(|extra| extra.get(POD_NAME)?.first());
    Ok(ServiceAccount {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        pod: pod.cloned(),
        expires,
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authentication::v1::UserInfo;
    use serde_json::{Value, json};

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn token(claims: &Value) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    #[test]
    fn a_token_that_cannot_be_valid_is_refused_without_a_request() {
        let check = |claims: Value| precheck(&token(&claims), NOW);
        let good = check(json!({"exp": NOW + 60, "aud": ["pointsman"]}));
        assert_eq!(good, Ok(Some(Duration::from_secs(60))));
        assert_eq!(check(json!({"aud": "pointsman"})), Ok(None));
        assert_eq!(precheck("opaque", NOW), Ok(None));
        for (claims, why) in [
            (json!({"exp": NOW - 5, "aud": ["pointsman"]}), "5 s ago"),
            (json!({"exp": i64::MIN, "aud": ["pointsman"]}), "s ago"),
            (json!({"exp": NOW, "aud": ["pointsman"]}), "0 s ago"),
            (
                json!({"exp": NOW + 60, "aud": ["https://kubernetes.default.svc"]}),
                "its audience is https://kubernetes.default.svc",
            ),
        ] {
            let error = check(claims).expect_err(why).to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(precheck(&"x".repeat(MAX_LENGTH + 1), NOW).is_err());
    }

    #[test]
    fn only_a_service_account_with_the_audience_is_accepted() {
        let status = |user: &str, audiences: &[&str], authenticated: bool| TokenReviewStatus {
            authenticated: Some(authenticated),
            audiences: Some(audiences.iter().map(|one| (*one).to_owned()).collect()),
            user: Some(UserInfo {
                username: Some(user.to_owned()),
                extra: Some([(POD_NAME.to_owned(), vec!["edge-1".to_owned()])].into()),
                ..UserInfo::default()
            }),
            ..TokenReviewStatus::default()
        };
        let at = clock::instant();
        let user = "system:serviceaccount:shop:edge-pointsman";
        let good = account(&status(user, &["pointsman"], true), at).expect("it is valid");
        assert_eq!((&*good.namespace, &*good.name), ("shop", "edge-pointsman"));
        assert_eq!(good.pod.as_deref(), Some("edge-1"));
        assert!(account(&status(user, &["pointsman"], false), at).is_err());
        assert!(account(&status(user, &[], true), at).is_err());
        assert!(account(&status("admin", &["pointsman"], true), at).is_err());
    }
}
