//! Names and label values of generated objects.

use pointsman_resources::Name;

/// Longest DNS label, and longest value of a label.
const MAX_LABEL: usize = 63;
/// Hexadecimal digits of a hash in a name.
const HASH_DIGITS: usize = 10;

/// Returns the name of the objects that are generated for a Gateway: `<gateway>-<class>`, as GEP-1762 asks for.
///
/// The result is a DNS-1035 label, as Services require. If the plain name is not a valid one, other characters are replaced, the rest is shortened, and a hash of the
/// Gateway's name and class keeps it unique.
pub fn object_name(gateway: &Name, class: &str) -> String {
    let plain = format!("{}-{class}", gateway.name);
    if is_dns_1035_label(&plain) {
        return plain;
    }
    let starts_with_letter = plain.starts_with(|char: char| char.is_ascii_lowercase());
    let prefix = if starts_with_letter { "" } else { "gateway-" };
    let replaced = plain.chars().map(|char| match char {
        'a'..='z' | '0'..='9' | '-' => char,
        'A'..='Z' => char.to_ascii_lowercase(),
        _ => '-',
    });
    let readable: String = prefix.chars().chain(replaced).collect();
    with_hash(&readable, &format!("{}/{class}", gateway.name))
}

/// Returns an object's name as the value of a label. A name that is too long is shortened and gets a hash.
pub fn label_value(name: &str) -> String {
    match name.len() <= MAX_LABEL {
        true => name.to_owned(),
        false => with_hash(name, name),
    }
}

/// Shortens an ASCII text and appends a hash of `identity`.
fn with_hash(text: &str, identity: &str) -> String {
    let length = text.len().min(MAX_LABEL - HASH_DIGITS - 1);
    let kept = text.get(..length).unwrap_or_default();
    let kept = kept.trim_end_matches(['-', '.']);
    let hash = format!("{:016x}", fnv1a(identity));
    format!("{kept}-{}", &hash[..HASH_DIGITS])
}

/// FNV-1a, which is stable across versions and machines.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn is_dns_1035_label(text: &str) -> bool {
    let is_inner = |char: char| matches!(char, 'a'..='z' | '0'..='9' | '-');
    text.len() <= MAX_LABEL
        && text.starts_with(|char: char| char.is_ascii_lowercase())
        && !text.ends_with('-')
        && text.chars().all(is_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(gateway: &str, class: &str) -> String {
        object_name(&Name::new("shop", gateway), class)
    }

    // GEP-1762: "resources they generate SHOULD be named `<NAME>-<GATEWAY CLASS>`"
    #[test]
    fn a_short_name_is_the_gateways_and_its_classs() {
        assert_eq!(named("edge", "pointsman"), "edge-pointsman");
    }

    #[test]
    fn every_name_is_a_valid_service_name() {
        let long = "g".repeat(253);
        let names = ["1st", "a.b", "x-", &long, "0"];
        for name in names {
            for class in ["pointsman", "a.b.c", &long] {
                let result = named(name, class);
                assert!(is_dns_1035_label(&result), "{name} {class}: {result}");
                assert_eq!(result, named(name, class));
            }
        }
        assert!(named("1st", "pointsman").starts_with("gateway-1st-pointsman-"));
    }

    #[test]
    fn names_that_look_alike_after_replacement_differ() {
        assert_ne!(named("a.b", "c"), named("a-b", "c"));
        assert_ne!(named("a.b", "c"), named("a", "b.c"));
        let long = "g".repeat(100);
        assert_ne!(named(&long, "a"), named(&long, "b"));
        assert_ne!(named(&format!("{long}1"), "a"), named(&long, "a"));
    }

    #[test]
    fn a_label_value_is_shortened_only_where_it_must_be() {
        let fits = "g".repeat(63);
        assert_eq!(label_value(&fits), fits);
        let long = label_value(&"g".repeat(64));
        assert_eq!(long.len(), 63);
        assert_ne!(long, label_value(&"g".repeat(65)));
        let dots = format!("{}.{}", "g".repeat(51), "h".repeat(100));
        let value = label_value(&dots);
        assert!(
            value.starts_with(&"g".repeat(51)) && !value.contains('.'),
            "{value}"
        );
    }
}
