//! A queue of objects whose status has to be written. Each object is in the queue once, with its latest status. A change during a write causes another write.
//!
//! Objects that a user has changed come first, but every fourth turn goes to the longest-waiting other object, so that none starves.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use pointsman_resources::ObjectKey;

/// Number of urgent objects taken in a row while others wait.
const URGENT_TURNS: u32 = 3;
/// Minimum time between two writes of an object, so that a Gateway to which a thousand routes attach one after another is not written a thousand times.
const INTERVAL: Duration = Duration::from_millis(200);
/// Delay before the second attempt; it doubles with each.
const SHORTEST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// Order in which objects are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// A user has changed the object.
    Urgent,
    /// Something that the object refers to has changed.
    Background,
}

/// Outcome of an attempt to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The status is up to date, or the object was deleted.
    Done,
    /// The attempt failed and will be retried.
    Failed,
}

/// The queue.
#[derive(Debug)]
pub struct Queue<T> {
    entries: HashMap<ObjectKey, QueuedObject<T>>,
    /// Objects that can be written, in the order in which they were added.
    ready: BTreeMap<Urgency, BTreeMap<u64, ObjectKey>>,
    /// Objects that wait for the interval or a backoff.
    delayed: BTreeSet<(Instant, u64)>,
    delayed_keys: HashMap<u64, ObjectKey>,
    last_ticket: u64,
    /// Number of urgent objects taken since the last other object.
    urgent_turns: u32,
}

#[derive(Debug)]
struct QueuedObject<T> {
    /// The status to write; `None` if it has not changed since it was last taken.
    value: Option<T>,
    urgency: Urgency,
    attempts: u32,
    state: QueueState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueState {
    Ready(u64),
    Delayed(Instant, u64),
    InFlight,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue {
            entries: HashMap::new(),
            ready: BTreeMap::new(),
            delayed: BTreeSet::new(),
            delayed_keys: HashMap::new(),
            last_ticket: 0,
            urgent_turns: 0,
        }
    }
}

impl<T: Clone> Queue<T> {
    /// Adds an object, or replaces its status.
    pub fn put(&mut self, key: &ObjectKey, value: T, urgency: Urgency) {
        let Some(entry) = self.entries.get_mut(key) else {
            let ticket = self.ticket();
            let entry = QueuedObject {
                value: Some(value),
                urgency,
                attempts: 0,
                state: QueueState::Ready(ticket),
            };
            self.entries.insert(key.clone(), entry);
            self.ready_at(urgency).insert(ticket, key.clone());
            return;
        };
        let before = entry.urgency;
        entry.urgency = match entry.value.replace(value) {
            Some(_) => before.min(urgency),
            None => urgency,
        };
        let (urgency, state) = (entry.urgency, entry.state);
        if let QueueState::Ready(ticket) = state
            && urgency != before
        {
            self.ready_at(before).remove(&ticket);
            self.ready_at(urgency).insert(ticket, key.clone());
        }
    }

