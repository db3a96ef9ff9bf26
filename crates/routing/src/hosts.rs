//! A map by hostname: exact names and wildcard suffixes in hash maps, and one value for all hosts.

use pointsman_binding::bound::Hostname;

use crate::buckets::BucketMap;

/// Values by hostname.
#[derive(Clone, Debug)]
pub(crate) struct HostMap<T> {
    exact: BucketMap<T>,
    /// `.example.com` for `*.example.com`.
    wildcard: BucketMap<T>,
    any: Option<T>,
}

impl<T> Default for HostMap<T> {
    fn default() -> Self {
        HostMap {
            exact: BucketMap::default(),
            wildcard: BucketMap::default(),
            any: None,
        }
    }
}

impl<T: Clone> HostMap<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.wildcard.is_empty() && self.any.is_none()
    }

    /// Returns all values in unspecified order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.exact
            .values()
            .chain(self.wildcard.values())
            .chain(&self.any)
    }

    /// Changes the value of a hostname. `change` gets a default value if there is none, and returns whether to keep the result.
    pub(crate) fn edit(&mut self, hostname: Option<&Hostname>, change: impl FnOnce(&mut T) -> bool)
    where
        T: Default,
    {
        let Some(name) = hostname else {
            let any = self.any.get_or_insert_default();
            if !change(any) {
                self.any = None;
            }
            return;
        };
        let (map, key) = match name.suffix() {
            Some(suffix) => (&mut self.wildcard, suffix),
            None => (&mut self.exact, name.as_str()),
        };
        if let Some(value) = map.get_mut(key) {
            if !change(value) {
                map.remove(key);
            }
            return;
        }
        let mut value = T::default();
        if change(&mut value) {
            map.insert(key, value);
        }
    }

    /// Returns the first result of `wanted` for the values that apply to a host, the most specific hostname first, in the order of
    /// [`HostRank`](crate::precedence::HostRank).
    #[inline]
    pub(crate) fn find<'t, X>(
        &'t self,
        host: &str,
        mut wanted: impl FnMut(&'t T) -> Option<X>,
    ) -> Option<X> {
        if !self.exact.is_empty()
            && let Some(value) = self.exact.get(host)
            && let Some(found) = wanted(value)
        {
            return Some(found);
        }
        if !self.wildcard.is_empty() {
            // A wildcard matches at least one character, so a leading dot does not start a suffix.
            for (at, _) in host.match_indices('.').filter(|(at, _)| *at > 0) {
                if let Some(value) = self.wildcard.get(&host[at..])
                    && let Some(found) = wanted(value)
                {
                    return Some(found);
                }
            }
        }
        self.any.as_ref().and_then(wanted)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;
    use crate::precedence::HostRank;

    /// Names of few labels of different lengths, so that many of them match the same host.
    fn name() -> impl Strategy<Value = String> {
        let label = prop_oneof![Just("a"), Just("b"), Just("cc")];
        vec(label, 1..4).prop_map(|labels| labels.join("."))
    }

    fn hostname() -> impl Strategy<Value = Option<String>> {
        prop_oneof![
            4 => name().prop_map(Some),
            8 => name().prop_map(|name| Some(format!("*.{name}"))),
            1 => Just(None),
        ]
    }

    proptest! {
        #[test]
        fn the_walk_over_hostnames_is_in_the_order_of_their_ranks(
            names in btree_set(hostname(), 0..12),
            host in name(),
        ) {
            let names: BTreeSet<Option<Hostname>> = names
                .iter()
                .map(|name| name.as_deref().map(Hostname::new))
                .collect();
            let mut map: HostMap<Option<Hostname>> = HostMap::default();
            for name in &names {
                map.edit(name.as_ref(), |value| {
                    *value = name.clone();
                    true
                });
            }
            let mut walked = Vec::new();
            map.find(&host, |name| {
                walked.push(name.clone());
                None::<()>
            });
            let matches = |name: &Option<Hostname>| {
                name.as_ref().is_none_or(|name| name.matches(&host))
            };
            let mut ranked: Vec<_> = names.into_iter().filter(matches).collect();
            ranked.sort_by_key(|name| HostRank::of(name.as_ref()));
            prop_assert_eq!(walked, ranked);
        }
    }
}
