//! Kinds that a cluster serves. Others are listed in the status of GatewayClasses, and features that need them are not advertised.

use std::sync::Arc;

use pointsman_resources::Kind;
use pointsman_resources::meta::{GATEWAY_GROUP, GATEWAY_X_GROUP};

use crate::Binder;
use crate::engine::Input;
use crate::status::Condition;

/// Newest supported minor release of the Gateway API v1.
const NEWEST_MINOR: u32 = 7;

/// Kinds that an API server serves. The default is all kinds, as for manifests from files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedApi {
    /// Kinds that are not served.
    pub missing: Vec<Kind>,
    /// Release of the Gateway API that the CustomResourceDefinitions belong to, such as `v1.7.0`; `None` if unknown.
    pub bundle_version: Option<Arc<str>>,
}

impl ServedApi {
    /// Returns the features that do not require a missing kind.
    pub(crate) fn features(&self, all: &[&'static str]) -> Arc<[&'static str]> {
        let missing = self.gateway_api_kinds();
        let missing: Vec<&str> = missing.map(Kind::name).collect();
        let needs = |feature: &str, kind: &str| {
            let feature = feature.strip_prefix("Mesh").unwrap_or(feature);
            feature.starts_with(kind)
        };
        let is_served = |feature: &&&'static str| !missing.iter().any(|kind| needs(feature, kind));
        all.iter().filter(is_served).copied().collect()
    }

    /// Returns the condition `SupportedVersion`, which reports whether the release of the CustomResourceDefinitions is supported.
    pub(crate) fn condition(&self) -> Condition {
        const KIND: &str = "SupportedVersion";
        let missing: Vec<&str> = self.gateway_api_kinds().map(Kind::name).collect();
        let missing = match missing.is_empty() {
            true => String::new(),
            false => format!("the API server does not serve {}", missing.join(", ")),
        };
        let version = self.bundle_version.as_deref().unwrap_or_default();
        match minor(version) {
            Some(minor) if minor > NEWEST_MINOR => {
                let message = format!(
                    "Gateway API {version} is newer than v1.{NEWEST_MINOR}; fields that were added since are ignored"
                );
                let parts = [message, missing];
                let parts: Vec<String> =
                    parts.into_iter().filter(|part| !part.is_empty()).collect();
                Condition::no(KIND, "UnsupportedVersion", parts.join("; "))
            }
            _ => Condition::yes(KIND, "SupportedVersion", missing),
        }
    }

    fn gateway_api_kinds(&self) -> impl Iterator<Item = Kind> {
        let groups = [GATEWAY_GROUP, GATEWAY_X_GROUP];
        let missing = self.missing.iter().copied();
        missing.filter(move |kind| groups.contains(&kind.group()))
    }
}

/// Returns the minor release of `v1.MINOR.PATCH`; 0 for major release 0, and the largest number for later ones.
fn minor(version: &str) -> Option<u32> {
    let mut parts = version.strip_prefix('v')?.split(['.', '-']);
    let mut number = || parts.next()?.parse::<u32>().ok();
    match (number()?, number()?) {
        (1, minor) => Some(minor),
        (0, _) => Some(0),
        _ => Some(u32::MAX),
    }
}

impl Binder {
    pub(crate) fn set_served_api(&mut self, api: Arc<ServedApi>) {
        if self.store.served_api != api {
            self.store.served_api = api;
            self.tracker.invalidate_readers(&Input::ServedApi);
        }
    }
}
