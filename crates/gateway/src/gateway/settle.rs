//! Settles requests at the cost of their answers.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use spile_core::{Amount, Store};
use spile_tower::cost::{AnswerUsage, CostMeter, CostSource, ReportedCost};

use super::GatewayState;
use crate::forward::body::AnswerMeter;
use crate::limit::{AnswerCosts, AnswerPrice, Detachment, RateDecision};

/// An answer whose header is known, on a route whose answers report their cost.
pub(super) struct AnswerHead<'a> {
    pub(super) source: &'a CostSource,
    /// The cost in the header.
    pub(super) in_header: Option<Amount>,
    pub(super) status: StatusCode,
    pub(super) headers: &'a HeaderMap,
}

impl<S: Store + 'static> GatewayState<S> {
    /// Settles a request whose answer has reported its cost in the header, or whose price does not depend on the body. Otherwise
    /// returns the meter that reads the body and settles at its end.
    ///
    /// The response waits for the store if the cost is in the header, so that its own header shows the remaining tokens.
    pub(super) async fn settle_or_meter(
        self: &Arc<Self>,
        costs: &Arc<AnswerCosts>,
        decision: &mut RateDecision,
        answer: AnswerHead<'_>,
        detachment: &Detachment,
    ) -> Option<AnswerMeter> {
        let AnswerHead { source, in_header, status, headers } = answer;
        if let Some(tokens) = in_header {
            let settled = self.limits.settle(decision, AnswerPrice::Exactly(tokens)).await;
            self.count(costs, settled.is_ok(), status, ReportedCost::Exact(tokens), false);
            return None;
        }
        if !source.reads_body() && costs.ignores_size(status) {
            let usage = AnswerUsage { reported: ReportedCost::Unknown, bytes: 0 };
            let settled = self.limits.settle(decision, costs.price(status, usage)).await;
            self.count(costs, settled.is_ok(), status, usage.reported, false);
            return None;
        }
        let reader = source.reader(headers);
        let is_encoded = source.reads_body() && reader.is_none();
        let (gateway, costs, mut decision) = (Arc::clone(self), Arc::clone(costs), decision.clone());
        // A gateway that stops waits for the end of the body, and for the store, as it does for tunnels.
        let open = detachment.closing.clone();
        let settle = move |usage: AnswerUsage| async move {
            let settled = gateway.limits.settle(&mut decision, costs.price(status, usage)).await;
            gateway.count(&costs, settled.is_ok(), status, usage.reported, is_encoded);
            drop(open);
        };
        let meter = CostMeter::new(reader, move |usage| Box::pin(settle(usage)));
        Some(AnswerMeter::new(meter, detachment.clone()))
    }

    /// Settles a request that got no answer.
    pub(super) async fn settle_without_answer(
        &self,
        costs: &AnswerCosts,
        decision: &mut RateDecision,
        price: AnswerPrice,
    ) {
        match self.limits.settle(decision, price).await {
            Ok(()) => costs.count_no_answer(),
            Err(_) => costs.count_failed(self.clock.now()),
        }
    }

    /// Settles an upgraded connection. `in_header` is the cost that the header of its answer reported.
    pub(super) async fn settle_tunnel(
        &self,
        costs: &AnswerCosts,
        decision: &mut RateDecision,
        in_header: Option<Amount>,
        by_size: Amount,
    ) {
        let tokens = by_size.max(in_header.unwrap_or_default());
        let settled = self.limits.settle(decision, AnswerPrice::AtLeast(tokens)).await;
        self.count(
            costs,
            settled.is_ok(),
            StatusCode::SWITCHING_PROTOCOLS,
            ReportedCost::Exact(tokens),
            false,
        );
    }

    fn count(
        &self,
        costs: &AnswerCosts,
        is_settled: bool,
        status: StatusCode,
        reported: ReportedCost,
        is_encoded: bool,
    ) {
        let now = self.clock.now();
        if is_settled { costs.count(now, status, reported, is_encoded) } else { costs.count_failed(now) }
    }
}
