//! String patterns of Kuma, with Kuma's own error messages where it has one.

use super::super::patterns::{HOSTNAME, Pattern, SUBDOMAIN, is_ip};
use super::tags::PROTOCOLS;
use crate::kuma::TargetKind;

/// The kind of a reference.
pub(super) static TARGET_KIND: Pattern = Pattern::with_message(
    |text| TargetKind::find(text).is_some(),
    |text| format!("value '{text}' is not supported"),
);

/// The name of an object. `kuma.io/unresolved-backend` is the name that Kuma's Gateway API controller gives to a missing backend.
pub(super) static NAME: Pattern = Pattern::with_message(
    |text| text.bytes().all(is_name) || text == "kuma.io/unresolved-backend",
    |_| {
        "invalid characters: must consist of lower case alphanumeric characters, '-', '.' and '_'."
            .to_owned()
    },
);

/// A hostname without a wildcard.
pub(super) static PRECISE_HOSTNAME: Pattern = Pattern::with_message(
    |text| precise_hostname(text).is_none(),
    |text| precise_hostname(text).unwrap_or_default().to_owned(),
);

/// A header value.
pub(super) static HEADER_VALUE: Pattern = Pattern::with_message(
    |text| text.bytes().all(|b| b == b'\t' || b >= b' ' && b != 0x7f),
    |_| "must not contain line breaks or other control characters".to_owned(),
);

/// A replacement for a path.
pub(super) static NEW_PATH: Pattern = Pattern::with_message(
    |text| new_path(text).is_none(),
    |text| new_path(text).unwrap_or_default().to_owned(),
);

/// A replacement for a path prefix. An empty replacement removes the prefix.
pub(super) static NEW_PREFIX: Pattern = Pattern::with_message(
    |text| text.is_empty() || new_path(text).is_none(),
    |text| new_path(text).unwrap_or_default().to_owned(),
);

/// A hostname of requests to a gateway, possibly `*` or with a wildcard label. Kuma does not validate these; Pointsman rejects hostnames that
/// no request can match.
pub(super) static REQUESTED_HOSTNAME: Pattern = Pattern::with_message(
    |text| requested_hostname(text).is_none(),
    |text| requested_hostname(text).unwrap_or_default().to_owned(),
);

/// A hostname of a listener, possibly `*` or with a wildcard label.
pub(super) static SERVED_HOSTNAME: Pattern = Pattern::with_message(
    |text| served_hostname(text).is_none(),
    |text| served_hostname(text).unwrap_or_default().to_owned(),
);

/// The address of a Dataplane.
pub(super) static ADDRESS: Pattern = Pattern::with_message(
    |text| address(text).is_none(),
    |text| address(text).unwrap_or_default().to_owned(),
);

/// The address that an inbound or outbound listens on.
pub(super) static LISTEN_ADDRESS: Pattern =
    Pattern::with_message(is_ip, |_| "address has to be valid IP address".to_owned());

/// The address of the application behind an inbound.
pub(super) static SERVICE_ADDRESS: Pattern = Pattern::with_message(is_ip, |_| {
    "serviceAddress has to be valid IP address".to_owned()
});

/// The address of an endpoint of a MeshExternalService. Unlike Kuma, this rejects unix socket paths.
pub(super) static EXTERNAL_ADDRESS: Pattern = Pattern::with_message(
    |text| is_ip(text) || is_domain(text),
    |text| match text.starts_with("unix://") {
        true => "unix socket paths are not supported: address has to be a valid IP or hostname"
            .to_owned(),
        false => "address has to be a valid IP or hostname".to_owned(),
    },
);

/// The kind of an outbound's backendRef.
pub(super) static OUTBOUND_KIND: Pattern = Pattern::with_message(
    |text| ["MeshExternalService", "MeshMultiZoneService", "MeshService"].contains(&text),
    |_| NO_OUTBOUND_KIND.to_owned(),
);

/// Kuma's message for other kinds.
pub(super) const NO_OUTBOUND_KIND: &str =
    "invalid value. Available values are: MeshExternalService,MeshMultiZoneService,MeshService";

/// The protocol of a port.
pub(super) static APP_PROTOCOL: Pattern = Pattern::with_message(
    |text| PROTOCOLS.contains(&text),
    |_| format!("must be one of [{}]", PROTOCOLS.join(", ")),
);

/// The name of a service within a mesh. It is limited to 63 characters because it becomes a label of hostnames.
pub(super) static SERVICE_NAME: Pattern = Pattern::with_message(
    |text| text.chars().count() <= 63 && text.bytes().all(is_name),
    |text| match text.chars().count() <= 63 {
        true => NAME.message(text),
        false => "must not be longer than 63 characters".to_owned(),
    },
);

/// The match type of a MeshExternalService.
pub(super) static MATCH_TYPE: Pattern = Pattern::with_message(
    |text| text == "HostnameGenerator",
    |text| format!("unrecognized type '{text}' - only 'HostnameGenerator' is supported"),
);

/// The protocol of a MeshExternalService.
pub(super) static EXTERNAL_PROTOCOL: Pattern = Pattern::with_message(
    |text| ["tcp", "grpc", "http", "http2"].contains(&text),
    |_| "\"protocol\" must be one of [\"tcp\", \"grpc\", \"http\", \"http2\"]".to_owned(),
);

const TLS_VERSIONS: [&str; 5] = ["TLSAuto", "TLS10", "TLS11", "TLS12", "TLS13"];

fn no_version(field: &str, text: &str, not_supported: &str) -> String {
    match TLS_VERSIONS.contains(&text) {
        true => format!("{text} is not supported: {not_supported}"),
        false => {
            let all = TLS_VERSIONS
                .map(|version| format!("{version:?}"))
                .join(", ");
            format!("{field:?} must be one of [{all}]")
        }
    }
}

/// The minimum TLS version. TLS 1.2 is always enabled, and older versions never are.
pub(super) static LOWEST_TLS: Pattern = Pattern::with_message(
    |text| TLS_VERSIONS[..4].contains(&text),
    |text| no_version("min", text, "TLS 1.2 is always enabled"),
);

/// The maximum TLS version. TLS 1.3 is always enabled.
pub(super) static HIGHEST_TLS: Pattern = Pattern::with_message(
    |text| ["TLSAuto", "TLS13"].contains(&text),
    |text| no_version("max", text, "TLS 1.3 is always enabled"),
);

const MODES: [&str; 4] = ["SkipSAN", "SkipCA", "Secured", "SkipAll"];

/// The verification mode. Only full verification is supported.
pub(super) static VERIFICATION: Pattern = Pattern::with_message(
    |text| text == "Secured",
    |text| match MODES.contains(&text) {
        true => format!("{text} is not supported: certificates are always verified"),
        false => {
            let all = MODES.map(|mode| format!("{mode:?}")).join(", ");
            format!("\"mode\" must be one of [{all}]")
        }
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

fn new_path(text: &str) -> Option<&'static str> {
    let is_path = |b: u8| (b'!'..=b'~').contains(&b) && b != b'?' && b != b'#';
    if !text.starts_with('/') {
        Some("must be an absolute path")
    } else if !text.bytes().all(is_path) {
        Some(
            "must not contain `?`, `#`, spaces, control characters or non-ASCII characters; percent-encode them",
        )
    } else {
        None
    }
}

fn requested_hostname(text: &str) -> Option<&'static str> {
    served_hostname(&text.to_ascii_lowercase().replace('_', "x"))
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
