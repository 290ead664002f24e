//! The flights that are under way on one connection, in the order in which they were sent.

use std::collections::VecDeque;
use std::time::Duration;

use spile_resp::Value;
use tokio::time::Instant;

use crate::connection::ConnectionError;
use crate::node::lane::LaneConfig;
use crate::node::queue::Flight;
use crate::script::call::{CallReply, ScriptCall};

/// How much later a flight that seems overdue is looked at again. A process that was not let run for a while finds its
/// alarms first and the replies that came meanwhile only when it has waited once more.
const GRACE: Duration = Duration::from_millis(1);

/// What was sent and is not answered yet.
#[derive(Default)]
pub(crate) struct Pipeline<'q> {
    flights: VecDeque<SentFlight<'q>>,
    /// Calls that Redis refused. A refusal is only believed once every reply around it was the one expected.
    refused: Vec<(ScriptCall, String)>,
    /// When the last reply came.
    heard_at: Option<Instant>,
    /// Whether the next reply is the one to `ASKING`, or it was and refused.
    asking: AskingReply,
}

/// A call that was answered.
pub(crate) struct CompletedCall<'q> {
    pub(crate) call: ScriptCall,
    pub(crate) replies: CallReply,
    pub(crate) sent_at: Instant,
    /// Lands when dropped: once its callers have their answers and may ask again, so that they share the next flight.
    _flight: Option<Flight<'q>>,
}

/// A flight that was sent, and the calls of it that are not answered yet.
struct SentFlight<'q> {
    calls: VecDeque<ScriptCall>,
    sent_at: Instant,
    /// Since when it seems overdue.
    suspected_at: Option<Instant>,
    is_overdue: bool,
    flight: Flight<'q>,
}

impl SentFlight<'_> {
    fn next_check(&self, timeout: Duration) -> Instant {
        self.suspected_at.map_or(self.sent_at + timeout, |since| since + GRACE)
    }

    /// Says how many of its requests are overdue, once.
    fn check_overdue(&mut self, now: Instant, timeout: Duration) -> usize {
        if now < self.next_check(timeout) {
            return 0;
        }
        self.is_overdue = self.suspected_at.is_some();
        self.suspected_at = Some(now);
        if self.is_overdue { self.calls.iter().map(ScriptCall::len).sum() } else { 0 }
    }
}

/// How far the reply to a call after `ASKING` has come.
#[derive(Default)]
enum AskingReply {
    #[default]
    Pending,
    Accepted,
    Refused(String),
}

impl<'q> Pipeline<'q> {
    pub(crate) fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    /// Whether another flight may be sent. With something refused, what is under way has to land first.
    pub(crate) fn takes(&self, most: usize) -> bool {
        self.flights.len() < most && self.refused.is_empty()
    }

    pub(crate) fn push(&mut self, calls: Vec<ScriptCall>, flight: Flight<'q>, sent_at: Instant) {
        self.flights.push_back(SentFlight {
            calls: calls.into(),
            sent_at,
            suspected_at: None,
            is_overdue: false,
            flight,
        });
    }

    /// The call that this reply answers, with what it says. `None` if it was refused, or if more is to come.
    pub(crate) fn answer(&mut self, value: Value) -> Result<Option<CompletedCall<'q>>, ConnectionError> {
        self.heard_at = Some(Instant::now());
        let Some(flight) = self.flights.front_mut() else { return Err(ConnectionError::Closed) };
        let sent_at = flight.sent_at;
        let Some(call) = flight.calls.front() else { return Err(ConnectionError::Closed) };
        let refusal = match (std::mem::take(&mut self.asking), value) {
            (AskingReply::Pending, answer) if call.is_asking() => {
                self.asking = match answer {
                    Value::Error(refusal) => AskingReply::Refused(refusal),
                    _ => AskingReply::Accepted,
                };
                return Ok(None);
            }
            // The call itself was answered too, but by a node that was not asked to take it.
            (AskingReply::Refused(refusal), _) | (_, Value::Error(refusal)) => Err(refusal),
            (_, value) => Ok(call.read(&value)?),
        };
        let Some((call, landed)) = self.pop_call() else { return Err(ConnectionError::Closed) };
        match refusal {
            Ok(replies) => Ok(Some(CompletedCall { call, replies, sent_at, _flight: landed })),
            Err(refusal) => {
                self.refused.push((call, refusal));
                Ok(None)
            }
        }
    }

    /// What was refused, now that nothing is under way.
    pub(crate) fn take_refused(&mut self) -> Vec<(ScriptCall, String)> {
        std::mem::take(&mut self.refused)
    }

    /// Everything, answered by a refusal or not at all.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = ScriptCall> + use<'q> {
        let refused = self.take_refused().into_iter().map(|(call, _)| call);
        let flights = std::mem::take(&mut self.flights);
        flights.into_iter().flat_map(|flight| flight.calls).chain(refused)
    }

    /// When to look whether a flight is overdue or the connection has stalled.
    pub(crate) fn alarm(&self, config: &LaneConfig) -> Instant {
        let overdue = self.flights.iter().filter(|flight| !flight.is_overdue);
        let overdue = overdue.map(|flight| flight.next_check(config.timeout)).min();
        // Once the next reply is overdue, all that is left to look for is the connection's end.
        let stalled = self.waits_since().filter(|_| self.flights[0].is_overdue);
        let stalled = stalled.map(|since| since + config.stall);
        overdue.into_iter().chain(stalled).min().unwrap_or_else(Instant::now)
    }

    /// Whether the next reply has been overdue for so long that none is to be expected.
    pub(crate) fn is_stalled(&self, now: Instant, stall: Duration) -> bool {
        self.waits_since().is_some_and(|since| self.flights[0].is_overdue && now >= since + stall)
    }

    /// How many requests have waited for a reply for `timeout`, and were not counted before.
    pub(crate) fn newly_overdue(&mut self, now: Instant, timeout: Duration) -> usize {
        let due = self.flights.iter_mut().filter(|flight| !flight.is_overdue);
        due.map(|flight| flight.check_overdue(now, timeout)).sum()
    }

    /// Since when the next reply has been waited for: since it was sent, or since the reply before it came.
    fn waits_since(&self) -> Option<Instant> {
        let sent_at = self.flights.front()?.sent_at;
        Some(self.heard_at.map_or(sent_at, |heard_at| heard_at.max(sent_at)))
    }

    /// The call that was answered, and its flight if that was the last of it.
    fn pop_call(&mut self) -> Option<(ScriptCall, Option<Flight<'q>>)> {
        let flight = self.flights.front_mut()?;
        let call = flight.calls.pop_front()?;
        let landed = if flight.calls.is_empty() { self.flights.pop_front() } else { None };
        Some((call, landed.map(|sent| sent.flight)))
    }
}