    /// Ends the backoff after a failed attempt: a user has changed the object, so another attempt may succeed.
    pub fn retry_now(&mut self, key: &ObjectKey) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let QueueState::Delayed(until, ticket) = entry.state else {
            return;
        };
        if std::mem::take(&mut entry.attempts) > 0 {
            entry.state = QueueState::Ready(ticket);
            let urgency = entry.urgency;
            self.delayed.remove(&(until, ticket));
            self.delayed_keys.remove(&ticket);
            self.ready_at(urgency).insert(ticket, key.clone());
        }
    }

    /// Removes an object that is gone.
    pub fn remove(&mut self, key: &ObjectKey) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        entry.value = None;
        if let QueueState::Ready(ticket) = entry.state {
            let urgency = entry.urgency;
            self.ready_at(urgency).remove(&ticket);
            self.entries.remove(key);
        }
    }

    /// Takes the next object to write. [`Queue::finish`] must follow.
    pub fn take(&mut self, now: Instant) -> Option<(ObjectKey, T)> {
        self.wake(now);
        let (has_urgent, has_other) = (
            !self.ready_at(Urgency::Urgent).is_empty(),
            !self.ready_at(Urgency::Background).is_empty(),
        );
        let urgency = match (has_urgent, has_other) {
            (true, true) if self.urgent_turns < URGENT_TURNS => Urgency::Urgent,
            (true, false) => Urgency::Urgent,
            (_, true) => Urgency::Background,
            (false, false) => return None,
        };
        self.urgent_turns = match urgency {
            Urgency::Urgent if has_other => self.urgent_turns + 1,
            _ => 0,
        };
        let (_, key) = self.ready_at(urgency).pop_first()?;
        let entry = self.entries.get_mut(&key)?;
        entry.state = QueueState::InFlight;
        // The entry stays until the status is written, because the attempt may fail.
        Some((key, entry.value.take()?))
    }

    /// Records the outcome of an attempt to write `value`.
    pub fn finish(&mut self, key: &ObjectKey, value: T, outcome: WriteOutcome, now: Instant) {
        let ticket = self.ticket();
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let delay = match outcome {
            WriteOutcome::Done => {
                entry.attempts = 0;
                INTERVAL
            }
            WriteOutcome::Failed => {
                entry.value.get_or_insert(value);
                entry.attempts += 1;
                let factor = 2_u32.saturating_pow(entry.attempts - 1);
                SHORTEST_BACKOFF.saturating_mul(factor).min(LONGEST_BACKOFF)
            }
        };
        let until = now + delay;
        entry.state = QueueState::Delayed(until, ticket);
        self.delayed.insert((until, ticket));
        self.delayed_keys.insert(ticket, key.clone());
    }

    /// Returns the time at which the next waiting object becomes ready, if any.
    pub fn next_wake(&self) -> Option<Instant> {
        self.delayed.first().map(|(until, _)| *until)
    }

    /// Returns the number of objects in the queue.
    pub fn len(&self) -> usize {
        let entries = self.entries.values();
        entries
            .filter(|entry| entry.value.is_some() || entry.state == QueueState::InFlight)
            .count()
    }

    /// Makes objects ready whose delay has passed, and removes those without a status to write.
    fn wake(&mut self, now: Instant) {
        while let Some(&(until, ticket)) = self.delayed.first() {
            if until > now {
                return;
            }
            self.delayed.pop_first();
            let Some(key) = self.delayed_keys.remove(&ticket) else {
                continue;
            };
            let Some(entry) = self.entries.get_mut(&key) else {
                continue;
            };
            if entry.value.is_none() {
                self.entries.remove(&key);
                continue;
            }
            entry.state = QueueState::Ready(ticket);
            let urgency = entry.urgency;
            self.ready_at(urgency).insert(ticket, key);
        }
    }

    fn ready_at(&mut self, urgency: Urgency) -> &mut BTreeMap<u64, ObjectKey> {
        self.ready.entry(urgency).or_default()
    }

    fn ticket(&mut self) -> u64 {
        self.last_ticket += 1;
        self.last_ticket
    }
}

#[cfg(test)]
mod tests {
    use pointsman_control::clock;
    use pointsman_resources::Kind;

