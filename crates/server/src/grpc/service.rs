//! Answers Envoy: reads a message, has it decided, and says what came of it.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, Response};
use hyper::body::Incoming;
use spile_core::{Charges, Decision, FailurePolicy, Reason};
use tokio::time::timeout;
use tonic::body::Body;
use tonic::server::UnaryService;
use tonic::service::Routes;
use tonic::{Code as GrpcCode, Status};
use tonic_prost::ProstCodec;
use tower::ServiceExt;

use super::chain::Chain;
use super::health::HealthServer;
use super::message::{Code, DescriptorStatus, RateLimitRequest, RateLimitResponse, SHOULD_RATE_LIMIT};
use super::reflection;
use super::target::{Hits, Target, targets};
use super::verdict;
use crate::config::GrpcConfig;
use crate::decider::Decider;
use crate::metrics::{Answered, RpcMetrics, Unmatched};
use crate::policies::Policies;
use crate::question::{OVERRIDE, Question};
use crate::serve::Answer;

/// The largest message that is read. Envoy's have a few hundred bytes.
const MAX_MESSAGE: usize = 64 * 1024;
/// How long a message may take to arrive and be answered.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// What answers on the `grpc` listener.
#[derive(Clone)]
pub(crate) struct Grpc {
    limits: Arc<Limits>,
    /// Health and reflection.
    others: Routes,
}

struct Limits {
    decider: Arc<Decider>,
    metrics: RpcMetrics,
    unmatched: Unmatched,
    timeout: Duration,
}

impl Grpc {
    pub(crate) fn new(
        decider: Arc<Decider>,
        metrics: RpcMetrics,
        unmatched: Unmatched,
        config: &GrpcConfig,
        health: HealthServer,
    ) -> anyhow::Result<Self> {
        let (v1, v1alpha) = (reflection::builder().build_v1()?, reflection::builder().build_v1alpha()?);
        let others = Routes::new(health).add_service(v1).add_service(v1alpha).prepare();
        let limits = Limits { decider, metrics, unmatched, timeout: config.timeout };
        Ok(Self { limits: Arc::new(limits), others })
    }
}

impl Answer for Grpc {
    type Body = Body;

    const HTTP2_ONLY: bool = true;

    async fn answer(&self, _peer: SocketAddr, request: Request<Incoming>) -> Response<Body> {
        if request.uri().path() != SHOULD_RATE_LIMIT {
            return match self.others.clone().oneshot(request).await {
                Ok(response) => response,
                Err(why) => Status::internal(why.to_string()).into_http(),
            };
        }
        let codec: ProstCodec<RateLimitResponse, RateLimitRequest> = ProstCodec::default();
        let mut grpc = tonic::server::Grpc::new(codec).max_decoding_message_size(MAX_MESSAGE);
        let answer = timeout(MAX_WAIT, grpc.unary(ShouldRateLimit(Arc::clone(&self.limits)), request)).await;
        answer.unwrap_or_else(|_| {
            Status::new(GrpcCode::DeadlineExceeded, "the message took too long to arrive").into_http()
        })
    }
}

/// The only method there is.
struct ShouldRateLimit(Arc<Limits>);

impl UnaryService<RateLimitRequest> for ShouldRateLimit {
    type Response = RateLimitResponse;
    type Future =
        Pin<Box<dyn Future<Output = Result<tonic::Response<RateLimitResponse>, Status>> + Send + 'static>>;

    fn call(&mut self, request: tonic::Request<RateLimitRequest>) -> Self::Future {
        let limits = Arc::clone(&self.0);
        Box::pin(async move { limits.answer(request.get_ref()).await.map(tonic::Response::new) })
    }
}

impl Limits {
    async fn answer(&self, request: &RateLimitRequest) -> Result<RateLimitResponse, Status> {
        let answer = self.decide(request).await;
        self.metrics.count(match &answer {
            Ok((_, answered)) => *answered,
            Err(_) => Answered::Refused,
        });
        answer.map(|(response, _)| response)
    }

