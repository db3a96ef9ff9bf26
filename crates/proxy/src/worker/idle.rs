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

/// A doubly linked list, longest-idle connection first. A busy connection keeps its slot and waker. It also keeps its place until that is first or it becomes idle
/// again, because removing it at once would cost every request.
#[derive(Debug)]
struct IdleList {
    slots: Vec<IdleSlot>,
    free: Vec<SlotIndex>,
    first: SlotIndex,
    last: SlotIndex,
    /// Number of idle connections.
    idle: usize,
}

#[derive(Debug)]
struct IdleSlot {
    state: IdleState,
    /// The slot has a place in the list.
    linked: bool,
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
            idle: 0,
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
                entry.state = IdleState::Idle;
                entry.since = second;
                list.idle += 1;
                list.move_to_end(slot);
            }
        }
        list.entry(slot).waker.clone_from(cx.waker());
        (slot, Poll::Pending)
    }

    /// Marks a connection as busy. Returns true if it had been selected to close.
    pub(super) fn set_busy(&self, slot: SlotIndex) -> bool {
        let mut list = self.0.borrow_mut();
        let state = std::mem::replace(&mut list.entry(slot).state, IdleState::Busy);
        list.idle -= usize::from(state == IdleState::Idle);
        state == IdleState::Closing
    }

    /// Removes a closed connection.
    pub(super) fn remove(&self, slot: SlotIndex) {
        self.set_busy(slot);
        let mut list = self.0.borrow_mut();
        list.unlink(slot);
        list.entry(slot).waker = Waker::noop().clone();
        list.free.push(slot);
    }

    /// Selects the longest-idle connections to close, one in eight but at least one, and wakes them. Returns their number.
    pub(super) fn close_longest_idle(&self) -> usize {
        let mut wakers = Vec::new();
        let mut list = self.0.borrow_mut();
        let count = (list.idle / 8).clamp(1, BATCH).min(list.idle);
        for _ in 0..count {
            let Some(slot) = list.longest_idle() else {
                break;
            };
            list.unlink(slot);
            list.idle -= 1;
            let entry = list.entry(slot);
            entry.state = IdleState::Closing;
            wakers.push(entry.waker.clone());
        }
        drop(list);
        wakers.into_iter().for_each(Waker::wake);
        count
    }

    /// Returns the number of idle connections.
    pub(super) fn len(&self) -> usize {
        self.0.borrow().idle
    }

    /// Returns the second since which the longest-idle connection has been idle.
    pub(super) fn oldest(&self) -> Option<u64> {
        let mut list = self.0.borrow_mut();
        let slot = list.longest_idle()?;
        Some(list.entry(slot).since)
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
            linked: false,
            previous: NIL,
            next: NIL,
            since: 0,
            waker: waker.clone(),
        });
        // The number of slots is bounded by the limit of open files.
        (self.slots.len() - 1) as SlotIndex
    }

    /// Returns the longest-idle connection, and removes busy ones before it.
    fn longest_idle(&mut self) -> Option<SlotIndex> {
        while self.first != NIL {
            let first = self.first;
            if self.entry(first).state == IdleState::Idle {
                return Some(first);
            }
            self.unlink(first);
        }
        None
    }

    /// Makes a connection the most recently idle.
    fn move_to_end(&mut self, slot: SlotIndex) {
        if self.last == slot {
            return;
        }
        self.unlink(slot);
        let last = std::mem::replace(&mut self.last, slot);
        match last {
            NIL => self.first = slot,
            last => self.entry(last).next = slot,
        }
        let entry = self.entry(slot);
        (entry.linked, entry.previous, entry.next) = (true, last, NIL);
    }

    /// Removes a connection from the list if it has a place there.
    fn unlink(&mut self, slot: SlotIndex) {
        let entry = self.entry(slot);
        if !std::mem::take(&mut entry.linked) {
            return;
        }
        let (previous, next) = (entry.previous, entry.next);
        match previous {
            NIL => self.first = next,
            previous => self.entry(previous).next = next,
        }
        match next {
            NIL => self.last = previous,
            next => self.entry(next).previous = previous,
        }
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
                prop_assert_eq!(idle.len(), queue.len());
                prop_assert_eq!(idle.oldest().is_some(), !queue.is_empty());
            }
        }
    }
}
