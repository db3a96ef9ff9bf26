//! Header filters, as a list of edits.

use std::borrow::Cow;
use std::sync::Arc;

use pointsman_resources::route::HeaderModifier;

/// An edit of a header. Names are in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Replaces all values of the header by this one.
    Set(Arc<str>, Arc<str>),
    /// Appends a value.
    Add(Arc<str>, Arc<str>),
    /// Removes the header.
    Remove(Arc<str>),
}

impl Edit {
    pub(crate) fn name(&self) -> &str {
        match self {
            Edit::Set(name, _) | Edit::Add(name, _) | Edit::Remove(name) => name,
        }
    }
}

/// Returns the edits of a filter: set, then add, then remove. Edits without effect are omitted.
pub fn edits(modifier: &HeaderModifier) -> impl Iterator<Item = Edit> {
    let idle: Vec<&str> = modifier.without_effect().collect();
    let name = |name: &str| -> Arc<str> { name.to_ascii_lowercase().into() };
    let [set, add] = modifier.effective();
    let set = set.map(move |h| Edit::Set(name(&h.name), h.value.as_str().into()));
    let add = add.map(move |h| match name(&h.name) {
        // RFC 9112 §3.2: a request has exactly one Host.
        host if *host == *"host" => Edit::Set(host, h.value.as_str().into()),
        name => Edit::Add(name, h.value.as_str().into()),
    });
    let remove = modifier.remove.iter().map(move |n| Edit::Remove(name(n)));
    let all = set.chain(add).chain(remove);
    all.filter(move |edit| {
        !idle
            .iter()
            .any(|idle| edit.name().eq_ignore_ascii_case(idle))
    })
}

/// Names of the request header fields that a rule's filters edit. They are compared like in backends that treat `_` as `-` (CGI and its descendants).
#[derive(Clone, Debug, Default)]
pub struct EditedNames(Vec<(Box<str>, bool)>);

impl EditedNames {
    /// Collects the names of edits.
    pub fn of(edits: &[Edit]) -> Self {
        let mut names: Vec<(Box<str>, bool)> = Vec::new();
        for edit in edits {
            let name = edit.name().to_ascii_lowercase().replace('_', "-");
            let replaced = !matches!(edit, Edit::Add(..));
            match names.iter_mut().find(|(known, _)| **known == *name) {
                Some((_, known)) => *known |= replaced,
                None => names.push((name.into(), replaced)),
            }
        }
        EditedNames(names)
    }

    /// Returns whether a filter sets, adds or removes a field that a backend may confuse with this one.
    pub fn contains(&self, name: &[u8]) -> bool {
        self.0
            .iter()
            .any(|(known, _)| equals_with_dashes(name, known))
    }

    /// Returns whether a filter sets or removes a field that a backend may confuse with this one.
    fn replaces(&self, name: &[u8]) -> bool {
        let mut names = self.0.iter();
        names.any(|(known, replaced)| *replaced && equals_with_dashes(name, known))
    }
}

/// Names with a `-` that Pointsman sets or removes in every request, or that define its framing.
const OWN_NAMES: [&str; 11] = [
    "content-length",
    "transfer-encoding",
    "keep-alive",
    "proxy-connection",
    "http2-settings",
    "sec-websocket-key",
    "sec-websocket-version",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-request-id",
];

/// Returns whether a name equals `known` for a backend that treats `_` as `-`. `known` is in lower case and has no `_`.
pub fn equals_with_dashes(name: &[u8], known: &str) -> bool {
    let same = |(byte, known): (&u8, &u8)| match byte {
        b'_' => *known == b'-',
        byte => byte.to_ascii_lowercase() == *known,
    };
    name.len() == known.len() && name.iter().zip(known.as_bytes()).all(same)
}

/// Returns whether a name has a `_`, and a backend may confuse the field with framing or with a field that Pointsman or a filter sets or removes.
pub fn is_ambiguous(name: &[u8], edited: Option<&EditedNames>) -> bool {
    name.contains(&b'_')
        && (OWN_NAMES.iter().any(|own| equals_with_dashes(name, own))
            || edited.is_some_and(|edited| edited.replaces(name)))
}

