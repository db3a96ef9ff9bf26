//! Resources that proxies reject, in little memory: a proxy of another version may reject thousands.

use std::collections::{BTreeSet, HashMap};

use tokio::time::Instant;

use crate::server::store::{ProxyId, SlotId, Store};

/// Resources that one proxy rejects. Each is referenced, so that its slot is not used for another resource meanwhile.
#[derive(Debug, Default)]
pub(in crate::server::store) struct Rejections {
    /// Sorted.
    current: Vec<SlotId>,
    /// Those that its next acknowledgement lists, as far as they are known.
    next: BTreeSet<SlotId>,
}

/// Number of proxies that reject a resource.
#[derive(Debug, Default)]
pub(super) struct RejectionCounts(HashMap<SlotId, u32>);

impl RejectionCounts {
    pub(super) fn contains(&self, id: SlotId) -> bool {
        self.0.contains_key(&id)
    }

    fn add(&mut self, id: SlotId) {
        *self.0.entry(id).or_default() += 1;
    }

    fn remove(&mut self, id: SlotId) {
        if let Some(count) = self.0.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&id);
            }
        }
    }
}

impl Rejections {
    pub(in crate::server::store) fn is_empty(&self) -> bool {
        self.current.is_empty()
    }

    pub(in crate::server::store) fn contains(&self, id: SlotId) -> bool {
        self.current.binary_search(&id).is_ok()
    }
}

impl Store {
    /// Records resources that the next acknowledgement of a proxy rejects. Names of unknown resources are ignored.
    pub fn reject<'n>(&mut self, proxy: ProxyId, names: impl Iterator<Item = &'n str>) {
        let Some(progress) = self.proxies.get_mut(&proxy) else {
            return;
        };
        for name in names {
            if let Some(id) = self.slots.find(name)
                && progress.rejections.next.insert(id)
            {
                self.slots.add_reference(id);
            }
        }
    }

    /// Replaces the rejected resources of a proxy by those that were recorded since the last call, and schedules the affected routes for examination: those that use
    /// a resource that the proxy rejects now and did not before, or the reverse, or one of `changed`, whose reasons have changed.
    pub fn finish_rejections<'n>(
        &mut self,
        proxy: ProxyId,
        changed: impl Iterator<Item = &'n str>,
        now: Instant,
    ) {
        let Some(progress) = self.proxies.get_mut(&proxy) else {
            return;
        };
        let log = progress.log;
        let new: Vec<SlotId> = std::mem::take(&mut progress.rejections.next)
            .into_iter()
            .collect();
        let old = std::mem::replace(&mut progress.rejections.current, new.clone());
        let added = new.iter().filter(|id| old.binary_search(id).is_err());
        let gone = old.iter().filter(|id| new.binary_search(id).is_err());
        let mut affected: BTreeSet<SlotId> = added.chain(gone).copied().collect();
        let mut affects_all = false;
        for name in changed {
            match self.slots.find(name) {
                Some(id) => drop(affected.insert(id)),
                None => affects_all = true,
            }
        }
        for id in affected {
            let routes = self.slots[id].routes.clone();
            // Any route may use a resource that is a part of none.
            affects_all |= routes.is_empty();
            for route in routes {
                self.effects.schedule(route, now);
            }
        }
        new.iter().for_each(|id| self.effects.rejected.add(*id));
        self.release_rejections(&old);
        if affects_all {
            self.schedule_all_in(log, now);
        }
    }

    /// Forgets the rejections of a proxy that has disconnected.
    pub(in crate::server::store) fn forget_rejections(&mut self, rejections: Rejections) {
        self.release_rejections(&rejections.current);
        for id in rejections.next {
            self.slots.release(id);
        }
    }

    fn release_rejections(&mut self, ids: &[SlotId]) {
        for id in ids {
            self.effects.rejected.remove(*id);
            self.slots.release(*id);
        }
    }
}
