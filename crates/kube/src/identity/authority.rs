//! The control plane's certificate authority: kept in a Secret that the leader creates and rotates, and that every replica issues its serving certificate from.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PostParams;
use kube::{Api, Client};
use pointsman_control::clock;
use tokio::sync::watch;

use super::ca::{Authorities, CaError};
pub use super::ca::{Rotation, ServingCertificate};

/// Interval between reads of the Secret.
const INTERVAL: Duration = Duration::from_secs(10);
/// The same, while there is no certificate.
const FIRST_INTERVAL: Duration = Duration::from_millis(500);
/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of an authority.
#[derive(Clone, Debug)]
pub struct AuthoritySettings {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// DNS names of the serving certificate.
    pub names: Vec<String>,
    /// Times of rotations.
    pub rotation: Rotation,
}

/// Name of the Secret with the authority.
pub const SECRET_NAME: &str = "pointsman-ca";

/// Returns the names at which a Service is reached within a cluster.
pub fn service_names(service: &str, namespace: &str) -> Vec<String> {
    let namespaced = format!("{service}.{namespace}");
    vec![
        format!("{namespaced}.svc"),
        format!("{namespaced}.svc.cluster.local"),
        namespaced,
        service.to_owned(),
        "localhost".to_owned(),
    ]
}

/// The published state of an authority, for other parts of the process.
#[derive(Clone, Debug)]
pub struct PublishedAuthority {
    /// Certificates that proxies trust, in PEM; empty until the Secret has been read.
    pub bundle: watch::Receiver<Arc<str>>,
    /// Certificate to serve proxies with; `None` until there is one.
    pub serving: watch::Receiver<Option<Arc<ServingCertificate>>>,
}

#[derive(Debug, thiserror::Error)]
enum AuthorityError {
    #[error(transparent)]
    Request(#[from] kube::Error),
    #[error(transparent)]
    Content(#[from] CaError),
    #[error("timed out after {} s", TIMEOUT.as_secs())]
    Timeout,
}

/// Keeps the authority and the serving certificate current.
pub struct CertificateRenewal {
    api: Api<Secret>,
    settings: AuthoritySettings,
    owner: Option<OwnerReference>,
    bundle: watch::Sender<Arc<str>>,
    serving: watch::Sender<Option<Arc<ServingCertificate>>>,
    /// Error that was logged last.
    error: String,
}

impl CertificateRenewal {
    /// Creates the task. The published bundle is empty until it runs. `owner` becomes the owner of the Secret.
    pub fn new(
        client: Client,
        settings: AuthoritySettings,
        owner: Option<OwnerReference>,
    ) -> (Self, PublishedAuthority) {
        let bundle = watch::Sender::new(Arc::from(""));
        let serving = watch::Sender::new(None);
        let published = PublishedAuthority {
            bundle: bundle.subscribe(),
            serving: serving.subscribe(),
        };
        let renewal = CertificateRenewal {
            api: Api::namespaced(client, &settings.namespace),
            settings,
            owner,
            bundle,
            serving,
            error: String::new(),
        };
        (renewal, published)
    }

    /// Follows the Secret until the sender of `is_leader` is dropped. Creates and rotates it while `is_leader` is true.
    pub async fn run(mut self, mut is_leader: watch::Receiver<bool>) {
        loop {
            let leads = *is_leader.borrow_and_update();
            let attempt = tokio::time::timeout(TIMEOUT, self.follow(leads)).await;
            let result = attempt.unwrap_or(Err(AuthorityError::Timeout));
            self.report(result.err());
            let interval = match self.serving.borrow().is_some() {
                true => INTERVAL,
                false => FIRST_INTERVAL,
            };
            // Tests use rotations whose steps take seconds.
            let rotation = self
                .settings
                .rotation
                .distribute
                .try_into()
                .unwrap_or(u64::MAX);
            let interval = interval.min(Duration::from_secs(rotation) / 4);
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                changed = is_leader.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Logs an error once until it changes. The published state stays in effect.
    fn report(&mut self, error: Option<AuthorityError>) {
        let text = error.map(|error| error.to_string()).unwrap_or_default();
        if text != self.error && !text.is_empty() {
            let AuthoritySettings {
                namespace, secret, ..
            } = &self.settings;
            tracing::warn!("Secret {namespace}/{secret} (certificate authority): {text}");
        }
        self.error = text;
    }

    async fn follow(&mut self, leads: bool) -> Result<(), AuthorityError> {
        let now = clock::unix_seconds();
        let rotation = self.settings.rotation;
        let authorities = match self.api.get_opt(&self.settings.secret).await? {
            None if !leads => return Ok(()),
            None => {
                let created = Authorities::create(now, &rotation)?;
                self.create(&created).await?;
                created
            }
            Some(secret) => {
                let mut authorities = Authorities::read(&secret.data.clone().unwrap_or_default())?;
                if leads && authorities.advance(now, &rotation)? {
                    self.replace(secret, &authorities).await?;
                }
                authorities
            }
        };
        self.publish(&authorities, now)
    }

    async fn create(&self, authorities: &Authorities) -> Result<(), AuthorityError> {
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(self.settings.secret.clone()),
                owner_references: self.owner.clone().map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            type_: Some("Opaque".to_owned()),
            data: Some(authorities.data()),
            ..Secret::default()
        };
        self.api.create(&PostParams::default(), &secret).await?;
        tracing::info!(
            "created a certificate authority in Secret {}",
            self.settings.secret
        );
        Ok(())
    }

    async fn replace(
        &self,
        mut secret: Secret,
        authorities: &Authorities,
    ) -> Result<(), AuthorityError> {
        secret.data = Some(authorities.data());
        let (name, params) = (&self.settings.secret, PostParams::default());
        // Fails if another replica was faster, because the resource version is that of the Secret that was read.
        self.api.replace(name, &params, &secret).await?;
        tracing::info!("rotated the certificate authority in Secret {name}");
        Ok(())
    }

    fn publish(&mut self, authorities: &Authorities, now: i64) -> Result<(), AuthorityError> {
        let bundle = authorities.bundle();
        self.bundle.send_if_modified(|known| {
            let is_new = **known != *bundle;
            *known = bundle.into();
            is_new
        });
        let current = self.serving.borrow().clone();
        if current.is_none_or(|serving| authorities.replaces(&serving, now)) {
            let AuthoritySettings {
                names, rotation, ..
            } = &self.settings;
            let serving = authorities.issue(names, now, rotation)?;
            self.serving.send_replace(Some(Arc::new(serving)));
        }
        Ok(())
    }
}
