//! Other versions on the other side: what was recorded is read for ever, what is unknown is never applied in part, and what is broken breaks nothing else.

mod messages;
mod mutated;
mod recorded;
mod support;
