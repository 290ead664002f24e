//! Settles requests at what their answers say that they cost.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use spile_core::Store;
use spile_tower::cost::{CostMeter, CostSource, ReportedCost};

use super::GatewayState;
use super::worker::Worker;
use crate::forward::body::AnswerMeter;
use crate::limit::{AnswerCosts, RateDecision};

/// An answer whose header is known, on a route whose answers say what they cost.
pub(super) struct AnswerHead<'a> {
    pub(super) source: &'a CostSource,
    /// The cost in the header.
    pub(super) in_header: Option<u64>,
    pub(super) status: StatusCode,
    pub(super) headers: &'a HeaderMap,
}

impl<S: Store + 'static> Worker<S> {
    /// Settles a request whose answer says its cost in the header. If it is in the body, returns the meter that reads the
    /// body and settles at its end.
    pub(super) async fn settle_or_meter(
        &self,
        costs: &Arc<AnswerCosts>,
        decision: &mut RateDecision,
        answer: AnswerHead<'_>,
    ) -> Option<AnswerMeter> {
        let AnswerHead { source, in_header, status, headers } = answer;
        if !source.reads_body() {
            let cost = in_header.map_or(ReportedCost::Unknown, ReportedCost::Exact);
            self.gateway.settle(costs, decision, cost, false).await;
            return None;
        }
        // The body of a connection that switches protocols is a tunnel.
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return None;
        }
        let Some(reader) = source.reader(headers) else {
            costs.count_encoded(self.gateway.clock.now());
            return None;
        };
        let (gateway, costs, mut decision) = (Arc::clone(&self.gateway), Arc::clone(costs), decision.clone());
        // A gateway that shuts down waits for the end of the body, and for the store, as it does for tunnels.
        let closing = self.tunnels.subscribe();
        let open = closing.clone();
        let settle = move |cost| async move {
            gateway.settle(&costs, &mut decision, cost, status.is_success()).await;
            drop(open);
        };
        Some(AnswerMeter::new(CostMeter::new(reader, move |cost| Box::pin(settle(cost))), closing))
    }
}

impl<S: Store + 'static> GatewayState<S> {
    /// Settles a request at the cost that its answer reported. `expected` if an answer without a cost is unusual.
    async fn settle(
        &self,
        costs: &AnswerCosts,
        decision: &mut RateDecision,
        cost: ReportedCost,
        expected: bool,
    ) {
        if let Some(tokens) = cost.settles_at(decision.charged())
            && self.limits.settle(decision, tokens).await.is_err()
        {
            // The response does not wait for the store, so there is nothing to tell the client.
            return costs.count_failed(self.clock.now());
        }
        match cost {
            ReportedCost::Exact(_) => costs.count_settled(),
            ReportedCost::AtLeast(_) => costs.count_broken_off(),
            ReportedCost::Unknown => costs.count_no_number(self.clock.now(), expected),
        }
    }
}
