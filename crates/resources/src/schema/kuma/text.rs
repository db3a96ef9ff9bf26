//! What strings must look like to Kuma, in its own words.

use super::super::gateway::is_ip;
use super::super::text::{HOSTNAME, Pattern, SUBDOMAIN};
use crate::kuma::TargetKind;

/// What a reference refers to.
pub(super) static TARGET_KIND: Pattern = Pattern::worded(
    |text| TargetKind::find(text).is_some(),
    |text| format!("value '{text}' is not supported"),
);

/// The name of an object. The Gateway API's controller of Kuma calls a backend that is not there by the other one.
pub(super) static NAME: Pattern = Pattern::worded(
    |text| text.bytes().all(is_name) || text == "kuma.io/unresolved-backend",
    |_| {
        "invalid characters: must consist of lower case alphanumeric characters, '-', '.' and '_'."
            .to_owned()
    },
);

/// A host that requests are sent to.
pub(super) static PRECISE_HOSTNAME: Pattern = Pattern::worded(
    |text| precise_hostname(text).is_none(),
    |text| precise_hostname(text).unwrap_or_default().to_owned(),
);

/// A host that is served, `*` for all, or all hosts below one.
pub(super) static SERVED_HOSTNAME: Pattern = Pattern::worded(
    |text| served_hostname(text).is_none(),
    |text| served_hostname(text).unwrap_or_default().to_owned(),
);

/// The address of a Dataplane.
pub(super) static ADDRESS: Pattern = Pattern::worded(
    |text| address(text).is_none(),
    |text| address(text).unwrap_or_default().to_owned(),
);

/// The address that an inbound or outbound listens on.
pub(super) static LISTEN_ADDRESS: Pattern =
    Pattern::worded(is_ip, |_| "address has to be valid IP address".to_owned());

/// The address of the application behind an inbound.
pub(super) static SERVICE_ADDRESS: Pattern = Pattern::worded(is_ip, |_| {
    "serviceAddress has to be valid IP address".to_owned()
});

/// Where a MeshExternalService is. Kuma knows unix paths too.
pub(super) static EXTERNAL_ADDRESS: Pattern = Pattern::worded(
    |text| is_ip(text) || is_domain(text),
    |text| match text.starts_with("unix://") {
        true => "a unix path is not supported: address has to be a valid IP or hostname".to_owned(),
        false => "address has to be a valid IP or hostname".to_owned(),
    },
);

fn is_name(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.' | b'_')
}

fn is_domain(text: &str) -> bool {
    text.len() <= 253 && SUBDOMAIN.matches(&text.to_ascii_lowercase())
}

fn precise_hostname(text: &str) -> Option<&'static str> {
    if is_ip(text) {
        Some("cannot be an IP address")
    } else if text.chars().count() > 253 {
        Some("must be no more than 253 characters")
    } else if !SUBDOMAIN.matches(text) {
        Some(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
             and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        )
    } else {
        None
    }
}

fn served_hostname(text: &str) -> Option<&'static str> {
    if text.is_empty() || text == "*" {
        None
    } else if text.chars().count() > 253 {
        Some("must be at most 253 characters")
    } else if HOSTNAME.matches(text) {
        None
    } else if text.starts_with("*.") {
        Some("invalid wildcard domain")
    } else {
        Some("invalid hostname")
    }
}

fn address(text: &str) -> Option<&'static str> {
    match text {
        "" => Some("address can't be empty"),
        "0.0.0.0" | "::" => Some("must not be 0.0.0.0 or ::"),
        _ if is_ip(text) || is_domain(text) => None,
        _ => Some("address has to be valid IP address or domain name"),
    }
}
