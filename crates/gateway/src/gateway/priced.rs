//! Requests whose answers report their cost: they continue within bounds if their client disconnects, and are settled once.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Response;
use http::request::Parts;
use http_body_util::Either;
use spile_core::{Amount, Store};
use spile_listener::{ClientBody, ConnectionPlace};
use spile_observe::trace::{SpanKind, span};
use tokio::runtime::Handle;

use super::request::{AdmittedRequest, RequestContext};
use super::worker::Worker;
use super::{ActiveConfig, GatewayState};
use crate::auth::Downstream;
use crate::forward::SendProgress;
use crate::forward::body::ResponseBody;
use crate::limit::{AnswerCosts, AnswerPrice, CallerKey, DetachedExchange, Detachment, RateDecision};
use crate::refusal::GatewayRefusal;

/// The progress of a request, and the resources that it needs to continue without its client.
pub(super) struct PricedRequest {
    pub(super) sent: SendProgress,
    pub(super) detachment: Detachment,
}

/// The end of an exchange, with all parts of the response.
struct PricedAnswer {
    config: Arc<ActiveConfig>,
    context: RequestContext,
    admitted: AdmittedRequest,
    parts: Parts,
    result: Result<Response<ResponseBody>, GatewayRefusal>,
}

type RunningExchange = Pin<Box<dyn Future<Output = PricedAnswer> + Send>>;

/// An exchange that is dropped if its client disconnects. Once it has been sent, it continues without the client.
struct PricedExchange<S: Store + 'static> {
    /// `None` once there is an answer.
    running: Option<RunningExchange>,
    request: Arc<PricedRequest>,
    settlement: Option<Settlement<S>>,
}

/// Settles a request that gets no answer.
struct Settlement<S> {
    gateway: Arc<GatewayState<S>>,
    costs: Arc<AnswerCosts>,
    decision: Box<RateDecision>,
}

impl<S: Store + 'static> Worker<S> {
    /// Proxies a request whose answer reports its cost. The cost is charged even if the client disconnects, and the permits, the
    /// connection's place and the exchange end together.
    pub(super) async fn proxy_priced(
        self: &Arc<Self>,
        config: Arc<ActiveConfig>,
        admitted: AdmittedRequest,
        downstream: Downstream,
        context: RequestContext,
        place: Option<ConnectionPlace>,
        (mut parts, body): (Parts, ClientBody),
    ) -> Response<ResponseBody> {
        let detachment = Detachment {
            exchanges: Arc::clone(&self.gateway.detached),
            caller: CallerKey::of(&admitted.caller, downstream.client),
            place,
            closing: self.tunnels.subscribe(),
        };
        let request = Arc::new(PricedRequest { sent: SendProgress::default(), detachment });
        let settlement = self.settlement(&config, &admitted);
        let (worker, priced) = (Arc::clone(self), Arc::clone(&request));
        let exchange = async move {
            let (mut admitted, mut context) = (admitted, context);
            let proxied = worker.proxy(
                &config,
                &mut admitted,
                &downstream,
                &mut context,
                &mut parts,
                body,
                Some(&priced),
            );
            let result = proxied.await;
            if result.is_err()
                && let (Some(costs), Some(decision)) =
                    (&config.route(admitted.route).answer_costs, admitted.decision.as_deref_mut())
            {
                let price = costs.price_without_answer(priced.sent.may_have_run());
                // Whether or not the client stays, it is settled here from now on.
                priced.sent.begin();
                worker.gateway.settle_without_answer(costs, decision, price).await;
            }
            PricedAnswer { config, context, admitted, parts, result }
        };
        let running: RunningExchange = Box::pin(span("settled exchange", SpanKind::Internal, exchange));
        let answer = PricedExchange { running: Some(running), request, settlement }.await;
        let PricedAnswer { config, context, admitted, parts, result } = answer;
        let (route, decision) = (Some(admitted.route), admitted.decision.as_deref());
        self.finish_response(&config, context, &parts, route, decision, result)
    }

    fn settlement(&self, config: &ActiveConfig, admitted: &AdmittedRequest) -> Option<Settlement<S>> {
        let costs = Arc::clone(config.route(admitted.route).answer_costs.as_ref()?);
        let decision = admitted.decision.clone()?;
        Some(Settlement { gateway: Arc::clone(&self.gateway), costs, decision })
    }
}

impl<S: Store + 'static> Settlement<S> {
    async fn settle(mut self, price: AnswerPrice) {
        self.gateway.settle_without_answer(&self.costs, &mut self.decision, price).await;
    }
}

impl<S: Store + 'static> Future for PricedExchange<S> {
    type Output = PricedAnswer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<PricedAnswer> {
        let Some(running) = &mut self.running else { return Poll::Pending };
        let answer = ready!(running.as_mut().poll(cx));
        self.running = None;
        Poll::Ready(answer)
    }
}

impl<S: Store + 'static> Drop for PricedExchange<S> {
    fn drop(&mut self) {
        let (Some(running), Some(settlement)) = (self.running.take(), self.settlement.take()) else { return };
        // A runtime that is shutting down asks no store, and the charge stays.
        let Ok(runtime) = Handle::try_current() else { return };
        let detachment = self.request.detachment.clone();
        // A gateway that stops waits for this as it does for tunnels.
        let open = detachment.closing.clone();
        if !self.request.sent.may_have_run() {
            drop(running);
            runtime.spawn(async move {
                settlement.settle(AnswerPrice::Exactly(Amount::ZERO)).await;
                drop(open);
            });
            return;
        }
        let detached = detachment.detach();
        runtime.spawn(async move {
            match detached {
                Some(detached) => read_on(running, detached, settlement).await,
                None => cut(running, settlement).await,
            }
            drop(open);
        });
    }
}

/// Waits for the answer without a client, and reads it for its cost.
async fn read_on<S: Store + 'static>(
    mut running: RunningExchange,
    mut detached: DetachedExchange,
    settlement: Settlement<S>,
) {
    let Some(answer) = detached.run(&mut running).await else { return cut(running, settlement).await };
    // The answer settles itself. It holds the permits until its end.
    drop(running);
    let PricedAnswer { admitted, result, .. } = answer;
    if let Ok(response) = result
        && let Either::Right(download) = response.into_body()
    {
        download.read_on(detached).await;
    }
    drop(admitted);
}

/// Ends an exchange that got no answer so far, and settles it as one that could not be read.
async fn cut<S: Store + 'static>(running: RunningExchange, settlement: Settlement<S>) {
    drop(running);
    let price = settlement.costs.price_without_answer(true);
    settlement.settle(price).await;
}
