//! Answers Envoy: reads a message, charges what it owes, and renders the decision.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use futures_util::future::join_all;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use prost::Message;
use spile_core::{Decision, SpendTime};
use spile_listener::{ClientBody, HttpHandler, RequestOrigin, UnpacedBody};
use spile_policy::{DescriptorOwed, DescriptorsOwed, Enforced};
use spile_tower::response::HeaderFields;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::body::Body;
use tonic::service::Routes;
use tonic::{Code as GrpcCode, Status};
use tonic_reflection::server as reflection;
use tower::ServiceExt;

use super::charged::{AloneDecision, Charged};
use super::descriptors::descriptors;
use super::health::HealthServer;
use super::message::{Code, RateLimitRequest, RateLimitResponse, SHOULD_RATE_LIMIT};
use super::reading::{MAX_LARGE, PREFIX, TimedBody, Unreadable, is_modest, read_message};
use super::verdict;
use crate::config::GrpcConfig;
use crate::decide::Decider;
use crate::observe::metrics::{Answered, RpcMetrics, Unmatched};

/// The messages and the service of `proto/`, compiled, for reflection: tools like `grpcurl` need no files
/// of Envoy's.
const DESCRIPTOR_SET: &[u8] = include_bytes!("../../proto/ratelimit.pb");

/// How long a message may take to arrive and be answered.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// How long a client of health or reflection may take to send its messages.
const OTHERS_WITHIN: Duration = Duration::from_secs(60);
/// The largest message to health or reflection, which take names.
const MAX_OTHERS: usize = 4 * 1024;

/// The handler of the `grpc` listener.
#[derive(Clone)]
pub(crate) struct Grpc {
    service: Arc<RateLimitService>,
    /// Health and reflection.
    others: Routes,
}

struct RateLimitService {
    decider: Arc<Decider>,
    metrics: RpcMetrics,
    unmatched: Unmatched,
    timeout: Duration,
    /// The header fields for clients.
    fields: HeaderFields,
    /// Places for messages that are larger than most.
    large: Semaphore,
}

impl Grpc {
    pub(crate) fn new(
        decider: Arc<Decider>,
        metrics: RpcMetrics,
        unmatched: Unmatched,
        config: &GrpcConfig,
        health: HealthServer,
    ) -> anyhow::Result<Self> {
        let v1 = reflection().build_v1()?.max_decoding_message_size(MAX_OTHERS);
        let v1alpha = reflection().build_v1alpha()?.max_decoding_message_size(MAX_OTHERS);
        let health = health.max_decoding_message_size(MAX_OTHERS);
        let others = Routes::new(health).add_service(v1).add_service(v1alpha).prepare();
        let (timeout, large) = (config.timeout, Semaphore::new(MAX_LARGE));
        let shown = config.rate_limit_headers;
        let fields = HeaderFields::default().x_ratelimit(shown).ietf(shown);
        let service = RateLimitService { decider, metrics, unmatched, timeout, fields, large };
        Ok(Self { service: Arc::new(service), others })
    }

    /// The route of a path. `None` for paths of health and reflection, and for those that do not exist.
    pub(crate) fn route(path: &str) -> Option<&'static str> {
        (path == SHOULD_RATE_LIMIT).then_some(SHOULD_RATE_LIMIT)
    }
}

/// Reflection over Envoy's service and over health.
fn reflection() -> reflection::Builder<'static> {
    reflection::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

impl HttpHandler for Grpc {
    type Body = UnpacedBody<Body>;

    const HTTP2_ONLY: bool = true;

    async fn handle(self, _origin: RequestOrigin, request: Request<ClientBody>) -> Response<Self::Body> {
        let response = if request.uri().path() == SHOULD_RATE_LIMIT {
            self.should_rate_limit(request.into_body()).await
        } else {
            let request = request.map(|body| Body::new(TimedBody::new(body, OTHERS_WITHIN)));
            let Ok(response) = self.others.oneshot(request).await;
            response
        };
        response.map(UnpacedBody)
    }
}

impl Grpc {
    async fn should_rate_limit(&self, body: ClientBody) -> Response<Body> {
        let answer = async {
            match read_message(body, &self.service.large).await {
                Ok(message) => self.service.answer(&message).await,
                // The message is too large, or compressed.
                Err(Unreadable) => Ok(self.service.unreadable()),
            }
        };
        match timeout(MAX_WAIT, answer).await {
            Ok(Ok(response)) => sent(&response),
            Ok(Err(status)) => status.into_http(),
            Err(_) => {
                Status::new(GrpcCode::DeadlineExceeded, "the message took too long to arrive").into_http()
            }
        }
    }
}

