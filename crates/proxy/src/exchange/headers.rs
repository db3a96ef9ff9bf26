//! Header fields of a message that is forwarded: the end-to-end fields received, edited by filters. Names and values are not copied; they refer to the
//! connection's buffer, to the rule, or to values generated for the request.

use http::HeaderName;
use pointsman_routing::filters::headers::{self as edits, Field};

/// Header fields in order. Names may be in any case.
#[derive(Debug, Default)]
pub(crate) struct Headers<'a>(Vec<Header<'a>>);

/// A header field.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
    /// The parsed name, if available. HTTP/2 uses it without parsing again.
    pub(crate) known: Option<&'a HeaderName>,
}

impl<'a> From<(&'a [u8], &'a [u8])> for Header<'a> {
    fn from((name, value): (&'a [u8], &'a [u8])) -> Self {
        Header {
            name,
            value,
            known: None,
        }
    }
}

impl<'a> From<(&'a str, &'a str)> for Header<'a> {
    fn from((name, value): (&'a str, &'a str)) -> Self {
        (name.as_bytes(), value.as_bytes()).into()
    }
}

impl Field for Header<'_> {
    fn name(&self) -> &[u8] {
        self.name
    }

    fn replace_value(&mut self, other: Self) {
        self.value = other.value;
    }
}

impl<'a> Header<'a> {
    /// Creates a field with a parsed name.
    pub(crate) fn known(name: &'a HeaderName, value: &'a [u8]) -> Self {
        Header {
            name: name.as_str().as_bytes(),
            value,
            known: Some(name),
        }
    }

    fn is_named(&self, name: &[u8]) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

impl<'a> Headers<'a> {
    /// Collects fields, with capacity for a few more.
    pub(crate) fn new<L: Into<Header<'a>>>(headers: impl Iterator<Item = L>) -> Self {
        let mut all = Vec::with_capacity(24);
        all.extend(headers.map(Into::into));
        Headers(all)
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Header<'a>> + '_ {
        self.0.iter().copied()
    }

    /// Returns names and values.
    pub(crate) fn pairs(&self) -> impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + '_ {
        self.0.iter().map(|line| (line.name, line.value))
    }

    /// Returns the values of a name, in order.
    pub(crate) fn all<'n>(&'n self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + 'n {
        self.0
            .iter()
            .filter(move |line| line.is_named(name.as_bytes()))
            .map(|line| line.value)
    }

    /// Returns the first value of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.0
            .iter()
            .find(|line| line.is_named(name.as_bytes()))
            .map(|line| line.value)
    }

    /// Replaces all values of a name by one, at the position of the first.
    pub(crate) fn set(&mut self, new: Header<'a>) {
        edits::set(&mut self.0, new.name, new);
    }

    /// Appends a field.
    pub(crate) fn add(&mut self, name: &'a [u8], value: &'a [u8]) {
        self.push((name, value).into());
    }

    /// Appends a field.
    pub(crate) fn push(&mut self, line: Header<'a>) {
        self.0.push(line);
    }

    /// Removes all values of a name.
    pub(crate) fn remove(&mut self, name: &str) {
        edits::remove(&mut self.0, name.as_bytes());
    }

    /// Returns the fields for filters to edit.
    pub(crate) fn fields_mut(&mut self) -> &mut Vec<Header<'a>> {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_routing::filters::headers::Edit;

    #[test]
    fn edits_are_made_in_order() {
        let received: [(&[u8], &[u8]); 4] = [
            (b"X-Set", b"a"),
            (b"other", b"b"),
            (b"x-set", b"c"),
            (b"x-removed", b"d"),
        ];
        let edits = [
            Edit::Set("x-set".into(), "new".into()),
            Edit::Set("x-fresh".into(), "1".into()),
            Edit::Add("other".into(), "2".into()),
            Edit::Remove("X-Removed".into()),
        ];
        let mut headers = Headers::new(received.into_iter());
        edits::apply(&edits, headers.fields_mut());
        let got: Vec<_> = headers
            .pairs()
            .map(|(name, value)| {
                (
                    String::from_utf8_lossy(name).into_owned(),
                    String::from_utf8_lossy(value).into_owned(),
                )
            })
            .collect();
        let wanted = [
            ("X-Set", "new"),
            ("other", "b"),
            ("x-fresh", "1"),
            ("other", "2"),
        ];
        assert_eq!(
            got,
            wanted.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        assert_eq!(headers.all("OTHER").count(), 2);
        assert_eq!(headers.get("x-fresh"), Some(&b"1"[..]));
    }
}
