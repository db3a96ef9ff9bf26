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

    /// Returns the first result of `wanted` for the values that apply to a host, the most specific hostname first.
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