/// Fields that are specific to a connection (RFC 9110 §7.6.1) or framing, which is generated for each connection. They are never forwarded.
pub const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "content-length",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Fields that `Connection` can't remove. RFC 9110 §7.6.1: "A sender MUST NOT send a connection option corresponding to a field that is intended for all
/// recipients of the content." Host and framing are not listed because they are never forwarded but generated.
const PROTECTED_FIELDS: [&str; 8] = [
    "authorization",
    "cache-control",
    "content-encoding",
    "content-language",
    "content-location",
    "content-range",
    "content-type",
    "cookie",
];

/// Returns whether a field is one of [`HOP_BY_HOP`].
pub fn is_hop_by_hop(name: &[u8]) -> bool {
    let mut names = HOP_BY_HOP.iter();
    names.any(|own| name.eq_ignore_ascii_case(own.as_bytes()))
}

/// Returns whether an option of `Connection` removes the fields of its name.
pub fn is_removable_by_connection(option: &[u8]) -> bool {
    let mut names = PROTECTED_FIELDS.iter();
    !names.any(|own| option.eq_ignore_ascii_case(own.as_bytes()))
}

/// Returns whether only a trusted proxy may send a field of this name: `x-forwarded-*` and `forwarded` (RFC 7239), from which backends learn the client's
/// address, and the scheme, host, port and path that it requested.
pub fn is_x_forwarded(name: &[u8]) -> bool {
    const PREFIX: &str = "x-forwarded-";
    let begins = |name: &[u8]| {
        name.get(..PREFIX.len())
            .is_some_and(|begin| equals_with_dashes(begin, PREFIX))
    };
    begins(name) || equals_with_dashes(name, "forwarded")
}

/// A header field in the caller's representation.
pub trait Field {
    /// Returns the name, in any case.
    fn name(&self) -> &[u8];

    /// Takes the value of another field and keeps the name.
    fn replace_value(&mut self, other: Self);
}

/// Applies edits in order. They can't affect framing, which is generated for each connection.
pub fn apply<'e, F>(edits: &'e [Edit], fields: &mut Vec<F>)
where
    F: Field + From<(&'e str, &'e str)>,
{
    for edit in edits {
        match edit {
            Edit::Set(name, value) => set(fields, name.as_bytes(), F::from((name, value))),
            Edit::Add(name, value) => fields.push(F::from((name, value))),
            Edit::Remove(name) => remove(fields, name.as_bytes()),
        }
    }
}

/// Replaces all fields of a name by one, at the position of the first.
pub fn set<F: Field>(fields: &mut Vec<F>, name: &[u8], field: F) {
    let mut new = Some(field);
    fields.retain_mut(|old| {
        if !old.name().eq_ignore_ascii_case(name) {
            return true;
        }
        match new.take() {
            Some(new) => {
                old.replace_value(new);
                true
            }
            None => false,
        }
    });
    fields.extend(new);
}

/// Removes all fields of a name.
pub fn remove<F: Field>(fields: &mut Vec<F>, name: &[u8]) {
    fields.retain(|field| !field.name().eq_ignore_ascii_case(name));
}

/// A header field as text, borrowed from a request or a rule if possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextField<'a> {
    /// The name.
    pub name: Cow<'a, str>,
    /// The value.
    pub value: Cow<'a, str>,
}

impl<'a> From<(&'a str, &'a str)> for TextField<'a> {
    fn from((name, value): (&'a str, &'a str)) -> Self {
        TextField {
            name: Cow::Borrowed(name),
            value: Cow::Borrowed(value),
        }
    }
}

