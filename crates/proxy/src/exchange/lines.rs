//! Header lines that are about to go out: what came in, less what may not be passed on, changed by filters. Nothing is copied; names and values stay where they
//! are, in a connection's buffer, in a rule, in what was made for this request.

use pointsman_routing::filters::headers::Edit;

/// Names and values in order. Names are in any case.
#[derive(Debug, Default)]
pub(crate) struct Lines<'a>(Vec<(&'a [u8], &'a [u8])>);

impl<'a> Lines<'a> {
    /// These lines, with room for some more.
    pub(crate) fn new(lines: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut all = Vec::with_capacity(24);
        all.extend(lines);
        Lines(all)
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + '_ {
        self.0.iter().copied()
    }

    /// The values of a name, in order.
    pub(crate) fn all<'n>(&'n self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + 'n {
        self.0
            .iter()
            .filter(move |(other, _)| other.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| *value)
    }

    /// The first value of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.0
            .iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| *value)
    }

    /// Makes this the only value of a name, in the place of the first one.
    pub(crate) fn set(&mut self, name: &'a [u8], value: &'a [u8]) {
        let mut placed = false;
        self.0.retain_mut(|(other, old)| {
            if !other.eq_ignore_ascii_case(name) {
                return true;
            }
            *old = value;
            !std::mem::replace(&mut placed, true)
        });
        if !placed {
            self.0.push((name, value));
        }
    }

    /// Adds a value after those that there are.
    pub(crate) fn add(&mut self, name: &'a [u8], value: &'a [u8]) {
        self.0.push((name, value));
    }

    /// Takes a name away.
    pub(crate) fn remove(&mut self, name: &str) {
        self.0
            .retain(|(other, _)| !other.eq_ignore_ascii_case(name.as_bytes()));
    }

    /// Makes changes, in order. None of them is to framing, which is made anew for each connection.
    pub(crate) fn edit(&mut self, edits: &'a [Edit]) {
        for edit in edits {
            match edit {
                Edit::Set(name, value) => self.set(name.as_bytes(), value.as_bytes()),
                Edit::Add(name, value) => self.add(name.as_bytes(), value.as_bytes()),
                Edit::Remove(name) => self.remove(name),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        lines.edit(&edits);
        let got: Vec<_> = lines
            .iter()
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