    async fn decide(&self, request: &RateLimitRequest) -> Result<(RateLimitResponse, Answered), Status> {
        let policies = self.decider.policies();
        let targets = targets(request, &policies)?;
        self.unmatched.count(targets.iter().filter(|target| target.is_none()).count());
        let mut statuses: Vec<DescriptorStatus> = targets.iter().map(|_| verdict::unlimited()).collect();
        let chosen = |wanted: Kind| {
            let each = targets.iter().enumerate();
            each.filter_map(move |(at, target)| Some((at, target.as_ref()?)))
                .filter(move |(_, target)| kind(target) == wanted)
        };

        let enforced: Vec<(usize, &Target<'_>)> = chosen(Kind::Enforced).collect();
        let chain = Chain::new(enforced.iter().map(|(_, target)| *target), &policies)?;
        let (watched, decision) = tokio::join!(
            self.watch(chosen(Kind::Watched), &policies),
            self.spend(&chain, &enforced, &policies)
        );
        let decision = decision?;
        for (at, status) in watched? {
            statuses[at] = status;
        }
        let mut response = RateLimitResponse { overall_code: Code::Ok.into(), ..Default::default() };
        let mut answered = Answered::Other;
        if let Some(decision) = &decision {
            for (target, (at, _)) in enforced.iter().enumerate() {
                statuses[*at] = verdict::status(&chain, target, decision);
            }
            answered = match decision.reason() {
                Reason::FailClosed => Answered::Unavailable,
                _ if decision.allowed() && !chain.has_never() => Answered::Allowed,
                _ => Answered::Limited,
            };
            response.response_headers_to_add = verdict::headers(decision, self.decider.wall_now());
        }
        if matches!(answered, Answered::Limited | Answered::Unavailable) {
            response.overall_code = Code::OverLimit.into();
        } else {
            for (at, status) in self.give_back(chosen(Kind::GivenBack), &policies).await? {
                statuses[at] = status;
            }
        }
        response.statuses = statuses;
        Ok((response, answered))
    }

    /// Spends all of the chain, or nothing of it. One that could never be paid is only looked at.
    async fn spend<'t>(
        &self,
        chain: &Chain<'t>,
        targets: &[(usize, &'t Target<'t>)],
        policies: &'t Policies,
    ) -> Result<Option<Decision>, Status> {
        if chain.is_empty() {
            return Ok(None);
        }
        let charges = if chain.has_never() { chain.free()? } else { chain.charges()? };
        let targets: Vec<&Target<'_>> = targets.iter().map(|(_, target)| *target).collect();
        let question = self.question(charges, &targets, policies);
        Ok(Some(self.decider.check(question).await))
    }

    /// Decides what rules that only watch are asked, each by itself: none of them may deny what another allows.
    async fn watch<'t>(
        &self,
        targets: impl Iterator<Item = (usize, &'t Target<'t>)>,
        policies: &'t Policies,
    ) -> Result<Vec<(usize, DescriptorStatus)>, Status> {
        let one = async |(at, target): (usize, &'t Target<'t>)| {
            let chain = Chain::new([target], policies)?;
            if chain.has_never() || chain.is_empty() {
                return Ok((at, verdict::unlimited()));
            }
            let question = self.question(chain.charges()?, &[target], policies).watching();
            let decision = self.decider.check(question).await;
            Ok((at, verdict::status(&chain, 0, &decision)))
        };
        join_all(targets.map(one)).await.into_iter().collect()
    }

    /// Gives back. Where the store fails it is lost, as it would be with a client that does not ask again.
    async fn give_back<'t>(
        &self,
        targets: impl Iterator<Item = (usize, &'t Target<'t>)>,
        policies: &'t Policies,
    ) -> Result<Vec<(usize, DescriptorStatus)>, Status> {
        let mut statuses = Vec::new();
        for (at, target) in targets {
            let chain = Chain::new([target], policies)?;
            if chain.is_empty() {
                continue;
            }
            let question = self.question(chain.given_back()?, &[target], policies);
            if let Ok(Ok(decision)) = timeout(self.timeout, self.decider.refund(question)).await {
                statuses.push((at, verdict::status(&chain, 0, &decision)));
            }
        }
        Ok(statuses)
    }

    /// The question is asked in the name of the first rule, and by the strictest policy of all.
    fn question<'t>(
        &self,
        charges: Charges<'t>,
        targets: &[&'t Target<'t>],
        policies: &'t Policies,
    ) -> Question<'t> {
        let policy = |target: &&Target<'_>| {
            target.rule.and_then(|rule| rule.on_failure).unwrap_or(policies.on_failure)
        };
        let on_failure = targets
            .iter()
            .map(policy)
            .max_by_key(|policy| strictness(*policy))
            .unwrap_or(policies.on_failure);
        let first = targets.first();
        let rule = first.and_then(|target| target.rule).map_or(OVERRIDE, |rule| rule.id.as_str());
        let tenant = first.and_then(|target| target.tenant).map(|tenant| tenant.id.as_str());
        Question::chain(charges, rule, tenant, on_failure).within(self.timeout)
    }
}

/// What becomes of a target.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Enforced,
    Watched,
    GivenBack,
}

fn kind(target: &Target<'_>) -> Kind {
    match target.hits {
        Hits::GiveBack(_) => Kind::GivenBack,
        Hits::Spend(_) if target.rule.is_some_and(|rule| rule.shadow) => Kind::Watched,
        Hits::Spend(_) => Kind::Enforced,
    }
}

const fn strictness(policy: FailurePolicy) -> u8 {
    match policy {
        FailurePolicy::Deny => 2,
        FailurePolicy::Local => 1,
        _ => 0,
    }
}