impl Field for TextField<'_> {
    fn name(&self) -> &[u8] {
        self.name.as_bytes()
    }

    fn replace_value(&mut self, other: Self) {
        self.value = other.value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_resources::route::Header;

    #[test]
    fn set_overwrites_add_appends_remove_removes_regardless_of_case() {
        let header = |name: &str, value: &str| Header {
            name: name.into(),
            value: value.into(),
        };
        let modifier = HeaderModifier {
            set: vec![header("X-Set", "new"), header("X-Fresh", "1")],
            add: vec![header("X-Add", "two")],
            remove: vec!["X-Remove".into()],
        };
        let line = |name: &'static str, value: &'static str| TextField::from((name, value));
        let mut headers = vec![
            line("x-set", "a"),
            line("x-add", "one"),
            line("X-SET", "b"),
            line("x-remove", "c"),
            line("other", "d"),
        ];
        let edits: Vec<Edit> = edits(&modifier).collect();
        apply(&edits, &mut headers);
        let wanted = vec![
            line("x-set", "new"),
            line("x-add", "one"),
            line("other", "d"),
            line("x-fresh", "1"),
            line("x-add", "two"),
        ];
        assert_eq!(headers, wanted);
    }

    #[test]
    fn a_name_with_underscores_that_reads_as_one_that_is_set_or_removed_is_removed() {
        let edits = [
            Edit::Set("x-set".into(), "1".into()),
            Edit::Add("x-added".into(), "1".into()),
            Edit::Remove("x-re_moved".into()),
        ];
        let edited = EditedNames::of(&edits);
        let table = [
            ("x_set", true),
            ("X_Set", true),
            ("x-set", false),
            ("x_added", false),
            ("x_re-moved", true),
            ("x-re-moved", false),
            ("x_other", false),
            ("X_Forwarded-For", true),
            ("x_forwarded_port", false),
            ("Transfer_Encoding", true),
            ("content_length", true),
            ("content_type", false),
            ("x_request_id", true),
            ("_", false),
        ];
        for (name, removed) in table {
            let name = name.as_bytes();
            assert_eq!(is_ambiguous(name, Some(&edited)), removed, "{name:?}");
        }
        for name in ["x-set", "X_SET", "x_added", "x-re-moved", "X_Re_Moved"] {
            assert!(edited.contains(name.as_bytes()), "{name}");
        }
        assert!(!edited.contains(b"x-other"));
        assert!(!is_ambiguous(b"x_set", None));
    }

    // "If multiple entries specify equivalent header names, the first entry with an equivalent name MUST be considered […].
    // Subsequent entries with an equivalent header name MUST be ignored."
    #[test]
    fn the_first_of_names_that_differ_only_in_case_counts() {
        let header = |name: &str, value: &str| Header {
            name: name.into(),
            value: value.into(),
        };
        let modifier = HeaderModifier {
            set: vec![header("X-One", "1"), header("x-one", "2")],
            add: vec![header("x-Two", "1"), header("X-TWO", "2")],
            remove: vec![],
        };
        let wanted = [
            Edit::Set("x-one".into(), "1".into()),
            Edit::Add("x-two".into(), "1".into()),
        ];
        assert_eq!(edits(&modifier).collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn several_actions_on_one_name_are_applied_in_the_order_set_add_remove() {
        let header = |value: &str| Header {
            name: "X-Both".into(),
            value: value.into(),
        };
        let mut modifier = HeaderModifier {
            set: vec![header("set")],
            add: vec![header("added")],
            remove: vec![],
        };
        let line = |name: &'static str, value: &'static str| TextField::from((name, value));
        let result = |modifier: &HeaderModifier| {
            let edits: Vec<Edit> = edits(modifier).collect();
            let mut headers = vec![line("x-both", "old")];
            apply(&edits, &mut headers);
            let pair = |field: &TextField<'_>| (field.name.to_string(), field.value.to_string());
            headers.iter().map(pair).collect::<Vec<_>>()
        };
        let pair = |value: &str| ("x-both".to_owned(), value.to_owned());
        assert_eq!(result(&modifier), [pair("set"), pair("added")]);
        modifier.remove.push("x-BOTH".into());
        assert_eq!(result(&modifier), []);
    }

    #[test]
    fn framing_is_nobodys_to_set_and_a_request_has_one_host() {
        let header = |name: &str| Header {
            name: name.into(),
            value: "1".into(),
        };
        let modifier = HeaderModifier {
            set: vec![header("Content-Length"), header("x-set")],
            add: vec![header("Transfer-Encoding"), header("Host")],
            remove: vec!["x-gone".into()],
        };
        let wanted = [
            Edit::Set("x-set".into(), "1".into()),
            Edit::Set("host".into(), "1".into()),
            Edit::Remove("x-gone".into()),
        ];
        assert_eq!(edits(&modifier).collect::<Vec<_>>(), wanted);
        let modifier = HeaderModifier {
            remove: vec!["Host".into()],
            ..HeaderModifier::default()
        };
        assert_eq!(edits(&modifier).count(), 0);
    }
}
