//! WebSocket: a handshake over HTTP, then bytes both ways until one side is done.

use super::attempt::{Attempt, Failure};
use super::backend::Returning;
use super::client::Client;
use super::report::Report;
use super::sink::Sink;
use super::source::Source;
use crate::upstream::Pick;
use crate::wire::alarm::Alarm;

#[allow(clippy::too_many_arguments, reason = "the two sides of an exchange and who watches it")]
pub(crate) async fn run(
    _attempt: &Attempt<'_>,
    _pick: &mut Pick,
    _alarm: &mut Alarm,
    _source: &mut Source<'_>,
    _client: &mut Client<'_>,
    _sink: Sink<'_>,
    _returning: Returning<'_>,
    _report: &mut Report,
) -> Result<(), Failure> {
    Err(Failure::Cut)
}
