//! Header lines that are about to go out: what came in, less what may not be passed on, changed by filters. Nothing is copied; names and values stay where they
//! are, in a connection's buffer, in a rule, in what was made for this request.

use http::HeaderName;
use pointsman_routing::filters::headers::{self, Field};

/// Names and values in order. Names are in any case.
#[derive(Debug, Default)]
pub(crate) struct Lines<'a>(Vec<Line<'a>>);

/// One of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line<'a> {
    /// The name.
    pub(crate) name: &'a [u8],
    /// The value.
    pub(crate) value: &'a [u8],
    /// The name as HTTP/2 takes it, where it is known: then it need not be read again.
    pub(crate) known: Option<&'a HeaderName>,
}

impl<'a> From<(&'a [u8], &'a [u8])> for Line<'a> {
    fn from((name, value): (&'a [u8], &'a [u8])) -> Self {
        Line {
            name,
            value,
            known: None,
        }
    }
}

impl<'a> From<(&'a str, &'a str)> for Line<'a> {
    fn from((name, value): (&'a str, &'a str)) -> Self {
        (name.as_bytes(), value.as_bytes()).into()
    }
}

impl Field for Line<'_> {
    fn name(&self) -> &[u8] {
        self.name
    }

    fn replace_value(&mut self, other: Self) {
        self.value = other.value;
    }
}

impl<'a> Line<'a> {
    /// A line with a name as HTTP/2 takes it.
    pub(crate) fn known(name: &'a HeaderName, value: &'a [u8]) -> Self {
        Line {
            name: name.as_str().as_bytes(),
            value,
            known: Some(name),
        }
    }

    fn is_named(&self, name: &[u8]) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

impl<'a> Lines<'a> {
    /// These lines, with room for some more.
    pub(crate) fn new<L: Into<Line<'a>>>(lines: impl Iterator<Item = L>) -> Self {
        let mut all = Vec::with_capacity(24);
        all.extend(lines.map(Into::into));
        Lines(all)
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Line<'a>> + '_ {
        self.0.iter().copied()
    }

    /// All of them, as names and values.
    pub(crate) fn pairs(&self) -> impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + '_ {
        self.0.iter().map(|line| (line.name, line.value))
    }

    /// The values of a name, in order.
    pub(crate) fn all<'n>(&'n self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + 'n {
        self.0
            .iter()
            .filter(move |line| line.is_named(name.as_bytes()))
            .map(|line| line.value)
    }

    /// The first value of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.0
            .iter()
            .find(|line| line.is_named(name.as_bytes()))
            .map(|line| line.value)
    }

    /// Makes this the only value of a name, in the place of the first one.
    pub(crate) fn set_line(&mut self, new: Line<'a>) {
        headers::set(&mut self.0, new.name, new);
    }

    /// Adds a value after those that there are.
    pub(crate) fn add(&mut self, name: &'a [u8], value: &'a [u8]) {
        self.add_line((name, value).into());
    }

    /// As [`add`](Self::add).
    pub(crate) fn add_line(&mut self, line: Line<'a>) {
        self.0.push(line);
    }

    /// Takes a name away.
    pub(crate) fn remove(&mut self, name: &str) {
        headers::remove(&mut self.0, name.as_bytes());
    }

    /// The fields, for filters to edit.
    pub(crate) fn fields_mut(&mut self) -> &mut Vec<Line<'a>> {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_routing::filters::headers::Edit;

    #[test]
    fn edits_are_made_in_order() {
        let came: [(&[u8], &[u8]); 4] = [
            (b"X-Set", b"a"),
            (b"other", b"b"),
            (b"x-set", b"c"),
            (b"x-gone", b"d"),
        ];
        let edits = [
            Edit::Set("x-set".into(), "new".into()),
            Edit::Set("x-fresh".into(), "1".into()),
            Edit::Add("other".into(), "2".into()),
            Edit::Remove("X-Gone".into()),
        ];
        let mut lines = Lines::new(came.into_iter());
        headers::apply(&edits, lines.fields_mut());
        let got: Vec<_> = lines
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
        assert_eq!(lines.all("OTHER").count(), 2);
        assert_eq!(lines.get("x-fresh"), Some(&b"1"[..]));
    }
}
