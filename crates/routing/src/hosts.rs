//! Things by hostname: exact ones in a hash map, wildcards by their suffix, and one for every host.

use pointsman_binding::bound::Hostname;

use crate::buckets::Buckets;

/// Things by hostname.
#[derive(Clone, Debug)]
pub(crate) struct Hosts<T> {
    exact: Buckets<T>,
    /// `.example.com` for `*.example.com`.
    wildcard: Buckets<T>,
    any: Option<T>,
}

impl<T> Default for Hosts<T> {
    fn default() -> Self {
        Hosts {
            exact: Buckets::default(),
            wildcard: Buckets::default(),
            any: None,
        }
    }
}

impl<T: Clone> Hosts<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.wildcard.is_empty() && self.any.is_none()
    }

    /// Every thing, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.exact
            .values()
            .chain(self.wildcard.values())
            .chain(&self.any)
    }

    /// Changes what stands at a hostname; `change` gets a default where there was nothing and says whether the result is to be kept.
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
        if let Some(thing) = map.get_mut(key) {
            if !change(thing) {
                map.remove(key);
            }
            return;
        }
        let mut thing = T::default();
        if change(&mut thing) {
            map.insert(key, thing);
        }
    }

    /// What the first of the things for a host gives, the most specific hostname first.
    #[inline]
    pub(crate) fn find<'t, X>(
        &'t self,
        host: &str,
        mut wanted: impl FnMut(&'t T) -> Option<X>,
    ) -> Option<X> {
        if !self.exact.is_empty()
            && let Some(thing) = self.exact.get(host)
            && let Some(found) = wanted(thing)
        {
            return Some(found);
        }
        if !self.wildcard.is_empty() {
            // A wildcard stands for at least one character: a dot at the very start begins no suffix.
            for (at, _) in host.match_indices('.').filter(|(at, _)| *at > 0) {
                if let Some(thing) = self.wildcard.get(&host[at..])
                    && let Some(found) = wanted(thing)
                {
                    return Some(found);
                }
            }
        }
        self.any.as_ref().and_then(wanted)
    }
}
