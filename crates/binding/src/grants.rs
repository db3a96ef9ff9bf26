//! ReferenceGrants: whether an object may refer to one in another namespace.

use pointsman_resources::Kind;

use crate::store::Reader;

/// Who refers, to what.
pub(crate) struct Reference<'a> {
    /// The referrer's kind.
    pub from: Kind,
    /// The referrer's namespace.
    pub namespace: &'a str,
    /// The API group of what is referred to.
    pub group: &'a str,
    /// Its kind.
    pub kind: &'a str,
    /// Its namespace.
    pub to_namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

impl Reference<'_> {
    /// Whether the reference stays in its namespace or is granted.
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

    /// What is missing, as YAML ready to paste.
    pub fn missing(&self) -> String {
        let Reference {
            from,
            namespace,
            group,
            kind,
            to_namespace,
            name,
        } = self;
        let (from_group, from) = (from.group(), from.name());
        let group = if group.is_empty() { "\"\"" } else { group };
        format!(
            "{kind} {to_namespace}/{name} may not be referred to from namespace {namespace} without a ReferenceGrant. This one would allow it:\n\
             apiVersion: gateway.networking.k8s.io/v1\n\
             kind: ReferenceGrant\n\
             metadata:\n\
             \x20 name: {lower}-from-{namespace}\n\
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
            lower = kind.to_ascii_lowercase(),
        )
    }
}
