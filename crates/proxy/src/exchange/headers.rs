//! Header fields of a message that is forwarded: the end-to-end fields received, edited by filters. Names and values are not copied; they refer to the
//! connection's buffer, to the rule, or to values generated for the request.

use http::HeaderName;
use pointsman_routing::filters::headers::{self as edits, Field};

use crate::http1::{HeadWriter, WriteError};

/// Capacity for the fields that a forwarded message gets: `x-forwarded-*`, the request id or `date`, and one of a filter.
const SPARE: usize = 5;

/// Header fields in order. Names may be in any case.
#[derive(Debug, Default)]
pub(crate) struct Headers<'a>(Vec<Header<'a>>);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Header<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
    /// The parsed name, if available. HTTP/2 uses it without parsing again.
    pub(crate) known: Option<&'a HeaderName>,
    /// Name and value were validated by a parser or generated. Others, such as those of filters, are validated when they are written.
    validated: bool,
}

impl<'a> From<(&'a [u8], &'a [u8])> for Header<'a> {
    fn from((name, value): (&'a [u8], &'a [u8])) -> Self {
        Header {
            name,
            value,
            known: None,
            validated: false,
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
        self.validated &= other.validated;
    }
}

impl<'a> Header<'a> {
    /// Creates a field with a parsed name and a valid value.
    pub(crate) fn known(name: &'a HeaderName, value: &'a [u8]) -> Self {
        Header {
            name: name.as_str().as_bytes(),
            value,
            known: Some(name),
            validated: true,
        }
    }

    /// Creates a field that the parser of HTTP/1 has validated.
    pub(crate) fn parsed((name, value): (&'a [u8], &'a [u8])) -> Self {
        Header {
            name,
            value,
            known: None,
            validated: true,
        }
    }

    pub(crate) fn is_named(&self, name: &[u8]) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

impl<'a> Headers<'a> {
    /// Collects fields, with capacity for a few more.
    pub(crate) fn new<L: Into<Header<'a>>>(headers: impl Iterator<Item = L>) -> Self {
        let mut all = Headers::with_capacity(headers.size_hint().1.unwrap_or(0) + SPARE);
        all.0.extend(headers.map(Into::into));
        all
    }

    /// Creates an empty list with capacity for this number of fields.
    pub(crate) fn with_capacity(count: usize) -> Self {
        Headers(Vec::with_capacity(count))
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Header<'a>> + '_ {
        self.0.iter().copied()
    }

    /// Returns names and values.
    pub(crate) fn pairs(&self) -> impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + '_ {
        self.0.iter().map(|header| (header.name, header.value))
    }

    /// Returns the values of a name, in order.
    pub(crate) fn all<'n>(&'n self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + 'n {
        self.0
            .iter()
            .filter(move |header| header.is_named(name.as_bytes()))
            .map(|header| header.value)
    }

    /// Returns the first value of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.0
            .iter()
            .find(|header| header.is_named(name.as_bytes()))
            .map(|header| header.value)
    }

    /// Replaces all values of a name by one, at the position of the first.
    pub(crate) fn set(&mut self, new: Header<'a>) {
        edits::set(&mut self.0, new.name, new);
    }

    /// Appends a field that is validated when it is written.
    pub(crate) fn push_unvalidated(&mut self, name: &'a [u8], value: &'a [u8]) {
        self.push((name, value).into());
    }

    /// Appends a field.
    pub(crate) fn push(&mut self, header: Header<'a>) {
        self.0.push(header);
    }

    /// Writes the fields. Fails if one that was not validated before is invalid.
    pub(crate) fn write(&self, writer: &mut HeadWriter<'_>) -> Result<(), WriteError> {
        self.0.iter().try_for_each(|header| match header.validated {
            true => {
                writer.validated_field(header.name, header.value);
                Ok(())
            }
            false => writer.field(header.name, header.value),
        })
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

    #[test]
    fn only_fields_that_no_parser_has_validated_are_validated_when_written() {
        let written = |edit: &[Edit]| {
            let received: [(&[u8], &[u8]); 1] = [(b"x-a", b"1")];
            let mut headers = Headers::new(received.into_iter().map(Header::parsed));
            edits::apply(edit, headers.fields_mut());
            let mut out = Vec::new();
            let mut writer = HeadWriter::response(&mut out, 200, None)?;
            headers.write(&mut writer)?;
            writer.finish();
            Ok(String::from_utf8_lossy(&out).into_owned())
        };
        let head = "HTTP/1.1 200 OK\r\nx-a: 1\r\n\r\n".to_owned();
        assert_eq!(written(&[]), Ok(head));
        let replaced = Edit::Set("x-a".into(), "2\r\nx-b: 3".into());
        assert_eq!(written(&[replaced]), Err(WriteError::Value));
        let added = Edit::Add("x b".into(), "2".into());
        assert_eq!(written(&[added]), Err(WriteError::Name));
    }
}
