//! Client connections without a request in progress, ordered by idle time. Near a limit the longest-idle ones are closed to make room, like nginx's reusable
//! connections.

use std::cell::RefCell;
use std::task::{Context, Poll, Waker};

/// Maximum number of connections closed at once: room for a burst without losing most of the others.
const BATCH: usize = 32;

/// The idle connections of one worker.
#[derive(Debug, Default)]
pub(super) struct IdleConnections(RefCell<IdleList>);

/// Slot of a connection.
pub(super) type SlotIndex = u32;

/// Null slot.
const NIL: SlotIndex = SlotIndex::MAX;

/// A doubly linked list, longest-idle connection first. A busy connection keeps its slot and waker.
#[derive(Debug)]
struct IdleList {
    slots: Vec<IdleSlot>,
    free: Vec<SlotIndex>,
    first: SlotIndex,
    last: SlotIndex,
    len: usize,
}

#[derive(Debug)]
struct IdleSlot {
    state: IdleState,
    previous: SlotIndex,
    next: SlotIndex,
    /// Second in which the connection became idle, as counted by the worker.
    since: u64,
    waker: Waker,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdleState {
    Busy,
    Idle,
    /// Selected to close.
    Closing,
}

impl Default for IdleList {
    fn default() -> Self {
        IdleList {
            slots: Vec::new(),
            free: Vec::new(),
            first: NIL,
            last: NIL,
            len: 0,
        }
    }
}

impl IdleConnections {
    /// Marks a connection as idle. Ready if it was selected to close.
    pub(super) fn poll(
        &self,
        slot: Option<SlotIndex>,
        second: u64,
        cx: &mut Context<'_>,
    ) -> (SlotIndex, Poll<()>) {
        let mut list = self.0.borrow_mut();
        let slot = slot.unwrap_or_else(|| list.add(cx.waker()));
        let entry = list.entry(slot);
        match entry.state {
            IdleState::Closing => return (slot, Poll::Ready(())),
            IdleState::Idle => {}
            IdleState::Busy => {
                entry.since = second;
                list.append(slot);
            }
        }
        list.entry(slot).waker.clone_from(cx.waker());
        (slot, Poll::Pending)
    }

    /// Marks a connection as busy. Returns true if it had been selected to close.
    pub(super) fn set_busy(&self, slot: SlotIndex) -> bool {
        let mut list = self.0.borrow_mut();
        match list.entry(slot).state {
            IdleState::Idle => list.unlink(slot),
            IdleState::Busy => return false,
            IdleState::Closing => {}
        }
        std::mem::replace(&mut list.entry(slot).state, IdleState::Busy) == IdleState::Closing
    }

    /// Removes a closed connection.
    pub(super) fn remove(&self, slot: SlotIndex) {
        self.set_busy(slot);
        let mut list = self.0.borrow_mut();
        list.entry(slot).waker = Waker::noop().clone();
        list.free.push(slot);
    }

    /// Selects the longest-idle connections to close, one in eight but at least one, and wakes them. Returns their number.
    pub(super) fn close_longest_idle(&self) -> usize {
        let mut wakers = Vec::new();
        let mut list = self.0.borrow_mut();
        let count = (list.len / 8).clamp(1, BATCH).min(list.len);
        for _ in 0..count {
            let slot = list.first;
            list.unlink(slot);
            let entry = list.entry(slot);
            entry.state = IdleState::Closing;
            wakers.push(entry.waker.clone());
        }
        drop(list);
        wakers.into_iter().for_each(Waker::wake);
        count
    }

    /// The second since which the longest-idle connection has been idle.
    pub(super) fn oldest(&self) -> Option<u64> {
        let list = self.0.borrow();
        let first = list.slots.get(list.first as usize)?;
        Some(first.since)
    }
}

impl IdleList {
    fn entry(&mut self, slot: SlotIndex) -> &mut IdleSlot {
        &mut self.slots[slot as usize]
    }

    fn add(&mut self, waker: &Waker) -> SlotIndex {
        if let Some(slot) = self.free.pop() {
            return slot;
        }
        self.slots.push(IdleSlot {
            state: IdleState::Busy,
            previous: NIL,
            next: NIL,
            since: 0,
            waker: waker.clone(),
        });
        // The number of slots is bounded by the limit of open files.
        (self.slots.len() - 1) as SlotIndex
    }

    /// Appends a connection as the most recently idle.
    fn append(&mut self, slot: SlotIndex) {
        let last = std::mem::replace(&mut self.last, slot);
        match last {
            NIL => self.first = slot,
            last => self.entry(last).next = slot,
        }
        let entry = self.entry(slot);
        (entry.state, entry.previous, entry.next) = (IdleState::Idle, last, NIL);
        self.len += 1;
    }

    fn unlink(&mut self, slot: SlotIndex) {
        let IdleSlot { previous, next, .. } = *self.entry(slot);
        match previous {
            NIL => self.first = next,
            previous => self.entry(previous).next = next,
        }
        match next {
            NIL => self.last = previous,
            next => self.entry(next).previous = previous,
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn poll(idle: &IdleConnections, slot: Option<SlotIndex>) -> (SlotIndex, Poll<()>) {
        idle.poll(slot, 7, &mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_selected_connection_is_woken_and_a_busy_one_is_never_selected() {
        let idle = IdleConnections::default();
        assert_eq!((idle.oldest(), idle.close_longest_idle()), (None, 0));
        let (first, _) = poll(&idle, None);
        let (second, _) = poll(&idle, None);
        assert_eq!(idle.oldest(), Some(7));
        assert!(!idle.set_busy(first));
        assert_eq!(idle.close_longest_idle(), 1);
        assert!(poll(&idle, Some(first)).1.is_pending());
        assert!(poll(&idle, Some(second)).1.is_ready());
        assert_eq!(idle.close_longest_idle(), 1);
        assert!(idle.set_busy(first), "its request arrived in time");
        assert!(poll(&idle, Some(first)).1.is_pending());
    }

    proptest! {
        /// The list is a queue: after any operations, the longest-idle connections are closed first.
        #[test]
        fn the_longest_idle_are_closed_first(steps in prop::collection::vec((0..12usize, 0..4u8), 0..200)) {
            let idle = IdleConnections::default();
            let mut slots = [None; 12];
            let mut queue: VecDeque<usize> = VecDeque::new();
            let mut selected: Vec<usize> = Vec::new();
            for (at, step) in steps {
                match (step, slots[at]) {
                    (0, slot) => {
                        let (slot, polled) = poll(&idle, slot);
                        slots[at] = Some(slot);
                        let was_selected = selected.contains(&at);
                        prop_assert_eq!(polled.is_ready(), was_selected);
                        if !was_selected && !queue.contains(&at) {
                            queue.push_back(at);
                        }
                    }
                    (1, Some(slot)) => {
                        prop_assert_eq!(idle.set_busy(slot), selected.contains(&at));
                        queue.retain(|other| *other != at);
                        selected.retain(|other| *other != at);
                    }
                    (2, Some(slot)) => {
                        idle.remove(slot);
                        slots[at] = None;
                        queue.retain(|other| *other != at);
                        selected.retain(|other| *other != at);
                    }
                    (3, _) => {
                        let count = idle.close_longest_idle();
                        prop_assert_eq!(count, queue.len().min((queue.len() / 8).max(1)));
                        selected.extend(queue.drain(..count));
                    }
                    _ => {}
                }
                prop_assert_eq!(idle.oldest().is_some(), !queue.is_empty());
            }
        }
    }
}
