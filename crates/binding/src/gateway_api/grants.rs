//! ReferenceGrants: permission to reference an object in another namespace, and messages with a missing grant as YAML.

use pointsman_resources::Kind;

use crate::engine::Reader;

/// Separates the sentence of a message from the YAML document after it.
const SUGGESTED_GRANT: &str = ". This one would allow it:\n";
/// Separates sentences from several YAML documents.
const SUGGESTED_GRANTS: &str = ". These would allow it:\n";

/// Returns a message without its YAML documents.
pub fn sentence(message: &str) -> &str {
    let end = [SUGGESTED_GRANT, SUGGESTED_GRANTS]
        .iter()
        .filter_map(|mark| message.find(mark));
    &message[..end.min().unwrap_or(message.len())]
}

/// Joins messages into one. Their YAML documents come last, as one stream ready to paste.
pub(crate) fn join<T: AsRef<str>>(messages: &[T]) -> String {
    let parts = messages.iter().map(AsRef::as_ref);
    let parts = parts.map(|message| match message.split_once(SUGGESTED_GRANT) {
        Some((sentence, yaml)) => (sentence, Some(yaml)),
        None => (message, None),
    });
    let (plain, granted): (Vec<_>, Vec<_>) = parts.partition(|(_, yaml)| yaml.is_none());
    let sentences = plain.iter().chain(&granted).map(|(sentence, _)| *sentence);
    let mut text = sentences.collect::<Vec<_>>().join("; ");
    let mut documents: Vec<&str> = granted.iter().filter_map(|(_, yaml)| *yaml).collect();
    documents.dedup();
    if !documents.is_empty() {
        text.push_str(if documents.len() == 1 {
            SUGGESTED_GRANT
        } else {
            SUGGESTED_GRANTS
        });
        text.push_str(&documents.join("---\n"));
    }
    text
}

/// A reference to an object in another namespace.
pub(crate) struct CrossNamespaceReference<'a> {
    /// Kind of the referring object.
    pub from: Kind,
    /// Namespace of the referring object.
    pub namespace: &'a str,
    /// API group of the referenced object.
    pub group: &'a str,
    /// Kind of the referenced object.
    pub kind: &'a str,
    /// Namespace of the referenced object.
    pub to_namespace: &'a str,
    /// Name of the referenced object.
    pub name: &'a str,
}

impl CrossNamespaceReference<'_> {
    /// Returns whether the reference stays in its namespace or a ReferenceGrant permits it.
    pub fn is_permitted(&self, reader: &Reader<'_>) -> bool {
        self.namespace == self.to_namespace
            || reader.grants(self.to_namespace).any(|grant| {
                let from = grant.spec.from.iter().any(|from| {
                    from.group == self.from.group()
                        && from.kind == self.from.name()
                        && from.namespace == self.namespace
                });
                let to = grant.spec.to.iter().any(|to| {
                    to.group == self.group
                        && to.kind == self.kind
                        && to.name.as_deref().is_none_or(|name| name == self.name)
                });
                from && to
            })
    }

    /// Describes the missing ReferenceGrant, with YAML ready to paste.
    pub fn missing(&self) -> String {
        let CrossNamespaceReference {
            from,
            namespace,
            group,
            kind,
            to_namespace,
            name,
        } = self;
        let (from_group, from) = (from.group(), from.name());
        let group = if group.is_empty() { "\"\"" } else { group };
        let sentence = format!(
            "{kind} {to_namespace}/{name} can't be referenced from namespace {namespace} without a ReferenceGrant"
        );
        // The author of the reference chooses the name, and someone else pastes the manifest.
        if !is_object_name(name) {
            return sentence + ", and no object can have this name";
        }
        let name = &scalar(name);
        let own = format!("{}-{name}-from-{namespace}", kind.to_ascii_lowercase());
        let own = own.replace('"', "");
        format!(
            "{sentence}{SUGGESTED_GRANT}\
             apiVersion: gateway.networking.k8s.io/v1\n\
             kind: ReferenceGrant\n\
             metadata:\n\
             \x20 name: {own}\n\
             \x20 namespace: {to_namespace}\n\
             spec:\n\
             \x20 from:\n\
             \x20 - group: {from_group}\n\
             \x20   kind: {from}\n\
             \x20   namespace: {namespace}\n\
             \x20 to:\n\
             \x20 - group: {group}\n\
             \x20   kind: {kind}\n\
             \x20   name: {name}\n",
        )
    }
}

/// Returns whether Kubernetes accepts a name for some kind of object: an RFC 1123 subdomain.
fn is_object_name(name: &str) -> bool {
    let is_inner = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    let bytes = name.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    name.len() <= 253
        && bytes.iter().all(|byte| is_inner(*byte))
        && ends
            .iter()
            .all(|byte| byte.is_some_and(u8::is_ascii_alphanumeric))
}

/// Writes a name as a YAML string: `123`, `1e3` and `on` have to be quoted.
fn scalar(name: &str) -> String {
    const WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let is_number = name.starts_with(|first: char| first.is_ascii_digit());
    match is_number || WORDS.contains(&name) || [".inf", ".nan"].contains(&name) {
        true => format!("\"{name}\""),
        false => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The name of a reference may be any text, and the suggested manifest is meant to be pasted.
    #[test]
    fn a_name_is_quoted_or_left_out_of_the_manifest() {
        let quoted = missing("123");
        assert!(quoted.ends_with("    name: \"123\"\n"), "{quoted}");
        assert!(
            quoted.contains("  name: service-123-from-shop\n"),
            "{quoted}"
        );
        assert!(missing("on").ends_with("    name: \"on\"\n"));
        for name in [
            "cart\nkind: ClusterRole",
            "Cart",
            "a b",
            "x: y",
            "",
            "-x",
            "{}",
        ] {
            let text = missing(name);
            assert!(text.ends_with("no object can have this name"), "{text}");
        }
    }

    fn missing(name: &str) -> String {
        let reference = CrossNamespaceReference {
            from: Kind::HTTPRoute,
            namespace: "shop",
            group: "",
            kind: "Service",
            to_namespace: "team",
            name,
        };
        reference.missing()
    }

    #[test]
    fn a_message_with_yaml_ends_with_it() {
        let alone = missing("cart");
        assert_eq!(join(&[&alone]), alone);
        let text = join(&[
            missing("cart"),
            "Service shop/web does not exist".to_owned(),
        ]);
        assert!(
            text.starts_with(
                "Service shop/web does not exist; Service team/cart can't be referenced from namespace shop without a ReferenceGrant. This one would allow it:\napiVersion: "
            ),
            "{text}"
        );
        assert!(text.ends_with("    name: cart\n"), "{text}");
    }

    #[test]
    fn several_grants_are_documents_of_one_stream() {
        let text = join(&[missing("cart"), missing("stock")]);
        let (sentences, yaml) = text.split_once(SUGGESTED_GRANTS).expect("several");
        assert_eq!(sentences.matches("without a ReferenceGrant").count(), 2);
        let documents: Vec<&str> = yaml.split("---\n").collect();
        assert_eq!(documents.len(), 2);
        assert!(
            documents[0].contains("name: service-cart-from-shop"),
            "{text}"
        );
        assert!(
            documents[1].contains("name: service-stock-from-shop"),
            "{text}"
        );
    }
}
