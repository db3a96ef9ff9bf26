//! String patterns, each with a description for error messages. Regular expressions are compiled on first use.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::Regex;

use super::validate::shorten;
use crate::meta::rfc3339;

/// A constraint on the form of a string.
pub(crate) struct Pattern {
    /// Describes valid strings; follows "must be".
    pub(crate) description: &'static str,
    form: StringForm,
    /// Builds the message for an invalid string, where Kuma has a message of its own.
    message: Option<fn(&str) -> String>,
}

enum StringForm {
    Regex(LazyLock<Regex>),
    Function(fn(&str) -> bool),
}

impl Pattern {
    pub(crate) fn matches(&self, text: &str) -> bool {
        match &self.form {
            StringForm::Regex(regex) => regex.is_match(text),
            StringForm::Function(function) => function(text),
        }
    }

    const fn function(function: fn(&str) -> bool, description: &'static str) -> Self {
        Pattern {
            description,
            form: StringForm::Function(function),
            message: None,
        }
    }

    /// Creates a pattern with an error message of its own.
    pub(super) const fn with_message(
        function: fn(&str) -> bool,
        message: fn(&str) -> String,
    ) -> Self {
        Pattern {
            description: "",
            form: StringForm::Function(function),
            message: Some(message),
        }
    }

    /// Returns the error message for a text that does not match.
    pub(crate) fn message(&self, text: &str) -> String {
        match self.message {
            Some(message) => message(text),
            None => format!(
                "invalid value `{}`: must be {}",
                shorten(text),
                self.description
            ),
        }
    }

    /// Returns the error message for a map key that does not match.
    pub(crate) fn key_message(&self, key: &str) -> String {
        format!(
            "invalid key `{}`: must be {}",
            shorten(key),
            self.description
        )
    }
}

macro_rules! patterns {
    ($($name:ident = $regex:expr, $description:expr;)*) => {
        $(pub(crate) static $name: Pattern = Pattern {
            description: $description,
            message: None,
            form: StringForm::Regex(LazyLock::new(|| {
                Regex::new($regex).expect("a constant expression that a test compiles")
            })),
        };)*
        /// All patterns, for the test that compiles them.
        #[cfg(test)]
        pub(crate) static ALL: &[&Pattern] = &[$(&$name),*];
    };
}

patterns! {
    GROUP = r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        "an API group: empty, or a lowercase DNS name such as `gateway.networking.k8s.io`";
    KIND = r"^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$",
        "a kind: letters, digits and `-`, starting with a letter";
    LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        "an RFC 1123 label: lowercase letters, digits and `-`, starting and ending with a letter or digit";
    SERVICE_NAME = r"^[a-z]([-a-z0-9]*[a-z0-9])?$",
        "an RFC 1035 label: lowercase letters, digits and `-`, starting with a letter and ending with a letter or digit";
    SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        "an RFC 1123 subdomain: a lowercase DNS name such as `shop.example.com`";
    BUNDLE_NAME = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?:)*[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        "a lowercase DNS name, optionally prefixed with the name of its signer and `:`";
    HOSTNAME = r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        "a lowercase hostname such as `shop.example.com` or `*.example.com`";
    ADDRESS_TYPE = r"^Hostname|IPAddress|NamedAddress|[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/[A-Za-z0-9\/\-._~%!$&'()*+,;=:]+$",
        "IPAddress, Hostname, NamedAddress or a domain-prefixed type such as `example.com/type`";
    PROTOCOL = r"^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$|[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/[A-Za-z0-9]+$",
        "a protocol such as HTTP, HTTPS, TLS, TCP, UDP or `example.com/protocol`";
    CONTROLLER = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/[A-Za-z0-9\/\-._~%!$&'()*+,;=:]+$",
        "a domain-prefixed path such as `example.com/gateway-controller`";
    HEADER_NAME = r"^[A-Za-z0-9!#$%&'*+\-.^_\x60|~]+$",
        "an HTTP header name: letters, digits and any of !#$%&'*+-.^_`|~";
    HEADER_VALUE = r"^[!-~]+([\t ]?[!-~]+)*$",
        "a header value: visible ASCII characters, with single spaces or tabs only between them";
    ORIGIN = r"(^\*$)|(^(http(s)?):\/\/(((\*\.)?([a-zA-Z0-9\-]+\.)*[a-zA-Z0-9-]+|\*)(:([0-9]{1,5}))?)$)",
        "an origin such as `https://example.com:8443`, `https://*.example.com` or `*`";
    DURATION = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$",
        "a duration such as `10s`, `500ms` or `1h30m`";
    PATH = r"^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})+$",
        "a path of letters, digits, `-/._~!$&'()*+,;=:@` and percent-encoded bytes such as `%2E`";
    GRPC_SERVICE = r"^(?i)\.?[a-z_][a-z_0-9]*(\.[a-z_][a-z_0-9]*)*$",
        "a gRPC service name such as `shop.v1.Cart`";
    GRPC_METHOD = r"^[A-Za-z_][A-Za-z_0-9]*$",
        "a gRPC method name: letters, digits and `_`, not starting with a digit";
    LABEL_VALUE = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
        "a label value: letters, digits, `-`, `_` and `.`, starting and ending with a letter or digit";
    LABEL_KEY = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$",
        "a qualified name: at most 63 letters, digits, `-`, `_` and `.`, optionally prefixed with a DNS name and `/`";
    URI = r"^(([^:/?#]+):)(//([^/?#]*))([^?#]*)(\?([^#]*))?(#(.*))?",
        "a URI with a scheme and an authority, such as `spiffe://example.com/ns/shop`";
    WELL_KNOWN = r"^(System|([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]))$",
        "`System` or a domain-prefixed name such as `example.com/roots`";
    ATTRIBUTE_NAME = r"^[a-zA-Z0-9_.:/-]+$",
        "a name of letters, digits and `_.:/-`";
    SPAN_NAME = r"^[a-zA-Z0-9_.:/-]+( [a-zA-Z0-9_.:/-]+)*$",
        "a name of letters, digits and `_.:/-`, with single spaces between words";
    ATTRIBUTE_KEY = r"^[a-z0-9_.-]+$",
        "an attribute key of lowercase letters, digits and `_.-`";
    DATA_KEY = r"^[-._a-zA-Z0-9]+$",
        "a key of letters, digits, `-`, `_` and `.`";
}

/// A timestamp such as `metadata.creationTimestamp`.
pub(crate) static TIME: Pattern = Pattern::function(
    |text| rfc3339(text).is_some(),
    "an RFC 3339 time such as `2026-01-31T12:00:00Z`",
);

/// A value of a Secret's `data`.
pub(crate) static BASE64: Pattern = Pattern::function(is_base64, "base64-encoded data");

/// A range of IP addresses.
pub(crate) static IP_RANGE: Pattern = Pattern::function(
    is_ip_range,
    "a range of addresses such as `10.0.0.0/8` or `fd00::/8`",
);

/// The reference of a container image.
pub(crate) static IMAGE: Pattern = Pattern::function(
    |text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()),
    "the name of an image, without spaces",
);

