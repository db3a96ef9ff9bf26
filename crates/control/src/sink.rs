//! The seam to sinks. A sink receives changes of the bound form: a proxy in this process, later an xDS server and a writer of Kubernetes status.

use pointsman_binding::{Change, Delta};
use pointsman_routing::Tables;

/// A receiver of the bound form.
///
/// Both steps return reports: addresses of Gateways ([`Change::Observe`]) and backends to supply whether or not a route uses them
/// ([`Change::Need`]). A sink whose reports arrive later, from proxies over a network, returns none here.
pub trait Sink: Send {
    /// Takes over a change without putting it in effect. `tables` are compiled from everything up to this change.
    fn stage(&mut self, delta: &Delta, tables: &Tables) -> Vec<Change>;

    /// Puts everything staged in effect.
    fn commit(&mut self, tables: &Tables) -> Vec<Change>;

    /// Retries what has failed. It takes effect with the next commit.
    fn retry(&mut self) -> Vec<Change> {
        Vec::new()
    }

    /// Whether there is something to retry.
    fn wants_retry(&self) -> bool {
        false
    }

    /// Reopens what an operator may have replaced, such as a log file.
    fn reload(&mut self) {}
}