    use super::Urgency::{Background, Urgent};
    use super::WriteOutcome::{Done, Failed};
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new(Kind::HTTPRoute, "shop", name)
    }

    fn take(queue: &mut Queue<u32>, now: Instant) -> Option<(String, u32)> {
        let (key, value) = queue.take(now)?;
        Some((key.name.name.to_string(), value))
    }

    #[test]
    fn an_object_is_queued_once_with_its_newest_status() {
        let (mut queue, now) = (Queue::default(), clock::instant());
        for value in 0..1000 {
            queue.put(&key("edge"), value, Background);
        }
        assert_eq!(queue.len(), 1);
        assert_eq!(take(&mut queue, now), Some(("edge".to_owned(), 999)));
        assert_eq!(take(&mut queue, now), None);
    }

    #[test]
    fn user_changes_come_first_and_no_object_starves() {
        let (mut queue, now) = (Queue::default(), clock::instant());
        queue.put(&key("b1"), 0, Background);
        queue.put(&key("b2"), 0, Background);
        for number in 1..=6 {
            queue.put(&key(&format!("u{number}")), 0, Urgent);
        }
        let order: Vec<String> = std::iter::from_fn(|| take(&mut queue, now))
            .map(|(name, _)| name)
            .collect();
        assert_eq!(order, ["u1", "u2", "u3", "b1", "u4", "u5", "u6", "b2"]);
    }

    #[test]
    fn an_object_that_a_user_changes_while_it_waits_becomes_urgent() {
        let (mut queue, now) = (Queue::default(), clock::instant());
        queue.put(&key("a"), 0, Background);
        queue.put(&key("b"), 0, Background);
        queue.put(&key("b"), 1, Urgent);
        queue.put(&key("b"), 2, Background);
        assert_eq!(take(&mut queue, now), Some(("b".to_owned(), 2)));
    }

    #[test]
    fn an_object_is_written_at_intervals_with_what_changed_meanwhile() {
        let (mut queue, now) = (Queue::default(), clock::instant());
        queue.put(&key("edge"), 1, Background);
        take(&mut queue, now);
        queue.put(&key("edge"), 2, Background);
        assert_eq!(take(&mut queue, now), None, "it is being written");
        queue.finish(&key("edge"), 1, Done, now);
        queue.put(&key("edge"), 3, Background);
        assert_eq!(take(&mut queue, now), None, "it was just written");
        let later = queue.next_wake().expect("it waits");
        assert_eq!(take(&mut queue, later), Some(("edge".to_owned(), 3)));
        queue.finish(&key("edge"), 3, Done, later);
        assert_eq!(queue.len(), 0);
        assert_eq!(take(&mut queue, later + INTERVAL), None);
        assert_eq!(queue.next_wake(), None, "it is forgotten");
    }

    #[test]
    fn a_users_edit_ends_a_backoff_but_not_the_interval_after_a_write() {
        let (mut queue, now) = (Queue::default(), clock::instant());
        queue.put(&key("a"), 1, Background);
        for _ in 0..8 {
            let later = queue.next_wake().unwrap_or(now);
            let (_, value) = take(&mut queue, later).expect("it is ready");
            queue.finish(&key("a"), value, Failed, later);
        }
        queue.put(&key("a"), 2, Urgent);
        assert_eq!(take(&mut queue, now), None);
        queue.retry_now(&key("a"));
        assert_eq!(take(&mut queue, now), Some(("a".to_owned(), 2)));
        queue.finish(&key("a"), 2, Done, now);
        queue.put(&key("a"), 3, Urgent);
        queue.retry_now(&key("a"));
        assert_eq!(take(&mut queue, now), None, "it was just written");
    }

    #[test]
    fn a_failed_write_is_repeated_with_growing_delays_and_the_newest_status() {
        let (mut queue, mut now) = (Queue::default(), clock::instant());
        queue.put(&key("a"), 1, Urgent);
        let mut delays = Vec::new();
        for value in 1..=4 {
            let (_, taken) = take(&mut queue, now).expect("it is ready");
            if value == 4 {
                queue.put(&key("a"), 7, Background);
            }
            queue.finish(&key("a"), taken, Failed, now);
            let wake = queue.next_wake().expect("it is tried again");
            delays.push((wake - now).as_millis());
            now = wake;
        }
        assert_eq!(delays, [100, 200, 400, 800]);
        assert_eq!(take(&mut queue, now), Some(("a".to_owned(), 7)));
    }

    #[test]
    fn an_object_that_is_gone_is_not_written() {
        let (mut queue, now) = (Queue::default(), clock::instant());
        queue.put(&key("a"), 1, Urgent);
        queue.remove(&key("a"));
        assert_eq!(take(&mut queue, now), None);
        queue.put(&key("a"), 1, Urgent);
        take(&mut queue, now);
        queue.put(&key("a"), 2, Urgent);
        queue.remove(&key("a"));
        queue.finish(&key("a"), 1, Done, now);
        assert_eq!(take(&mut queue, now + INTERVAL), None);
    }
}
