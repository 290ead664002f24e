//! The unanswered flights of one connection, in the order in which they were sent.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use spile_resp::Value;

use crate::connection::ConnectionError;
use crate::node::queue::Flight;
use crate::script::call::{CallAnswers, RefusedCall, ScriptCall};
use crate::store::context::StoreContext;

/// How much later a flight that seems overdue is checked again. After the process was suspended, its timers fire before
/// it reads the replies that arrived meanwhile.
const GRACE: Duration = Duration::from_millis(1);

/// Calls that were sent and are not answered yet.
#[derive(Default)]
pub(crate) struct Pipeline<'q> {
    flights: VecDeque<SentFlight<'q>>,
    /// Calls that Redis answered with an error. The errors are trusted only after all replies around them were the
    /// expected ones.
    refused: Vec<(ScriptCall, RefusedCall)>,
    /// When the last reply arrived.
    heard_at: Option<Instant>,
    /// The reply to `ASKING`, which precedes the reply to its call.
    asked: Option<Value>,
}

/// A call and its reply.
pub(crate) struct CompletedCall<'q> {
    pub(crate) call: ScriptCall,
    pub(crate) answers: CallAnswers,
    pub(crate) sent_at: Instant,
    /// Ends the flight when dropped. That is after its callers have their answers, so that their next requests share a
    /// flight.
    _flight: Option<Flight<'q>>,
}

/// A flight that was sent, and its unanswered calls.
struct SentFlight<'q> {
    calls: VecDeque<ScriptCall>,
    sent_at: Instant,
    /// When it was first found overdue.
    suspected_at: Option<Instant>,
    is_overdue: bool,
    flight: Flight<'q>,
}

impl SentFlight<'_> {
    fn next_check(&self, timeout: Duration) -> Instant {
        self.suspected_at.map_or(self.sent_at + timeout, |since| since + GRACE)
    }

    /// The number of its overdue requests, reported once.
    fn check_overdue(&mut self, now: Instant, timeout: Duration) -> usize {
        if now < self.next_check(timeout) {
            return 0;
        }
        self.is_overdue = self.suspected_at.is_some();
        self.suspected_at = Some(now);
        if self.is_overdue { self.calls.iter().map(ScriptCall::len).sum() } else { 0 }
    }
}

impl<'q> Pipeline<'q> {
    pub(crate) fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    /// Whether another flight may be sent. After an error reply, all flights must be answered first.
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

    /// The call that this reply answers. `None` if the reply is an error, or is the one to `ASKING`.
    pub(crate) fn answer(
        &mut self,
        value: Value,
        now: Instant,
    ) -> Result<Option<CompletedCall<'q>>, ConnectionError> {
        self.heard_at = Some(now);
        let Some(flight) = self.flights.front_mut() else { return Err(ConnectionError::Closed) };
        let sent_at = flight.sent_at;
        let Some(call) = flight.calls.front() else { return Err(ConnectionError::Closed) };
        if call.is_asking() && self.asked.is_none() {
            self.asked = Some(value);
            return Ok(None);
        }
        // The call itself was answered too, but a refused `ASKING` was not in effect for it.
        let answer = self.asked.take().filter(|asked| matches!(asked, Value::Error(_))).unwrap_or(value);
        let answers = call.read(&answer)?;
        let Some((call, landed)) = self.pop_call() else { return Err(ConnectionError::Closed) };
        match answers {
            Ok(answers) => Ok(Some(CompletedCall { call, answers, sent_at, _flight: landed })),
            Err(refusal) => {
                self.refused.push((call, refusal));
                Ok(None)
            }
        }
    }

    /// The calls that were answered with an error. Called when no flight is unanswered.
    pub(crate) fn take_refused(&mut self) -> Vec<(ScriptCall, RefusedCall)> {
        std::mem::take(&mut self.refused)
    }

    /// All calls without a successful reply.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = ScriptCall> + use<'q> {
        let refused = self.take_refused().into_iter().map(|(call, _)| call);
        let flights = std::mem::take(&mut self.flights);
        flights.into_iter().flat_map(|flight| flight.calls).chain(refused)
    }

    /// When to check next whether a flight is overdue or the connection has stalled.
    pub(crate) fn alarm(&self, context: &StoreContext) -> Instant {
        let overdue = self.flights.iter().filter(|flight| !flight.is_overdue);
        let overdue = overdue.map(|flight| flight.next_check(context.timeout)).min();
        // Once the next reply is overdue, only the stall of the connection remains to be detected.
        let stalled = self.waits_since().filter(|_| self.flights[0].is_overdue);
        let stalled = stalled.map(|since| since + context.stall);
        overdue.into_iter().chain(stalled).min().unwrap_or_else(|| context.runtime.now())
    }

    /// True if the next reply is overdue long enough for the connection to count as dead.
    pub(crate) fn is_stalled(&self, now: Instant, stall: Duration) -> bool {
        self.waits_since().is_some_and(|since| self.flights[0].is_overdue && now >= since + stall)
    }

    /// How many requests have waited for a reply for `timeout` and were not counted before.
    pub(crate) fn newly_overdue(&mut self, now: Instant, timeout: Duration) -> usize {
        let due = self.flights.iter_mut().filter(|flight| !flight.is_overdue);
        due.map(|flight| flight.check_overdue(now, timeout)).sum()
    }

    /// When the wait for the next reply began: when its flight was sent, or when the previous reply arrived.
    fn waits_since(&self) -> Option<Instant> {
        let sent_at = self.flights.front()?.sent_at;
        Some(self.heard_at.map_or(sent_at, |heard_at| heard_at.max(sent_at)))
    }

    /// Removes the oldest call, and its flight if that was its last call.
    fn pop_call(&mut self) -> Option<(ScriptCall, Option<Flight<'q>>)> {
        let flight = self.flights.front_mut()?;
        let call = flight.calls.pop_front()?;
        let landed = if flight.calls.is_empty() { self.flights.pop_front() } else { None };
        Some((call, landed.map(|sent| sent.flight)))
    }
}
