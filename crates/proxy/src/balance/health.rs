//! Setting an endpoint aside when it fails, and trying it again.
//!
//! An endpoint that fails several times in a row is set aside. When its time is over one request tries it: if that succeeds the endpoint
//! is back, if not it is aside again for twice as long.

use std::time::Duration;

/// How endpoints are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// How fast old latencies are forgotten: what is left after this time is a third.
    pub decay: Duration,
    /// How long a new endpoint gets less than its share; zero for never.
    pub slow_start: Duration,
    /// Failures in a row that set an endpoint aside; zero for never.
    pub failures: u32,
    /// How long it is aside the first time. Each time after that is twice as long.
    pub aside: Duration,
    /// The longest time that it is aside. One that has been well for as long is forgiven.
    pub most_aside: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            decay: Duration::from_secs(10),
            slow_start: Duration::from_secs(10),
            failures: 5,
            aside: Duration::from_secs(5),
            most_aside: Duration::from_secs(300),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Health {
    state: State,
    /// How often it was set aside of late.
    times: u32,
    /// When it was last back.
    back: Duration,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// In use, with so many failures in a row.
    Well(u32),
    /// Not in use until then.
    Aside(Duration),
    /// One request tries it.
    Trial,
}

impl Default for State {
    fn default() -> Self {
        State::Well(0)
    }
}

impl Health {
    /// Whether it may get a request: it is well, or it is time to try.
    pub(super) fn is_usable(&self, now: Duration) -> bool {
        match self.state {
            State::Well(_) => true,
            State::Aside(until) => now >= until,
            State::Trial => false,
        }
    }

    /// Whether it is set aside or on trial.
    pub(super) fn is_aside(&self) -> bool {
        !matches!(self.state, State::Well(_))
    }

    /// A request goes there.
    pub(super) fn begin(&mut self, now: Duration) {
        if let State::Aside(until) = self.state
            && now >= until
        {
            self.state = State::Trial;
        }
    }

    /// A request came back well.
    pub(super) fn succeed(&mut self, now: Duration, policy: &Policy) {
        match self.state {
            State::Trial => {
                self.state = State::Well(0);
                self.back = now;
            }
            State::Well(_) => {
                self.state = State::Well(0);
                if self.times > 0 && now.saturating_sub(self.back) >= policy.most_aside {
                    self.times = 0;
                }
            }
            // It was sent before the endpoint was set aside, or while all were: no trial.
            State::Aside(_) => {}
        }
    }

    /// A request failed. Returns whether this set the endpoint aside.
    pub(super) fn fail(&mut self, now: Duration, policy: &Policy) -> bool {
        match self.state {
            State::Well(failures) if policy.failures == 0 || failures + 1 < policy.failures => {
                self.state = State::Well(failures.saturating_add(1));
                false
            }
            // It is known by now.
            State::Aside(_) => false,
            State::Well(_) | State::Trial => {
                let factor = 1u32.checked_shl(self.times).unwrap_or(u32::MAX);
                let time = policy.aside.saturating_mul(factor).min(policy.most_aside);
                self.state = State::Aside(now.saturating_add(time));
                self.times = self.times.saturating_add(1);
                true
            }
        }
    }

    /// A request ended without telling anything: a trial has to be made again.
    pub(super) fn abandon(&mut self, now: Duration) {
        if let State::Trial = self.state {
            self.state = State::Aside(now);
        }
    }
}
