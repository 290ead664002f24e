//! Asks the limiter about what a request owes, before anything of its body is read.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Response};
use spile_core::{Clock, Decision, Micros, Reason, Store};
use spile_limiter::{Ask, RateLimiter, Settled};
use spile_observe::trace::{self, Tracer};
use spile_policy::{Chain, Owed};
use spile_tower::response::{Fields, is_grpc};

const DEGRADED: HeaderName = HeaderName::from_static("x-ratelimit-degraded");

/// The limiter, and how clients are told what it says.
pub(crate) struct Limits<S> {
    pub(crate) limiter: RateLimiter<S>,
    pub(crate) fields: Fields,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tracer: Option<Tracer>,
}

/// A decision about a request, and what the request was charged. Always boxed: it goes through many hands.
pub(crate) struct Ruling {
    decision: Decision,
    chain: Chain,
    now: Micros,
}

impl<S: Store> Limits<S> {
    /// Decides about what is owed. `None` if nothing is.
    pub(crate) async fn allow(&self, owed: Owed) -> Option<Box<Ruling>> {
        let Owed { enforced, watched, .. } = owed;
        if watched.is_empty() && self.tracer.is_none() {
            let chain = enforced?;
            if self.limiter.answers_at_once()
                && let Some(decision) = self.limiter.try_allow_charges(&Ask::from(&chain))
            {
                return Some(self.ruling(decision, chain));
            }
            return Some(Box::pin(self.allow_chain(chain)).await);
        }
        // Boxed, so that requests whose store answers at once need not carry it around.
        Box::pin(self.allow_each(enforced, watched)).await
    }

    /// Writes what the client is to know of the decision, `shown` or not what its limits are.
    pub(crate) fn write(&self, ruling: &Ruling, shown: bool, headers: &mut HeaderMap) {
        if shown {
            self.fields.write(&ruling.decision, ruling.now, headers);
        }
    }

    /// The answer to a request that was refused. It says how long to wait, `shown` or not what the limits are.
    pub(crate) fn refusal(&self, ruling: &Ruling, shown: bool, request: &Parts) -> Response<Bytes> {
        let fields = if shown { self.fields } else { self.fields.x_ratelimit(false).ietf(false) };
        let mut response = if is_grpc(&request.headers) {
            fields.grpc_refusal(&ruling.decision, ruling.now)
        } else {
            fields.refusal(&ruling.decision, ruling.now)
        };
        if !shown {
            response.headers_mut().remove(DEGRADED);
        }
        response
    }

    /// Makes the request cost `tokens` in the end, whatever it was charged at first.
    pub(crate) async fn settle(&self, ruling: &mut Ruling, tokens: u64) {
        // A store that fails now changes nothing about an answer that is already there.
        let settled = self.limiter.settle(&ruling.chain, &ruling.decision, tokens).await;
        if let (Reason::Ok, Ok(Settled { decision: Some(decision), .. })) =
            (ruling.decision.reason(), settled)
        {
            ruling.decision = decision;
        }
    }

    async fn allow_chain(&self, chain: Chain) -> Box<Ruling> {
        let decision = self.ask(Ask::from(&chain)).await;
        self.ruling(decision, chain)
    }

    /// Decides about each rule that only watches by itself, so that none of them holds back another's charge.
    async fn allow_each(&self, enforced: Option<Chain>, watched: Vec<Chain>) -> Option<Box<Ruling>> {
        let enforced = async { Some(self.allow_chain(enforced?).await) };
        let watched = join_all(watched.into_iter().map(|chain| self.allow_chain(chain)));
        let (enforced, watched) = futures_util::future::join(enforced, watched).await;
        enforced.or_else(|| watched.into_iter().next_back())
    }

    fn ruling(&self, decision: Decision, chain: Chain) -> Box<Ruling> {
        Box::new(Ruling { decision, chain, now: self.clock.wall() })
    }

    async fn ask(&self, ask: Ask<'_>) -> Decision {
        if self.tracer.is_none() {
            return self.limiter.allow_charges(ask).await;
        }
        let noted = async {
            let decision = self.limiter.allow_charges(ask).await;
            trace::note("spile.reason", || decision.reason().as_str().to_owned());
            trace::note("spile.limit", || decision.binding().name().to_string());
            decision
        };
        Box::pin(trace::span("decision", noted)).await
    }
}

impl Ruling {
    pub(crate) const fn allowed(&self) -> bool {
        self.decision.allowed()
    }
}
