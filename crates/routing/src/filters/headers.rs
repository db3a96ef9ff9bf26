//! Header changes, as a list of single edits.

use std::sync::Arc;

use pointsman_resources::route::HeaderModifier;

/// One change. Names are in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// The header has this value and no other.
    Set(Arc<str>, Arc<str>),
    /// The header has this value too, after what it has.
    Add(Arc<str>, Arc<str>),
    /// The header is not there.
    Remove(Arc<str>),
}

impl Edit {
    fn name(&self) -> &str {
        match self {
            Edit::Set(name, _) | Edit::Add(name, _) | Edit::Remove(name) => name,
        }
    }
}

/// Headers that can be changed.
pub trait Headers {
    /// Makes this the header's only value.
    fn set(&mut self, name: &str, value: &str);
    /// Adds a value after those that the header has.
    fn add(&mut self, name: &str, value: &str);
    /// Takes the header away.
    fn remove(&mut self, name: &str);
}

/// The edits of a filter: what is set, added, removed. The API allows no name twice within one. What would have no effect is left out.
pub fn edits(modifier: &HeaderModifier) -> impl Iterator<Item = Edit> {
    let idle: Vec<&str> = modifier.without_effect().collect();
    let name = |name: &str| -> Arc<str> { name.to_ascii_lowercase().into() };
    let set = modifier
        .set
        .iter()
        .map(move |h| Edit::Set(name(&h.name), h.value.as_str().into()));
    let add = modifier.add.iter().map(move |h| match name(&h.name) {
        // RFC 9112 §3.2: a request has one.
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

/// Makes the changes, in order.
pub fn apply(edits: &[Edit], headers: &mut impl Headers) {
    for edit in edits {
        match edit {
            Edit::Set(name, value) => headers.set(name, value),
            Edit::Add(name, value) => headers.add(name, value),
            Edit::Remove(name) => headers.remove(name),
        }
    }
}

/// Header lines in order, names in any case.
impl Headers for Vec<(String, String)> {
    fn set(&mut self, name: &str, value: &str) {
        match self
            .iter_mut()
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
        {
            None => self.push((name.to_owned(), value.to_owned())),
            Some(line) => {
                // Emptied, so that it is the one that stays.
                let mut kept = std::mem::take(line);
                kept.1 = value.to_owned();
                self.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
                if let Some(place) = self.iter_mut().find(|(other, _)| other.is_empty()) {
                    *place = kept;
                }
            }
        }
    }

    fn add(&mut self, name: &str, value: &str) {
        self.push((name.to_owned(), value.to_owned()));
    }

    fn remove(&mut self, name: &str) {
        self.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_resources::route::Header;

    #[test]
    fn set_overwrites_add_appends_remove_removes_whatever_the_case() {
        let header = |name: &str, value: &str| Header {
            name: name.into(),
            value: value.into(),
        };
        let modifier = HeaderModifier {
            set: vec![header("X-Set", "new"), header("X-Fresh", "1")],
            add: vec![header("X-Add", "two")],
            remove: vec!["X-Remove".into()],
        };
        let line = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut headers = vec![
            line("x-set", "a"),
            line("x-add", "one"),
            line("X-SET", "b"),
            line("x-remove", "c"),
            line("other", "d"),
        ];
        apply(&edits(&modifier).collect::<Vec<_>>(), &mut headers);
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
