//! The price of the answers of a route, and how often they reported their cost.

use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;
use metrics::{Counter, counter};
use spile_core::{Amount, Micros};
use spile_tower::cost::{AnswerUsage, ErrorCost, ReportedCost, UnreadCost};

use super::rate::AnswerPrice;
use crate::route::Route;

/// At most one line is logged in this time, for each route.
const LOG_EVERY_US: u64 = 60_000_000;

/// Prices and counts the answers of one route whose requests are settled, and logs now and then that some could not be read.
#[derive(Debug)]
pub(crate) struct AnswerCosts {
    route: Box<str>,
    unread_cost: UnreadCost,
    error_cost: ErrorCost,
    settled: Counter,
    error: Counter,
    no_answer: Counter,
    no_number: Counter,
    broken_off: Counter,
    encoded: Counter,
    failed: Counter,
    /// When the next line may be logged.
    quiet_until_us: AtomicU64,
}

impl AnswerCosts {
    /// The prices of this route. `None` if its answers do not report their cost.
    pub(crate) fn of(route: &Route) -> Option<Self> {
        let source = route.cost_from_response.as_ref()?;
        // The unit of a header field is the service's own, which has nothing to do with the size of a body.
        let usual = if source.reads_body() { UnreadCost::default() } else { UnreadCost::Estimate };
        let name = &*route.name;
        let result = |result: &'static str| counter!("gateway_answer_costs_total", "route" => name.to_owned(), "result" => result);
        Some(Self {
            route: name.into(),
            unread_cost: route.unread_cost.unwrap_or(usual),
            error_cost: route.error_cost,
            settled: result("settled"),
            error: result("error"),
            no_answer: result("no_answer"),
            no_number: result("no_number"),
            broken_off: result("broken_off"),
            encoded: result("encoded"),
            failed: result("failed"),
            quiet_until_us: AtomicU64::new(0),
        })
    }

    /// The price of an answer. A cost that can be read is the price, also of an error.
    pub(crate) fn price(&self, status: StatusCode, usage: AnswerUsage) -> AnswerPrice {
        let by_size = self.unread_cost.cost_of(usage.bytes);
        match usage.reported {
            // A part of a document does not report the cost of the whole.
            ReportedCost::Exact(tokens) if status != StatusCode::PARTIAL_CONTENT => {
                AnswerPrice::Exactly(tokens)
            }
            ReportedCost::Exact(tokens) | ReportedCost::AtLeast(tokens) => {
                AnswerPrice::AtLeast(tokens.max(by_size))
            }
            ReportedCost::Unknown if is_error(status) => self.error_price(),
            ReportedCost::Unknown => AnswerPrice::AtLeast(by_size),
        }
    }

    /// Whether the size of an answer with this status does not change the price.
    pub(crate) fn ignores_size(&self, status: StatusCode) -> bool {
        is_error(status) || !matches!(self.unread_cost, UnreadCost::Bytes(_))
    }

    /// The price of a request that got no answer. If an upstream may have run it, it is that of an answer that could not be read.
    pub(crate) fn price_without_answer(&self, may_have_run: bool) -> AnswerPrice {
        if may_have_run { AnswerPrice::AtLeast(self.unread_cost.cost_of(0)) } else { self.error_price() }
    }

    const fn error_price(&self) -> AnswerPrice {
        match self.error_cost {
            ErrorCost::None => AnswerPrice::Exactly(Amount::ZERO),
            ErrorCost::Estimate => AnswerPrice::AtLeast(Amount::ZERO),
            _ => AnswerPrice::Rules,
        }
    }

    /// Counts an answer that the store has settled.
    pub(crate) fn count(&self, now: Micros, status: StatusCode, reported: ReportedCost, is_encoded: bool) {
        match reported {
            ReportedCost::Exact(_) => self.settled.increment(1),
            ReportedCost::AtLeast(_) => self.broken_off.increment(1),
            ReportedCost::Unknown if is_error(status) => self.error.increment(1),
            ReportedCost::Unknown if is_encoded => {
                self.encoded.increment(1);
                self.log(now, "answers are encoded and cannot be read: they cost `unread_cost`");
            }
            ReportedCost::Unknown => {
                self.no_number.increment(1);
                if status.is_success() {
                    self.log(now, "answers do not report what they cost: they cost `unread_cost`");
                }
            }
        }
    }

    /// Counts a request without an answer.
    pub(crate) fn count_no_answer(&self) {
        self.no_answer.increment(1);
    }

    /// Counts a settlement that the store did not accept.
    pub(crate) fn count_failed(&self, now: Micros) {
        self.failed.increment(1);
        self.log(now, "the store did not take what answers cost: their requests stay charged as at first");
    }

    fn log(&self, now: Micros, message: &str) {
        let until = now.get().saturating_add(LOG_EVERY_US);
        let begin = |quiet_until| (now.get() >= quiet_until).then_some(until);
        if self.quiet_until_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, begin).is_ok() {
            tracing::warn!(target: "spile::gateway", route = &*self.route, "{message}");
        }
    }
}

fn is_error(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}