/// The response of a call that succeeded.
fn sent(message: &impl Message) -> Response<Body> {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(PREFIX + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).unwrap_or_default());
    // The buffer has room for the whole message, so this never fails.
    let _fits = message.encode(&mut frame);
    let mut trailers = HeaderMap::new();
    trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
    let frames = [Frame::data(frame.freeze()), Frame::trailers(trailers)].map(Ok::<_, Status>);
    let mut response = Response::new(Body::new(StreamBody::new(futures_util::stream::iter(frames))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

impl RateLimitService {
    async fn answer(&self, message: &[u8]) -> Result<RateLimitResponse, Status> {
        let request = is_modest(message).then(|| RateLimitRequest::decode(message));
        let Some(Ok(request)) = request else { return Ok(self.unreadable()) };
        let answer = self.allow(&request).await;
        self.metrics.count(match &answer {
            Ok((_, answered)) => *answered,
            Err(_) => Answered::Refused,
        });
        answer.map(|(response, _)| response)
    }

    /// The answer to a message that cannot be read: over the limit. Envoy lets a request pass on an error, and a client may
    /// have made its message unreadable.
    fn unreadable(&self) -> RateLimitResponse {
        self.metrics.count(Answered::Unreadable);
        over_limit()
    }

    async fn allow(&self, request: &RateLimitRequest) -> Result<(RateLimitResponse, Answered), Status> {
        let deadline = Instant::now() + self.timeout;
        let descriptors = descriptors(request)?;
        // Everything is checked before anything is spent: a request that is an error costs nothing.
        let owed = self.decider.in_force().policy.owed_by_descriptors(&request.domain, &descriptors);
        // A client that can add a descriptor must not bypass the others with it.
        let Ok(owed) = owed else { return Ok((over_limit(), Answered::Refused)) };
        self.unmatched.count(owed.unmatched());

        let charged = self.charge(&owed, deadline).await;
        let answered = charged.answered();
        let mut response = RateLimitResponse {
            overall_code: Code::Ok.into(),
            statuses: charged.statuses(),
            dynamic_metadata: charged.metadata(request),
            ..Default::default()
        };
        if let Some(decision) = charged.told() {
            let wall = self.decider.wall_now();
            response.response_headers_to_add = verdict::headers(decision, wall, self.fields);
        }
        if matches!(answered, Answered::Limited | Answered::Unavailable) {
            response.overall_code = Code::OverLimit.into();
            return Ok((response, answered));
        }
        let each = || owed.each.iter().enumerate();
        // A refund that fails is lost, as it would be with a client that does not ask again.
        let refunds = each().filter(|(_, owed)| matches!(owed, DescriptorOwed::Refund(_)));
        for (at, decision) in self.decide_each(refunds, deadline).await {
            response.statuses[at] = verdict::status_alone(&decision);
        }
        let watched = self.decide_each(owed.shadow.iter().map(|(at, owed)| (*at, owed)), deadline).await;
        if let (None, Some((_, decision))) = (charged.told(), watched.last()) {
            response.response_headers_to_add =
                verdict::headers(decision, self.decider.wall_now(), self.fields);
        }
        for (at, decision) in watched {
            if matches!(owed.each[at], DescriptorOwed::Shadow) {
                response.statuses[at] = verdict::status_alone(&decision);
            }
        }
        Ok((response, answered))
    }

    /// Charges everything that is owed. If there are alternatives, enforced charges are spent last, and only if an alternative passes: a
    /// denied request pays for neither.
    async fn charge<'o>(&self, owed: &'o DescriptorsOwed, deadline: Instant) -> Charged<'o> {
        if !owed.has_alternatives() {
            let (enforced, alone) =
                tokio::join!(self.spend(owed, self.timeout), self.decide_alone(owed, deadline));
            return Charged::new(owed, alone).with_enforced(enforced);
        }
        let charged = Charged::new(owed, self.decide_alone(owed, deadline).await);
        if charged.lacks_alternative() {
            return charged;
        }
        let enforced = self.spend(owed, deadline.duration_since(Instant::now())).await;
        let charged = charged.with_enforced(enforced);
        if !charged.passes_enforced() {
            let back =
                charged.passed().filter_map(|one| match (&owed.each[one.at], one.decision.charged_at()) {
                    (DescriptorOwed::Any(chain), Some(spent)) => {
                        Some(timeout_at(deadline, self.decider.refund_chain(chain, SpendTime::At(spent))))
                    }
                    _ => None,
                });
            // If the store fails or is late, they stay charged.
            let _given_back = join_all(back).await;
        }
        charged
    }

    /// Spends all enforced charges, or none.
    async fn spend(&self, owed: &DescriptorsOwed, within: Duration) -> Option<Decision> {
        match &owed.enforced {
            Enforced::Charged(chain) => self.decider.allow_within(chain, within).await,
            Enforced::Unlimited { .. } => None,
        }
    }

    /// Decides descriptors by themselves: one alternative is enough, and usage is charged even if the decision denies
    /// the request. A late charge that the store does not take is lost.
    async fn decide_alone(&self, owed: &DescriptorsOwed, deadline: Instant) -> Vec<AloneDecision> {
        // No future is made for the others: most are enforced together, and it would be large.
        let alone = owed.each.iter().enumerate();
        let alone =
            alone.filter(|(_, owed)| matches!(owed, DescriptorOwed::Any(_) | DescriptorOwed::Late(_)));
        let decided = self.decide_each(alone, deadline).await;
        decided.into_iter().map(|(at, decision)| AloneDecision::new(at, &owed.each[at], decision)).collect()
    }

    /// Decides each of these by itself, concurrently, in the remaining time. Late charges and refunds that fail are left out.
    async fn decide_each<'o>(
        &self,
        owed: impl Iterator<Item = (usize, &'o DescriptorOwed)>,
        deadline: Instant,
    ) -> Vec<(usize, Decision)> {
        let within = deadline.duration_since(Instant::now());
        let one = async |(at, owed): (usize, &DescriptorOwed)| {
            let decision = match owed {
                DescriptorOwed::Any(chain) => self.decider.allow_within(chain, within).await?,
                DescriptorOwed::Late(chain) => self.decider.charge_within(chain, within).await.ok()?,
                DescriptorOwed::Refund(chain) => {
                    // Negative hits have no time.
                    let refund = self.decider.refund_chain(chain, SpendTime::ThisWindow);
                    timeout_at(deadline, refund).await.ok()?.ok()?
                }
                _ => return None,
            };
            Some((at, decision))
        };
        join_all(owed.map(one)).await.into_iter().flatten().collect()
    }
}

/// The whole request is over the limit.
fn over_limit() -> RateLimitResponse {
    RateLimitResponse { overall_code: Code::OverLimit.into(), ..Default::default() }
}
