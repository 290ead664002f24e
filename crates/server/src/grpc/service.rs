//! Answers Envoy: reads a message, has it decided, and says what came of it.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, Response};
use hyper::body::Incoming;
use spile_core::{Charges, Decision, FailurePolicy, Reason};
use tokio::time::{Instant, timeout, timeout_at};
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
        let deadline = Instant::now() + self.timeout;
        let policies = self.decider.policies();
        let targets = targets(request, &policies)?;
        let mut statuses: Vec<DescriptorStatus> = targets.iter().map(|_| verdict::unlimited()).collect();
        let chosen = |wanted: Kind| {
            let each = targets.iter().enumerate();
            each.filter_map(move |(at, target)| Some((at, target.as_ref()?)))
                .filter(move |(_, target)| kind(target) == wanted)
        };

        // All of it is put together before any of it is spent: a request that is an error costs nobody anything.
        let enforced: Vec<(usize, &Target<'_>)> = chosen(Kind::Enforced).collect();
        let chain = Chain::new(enforced.iter().map(|(_, target)| *target), &policies)?;
        let charges = chain.asked()?;
        let watched = alone(chosen(Kind::Watched), &policies, Chain::watched)?;
        let given_back = alone(chosen(Kind::GivenBack), &policies, Chain::given_back)?;
        self.unmatched.count(targets.iter().filter(|target| target.is_none()).count());

        let (watched, decision) =
            tokio::join!(self.watch(watched, &policies), self.spend(charges, &enforced, &policies));
        for (at, status) in watched {
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
            for (at, status) in self.give_back(given_back, deadline, &policies).await {
                statuses[at] = status;
            }
        }
        response.statuses = statuses;
        Ok((response, answered))
    }

    /// Spends all of the charges, or none of them.
    async fn spend<'t>(
        &self,
        charges: Option<Charges<'t>>,
        targets: &[(usize, &'t Target<'t>)],
        policies: &'t Policies,
    ) -> Option<Decision> {
        let targets: Vec<&Target<'_>> = targets.iter().map(|(_, target)| *target).collect();
        Some(self.decider.check(self.question(charges?, &targets, policies)).await)
    }

    /// Decides what rules that only watch are asked, each by itself: none of them may deny what another allows.
    async fn watch<'t>(
        &self,
        descriptors: Vec<Alone<'t>>,
        policies: &'t Policies,
    ) -> Vec<(usize, DescriptorStatus)> {
        let one = async |Alone { at, target, chain, charges }: Alone<'t>| {
            let question = self.question(charges, &[target], policies).watching();
            (at, verdict::status(&chain, 0, &self.decider.check(question).await))
        };
        join_all(descriptors.into_iter().map(one)).await
    }

    /// Gives back, in what is left of the time. Where the store fails it is lost, as it would be with a client that does
    /// not ask again.
    async fn give_back<'t>(
        &self,
        descriptors: Vec<Alone<'t>>,
        deadline: Instant,
        policies: &'t Policies,
    ) -> Vec<(usize, DescriptorStatus)> {
        let one = async |Alone { at, target, chain, charges }: Alone<'t>| {
            let question = self.question(charges, &[target], policies);
            let decision = timeout_at(deadline, self.decider.refund(question)).await.ok()?.ok()?;
            Some((at, verdict::status(&chain, 0, &decision)))
        };
        join_all(descriptors.into_iter().map(one)).await.into_iter().flatten().collect()
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

/// A descriptor that is decided by itself.
struct Alone<'t> {
    /// Which of the request's it is.
    at: usize,
    target: &'t Target<'t>,
    chain: Chain<'t>,
    charges: Charges<'t>,
}

/// Each of these by itself, with what there is to charge; those for which there is nothing are left out.
fn alone<'t>(
    targets: impl Iterator<Item = (usize, &'t Target<'t>)>,
    policies: &'t Policies,
    charges: impl Fn(&Chain<'t>) -> Result<Option<Charges<'t>>, Status>,
) -> Result<Vec<Alone<'t>>, Status> {
    let one = |(at, target)| {
        let chain = Chain::new([target], policies)?;
        Ok(charges(&chain)?.map(|charges| Alone { at, target, chain, charges }))
    };
    targets.map(one).filter_map(Result::transpose).collect()
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