/// The `appProtocol` of a port.
pub(crate) static QUALIFIED_NAME: Pattern = Pattern::function(
    is_qualified_name,
    "a qualified name such as `http` or `kubernetes.io/h2c`",
);

/// The name of a container port.
pub(crate) static PORT_NAME: Pattern = Pattern::function(
    is_port_name,
    "a port name: at most 15 lowercase letters, digits and single `-`, with at least one letter",
);

/// Returns whether the text is a valid key of labels and annotations, including the length of its prefix.
pub(crate) fn is_qualified_name(key: &str) -> bool {
    LABEL_KEY.matches(key)
        && key
            .split_once('/')
            .is_none_or(|(prefix, _)| prefix.len() <= 253)
}

fn is_base64(text: &str) -> bool {
    // Go's decoder ignores line endings.
    let symbols = text.bytes().filter(|b| !matches!(b, b'\r' | b'\n')).count();
    let padding = text
        .trim_end_matches(['\r', '\n'])
        .bytes()
        .rev()
        .take_while(|&b| b == b'=')
        .count();
    let data = text
        .bytes()
        .filter(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
        .count();
    symbols % 4 == 0 && padding <= 2 && data + padding == symbols
}

/// Returns whether a text is an IP address.
pub(crate) fn is_ip(text: &str) -> bool {
    text.parse::<Ipv4Addr>().is_ok() || text.parse::<Ipv6Addr>().is_ok()
}

fn is_ip_range(text: &str) -> bool {
    let Some((address, prefix)) = text.split_once('/') else {
        return false;
    };
    let most = if address.contains(':') { 128 } else { 32 };
    let is_number = prefix == "0" || !prefix.starts_with(['0', '+']);
    is_ip(address) && is_number && prefix.parse::<u8>().is_ok_and(|bits| bits <= most)
}

fn is_port_name(text: &str) -> bool {
    (1..=15).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && text.bytes().any(|b| b.is_ascii_lowercase())
        && !text.starts_with('-')
        && !text.ends_with('-')
        && !text.contains("--")
}

/// Converts a [`DURATION`] to milliseconds.
pub(crate) fn milliseconds(text: &str) -> Option<u64> {
    if !DURATION.matches(text) {
        return None;
    }
    let (mut total, mut number) = (0, 0);
    let mut bytes = text.bytes().peekable();
    while let Some(byte) = bytes.next() {
        let unit = match byte {
            b'0'..=b'9' => {
                number = number * 10 + u64::from(byte - b'0');
                continue;
            }
            b'h' => 3_600_000,
            b'm' if bytes.next_if_eq(&b's').is_some() => 1,
            b'm' => 60_000,
            _ => 1_000,
        };
        total += number * unit;
        number = 0;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        assert!(ALL.len() > 20);
        for pattern in ALL {
            assert!(!pattern.matches("\n"), "{}", pattern.description);
        }
    }

    #[test]
    fn the_parts_of_a_duration_are_added() {
        assert_eq!(milliseconds("1h30m2s5ms"), Some(5_402_005));
        assert_eq!(milliseconds("10s"), Some(10_000));
        assert_eq!(milliseconds("0ms"), Some(0));
        assert_eq!(milliseconds("1.5s"), None);
    }

    #[test]
    fn base64_is_distinguished_from_other_text() {
        for right in ["", "YQ==", "YWI=", "YWJj", "YW\nJj\n"] {
            assert!(is_base64(right), "{right}");
        }
        for invalid in ["a", "YQ=", "Y===", "YQ==YQ==", "not base64!"] {
            assert!(!is_base64(invalid), "{invalid}");
        }
    }
}
