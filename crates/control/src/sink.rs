//! The interfaces to sinks. A [`Sink`] receives changes of the bound form, such as a proxy in this process or an xDS server. A [`StatusSink`] receives
//! statuses, such as a writer to the Kubernetes API.

use std::sync::Arc;
use std::time::Instant;

use pointsman_binding::{Change, Delta};
use pointsman_resources::ObjectKey;
use pointsman_routing::Tables;

use crate::StatusEntry;

/// A receiver of the bound form.
///
/// Both steps return reports: addresses of Gateways ([`Change::Observe`]) and backends that are needed even if no route uses them ([`Change::Need`]). A sink
/// whose reports arrive later, from proxies over a network, returns none here.
pub trait Sink: Send {
    /// Returns whether the sink uses the routing tables. If no sink does, none are compiled, and those that are passed to the sinks are empty.
    fn uses_tables(&self) -> bool {
        true
    }

    /// Prepares a change without putting it into effect. `tables` include this change.
    fn stage(&mut self, delta: &Delta, tables: &Tables) -> Vec<Change>;

    /// Puts all staged changes into effect.
    fn commit(&mut self, tables: &Tables) -> Vec<Change>;

    /// Retries operations that failed. The result takes effect with the next commit.
    fn retry(&mut self) -> Vec<Change> {
        Vec::new()
    }

    /// Returns whether an operation failed and should be retried.
    fn needs_retry(&self) -> bool {
        false
    }

    /// Returns the next time at which [`retry`](Self::retry) must be called even if nothing happens.
    fn next_wake(&self) -> Option<Instant> {
        None
    }

    /// Reopens files that an operator may have replaced, such as a log file.
    fn reload(&mut self) {}
}

/// A receiver of statuses.
pub trait StatusSink: Send {
    /// Receives the entry of an object that has changed or whose status has changed; `None` if the object was deleted. It is called between two changes and
    /// must not block. A status that is about to change without further input is passed once it has settled: see [`StatusEntry::is_settled`].
    fn record(&mut self, key: &ObjectKey, entry: Option<&Arc<StatusEntry>>);
}
