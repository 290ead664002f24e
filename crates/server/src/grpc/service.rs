//! Answers Envoy: reads a message, has it decided, and says what came of it.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::future::join_all;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use prost::Message;
use spile_core::{Charges, Decision, Reason};
use spile_policy::{DescriptorOwed, DescriptorsOwed};
use tokio::time::{Instant, timeout, timeout_at};
use tonic::body::Body;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic::server::UnaryService;
use tonic::service::Routes;
use tonic::{Code as GrpcCode, Status};
use tonic_prost::ProstCodec;
use tower::ServiceExt;

use super::descriptors::descriptors;
use super::health::HealthServer;
use super::message::{Code, RateLimitRequest, RateLimitResponse, SHOULD_RATE_LIMIT};
use super::{reflection, verdict};
use crate::config::GrpcConfig;
use crate::decider::Decider;
use crate::metrics::{Answered, RpcMetrics, Unmatched};
use crate::serve::Answer;

/// The largest message that is read. Most have a few hundred bytes, but each descriptor may hold all of a request's
/// headers, of which Envoy takes 60 KiB unless told otherwise. What is larger is over the limit.
const MAX_MESSAGE: usize = Charges::MAX * 64 * 1024;
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
        let mut grpc = tonic::server::Grpc::new(RawCodec).max_decoding_message_size(MAX_MESSAGE);
        let asked = AtomicBool::new(false);
        let service = ShouldRateLimit { limits: Arc::clone(&self.limits), asked: &asked };
        let answer = timeout(MAX_WAIT, grpc.unary(service, request)).await;
        match answer {
            Ok(answer) if asked.load(Ordering::Relaxed) => answer,
            Ok(_) => self.over_limit(),
            Err(_) => {
                Status::new(GrpcCode::DeadlineExceeded, "the message took too long to arrive").into_http()
            }
        }
    }
}

impl Grpc {
    /// The answer to a message that could not even be taken off the wire: one that is too large, or compressed.
    fn over_limit(&self) -> Response<Body> {
        let message = self.limits.unreadable().encode_to_vec();
        let length = u32::try_from(message.len()).unwrap_or_default().to_be_bytes();
        let frame = Bytes::from([&[0], &length[..], &message].concat());
        let mut trailers = HeaderMap::new();
        trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
        let frames = [Frame::data(frame), Frame::trailers(trailers)].map(Ok::<_, Status>);
        let mut response = Response::new(Body::new(StreamBody::new(futures_util::stream::iter(frames))));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        response
    }
}

/// The only method there is.
struct ShouldRateLimit<'a> {
    limits: Arc<Limits>,
    /// Whether a message has come through.
    asked: &'a AtomicBool,
}

impl UnaryService<Bytes> for ShouldRateLimit<'_> {
    type Response = RateLimitResponse;
    type Future =
        Pin<Box<dyn Future<Output = Result<tonic::Response<RateLimitResponse>, Status>> + Send + 'static>>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        self.asked.store(true, Ordering::Relaxed);
        let limits = Arc::clone(&self.limits);
        Box::pin(async move { limits.answer(request.get_ref()).await.map(tonic::Response::new) })
    }
}

/// Hands messages on as bytes, so that one that cannot be read has an answer of our own.
#[derive(Clone, Copy, Debug, Default)]
struct RawCodec;

impl Codec for RawCodec {
    type Encode = RateLimitResponse;
    type Decode = Bytes;
    type Encoder = tonic_prost::ProstEncoder<RateLimitResponse>;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<RateLimitResponse, RateLimitRequest>::raw_encoder(BufferSettings::default())
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}

impl Limits {
    async fn answer(&self, message: &[u8]) -> Result<RateLimitResponse, Status> {
        let Ok(request) = RateLimitRequest::decode(message) else { return Ok(self.unreadable()) };
        let answer = self.decide(&request).await;
        self.metrics.count(match &answer {
            Ok((_, answered)) => *answered,
            Err(_) => Answered::Refused,
        });
        answer.map(|(response, _)| response)
    }

    /// What is said to a message that cannot be read. An error would let the request pass, and what cannot be read may be
    /// a caller's doing.
    fn unreadable(&self) -> RateLimitResponse {
        self.metrics.count(Answered::Unreadable);
        over_limit()
    }

    async fn decide(&self, request: &RateLimitRequest) -> Result<(RateLimitResponse, Answered), Status> {
        let deadline = Instant::now() + self.timeout;
        let descriptors = descriptors(request)?;
        // All of it is put together before any of it is spent: a request that is an error costs nobody anything.
        let owed = self.decider.in_force().policy.owed_by_descriptors(&request.domain, &descriptors);
        // A client that can add a descriptor must not get past the others by it.
        let Ok(owed) = owed else { return Ok((over_limit(), Answered::Refused)) };
        self.unmatched.count(owed.unmatched());

        let (decision, watched) = tokio::join!(self.spend(&owed), self.watch(&owed));
        let mut response = RateLimitResponse { overall_code: Code::Ok.into(), ..Default::default() };
        let mut answered = Answered::Other;
        if let Some(decision) = &decision {
            answered = match decision.reason() {
                Reason::FailClosed => Answered::Unavailable,
                _ if decision.allowed() && owed.can_pass() => Answered::Allowed,
                _ => Answered::Limited,
            };
        }
        // What is enforced is what the client is told of, if anything is.
        if let Some(decision) = decision.as_ref().or_else(|| watched.last().map(|(_, decision)| decision)) {
            response.response_headers_to_add = verdict::headers(decision, self.decider.wall_now());
        }
        let given_back = if matches!(answered, Answered::Limited | Answered::Unavailable) {
            response.overall_code = Code::OverLimit.into();
            Vec::new()
        } else {
            self.give_back(&owed, deadline).await
        };
        response.statuses = owed.each.iter().map(|_| verdict::unlimited()).collect();
        if let (Some(chain), Some(decision)) = (&owed.enforced, &decision) {
            for (status, owed) in response.statuses.iter_mut().zip(&owed.each) {
                if let DescriptorOwed::Enforced(places) = owed {
                    *status = verdict::status(chain, places, decision);
                }
            }
        }
        for (at, decision) in watched.into_iter().chain(given_back) {
            response.statuses[at] = verdict::status_alone(&decision);
        }
        Ok((response, answered))
    }

    /// Spends all that is enforced, or none of it.
    async fn spend(&self, owed: &DescriptorsOwed) -> Option<Decision> {
        Some(self.decider.check_within(owed.enforced.as_ref()?, self.timeout).await)
    }

    /// Decides what rules that only watch are asked, each by itself: none of them may deny what another allows.
    async fn watch(&self, owed: &DescriptorsOwed) -> Vec<(usize, Decision)> {
        let one = async |(at, owed): (usize, &DescriptorOwed)| match owed {
            DescriptorOwed::Watched(chain) => {
                Some((at, self.decider.check_within(chain, self.timeout).await))
            }
            _ => None,
        };
        join_all(owed.each.iter().enumerate().map(one)).await.into_iter().flatten().collect()
    }

    /// Gives back, in what is left of the time. If the store fails it is lost, as it would be with a client that does not
    /// ask again.
    async fn give_back(&self, owed: &DescriptorsOwed, deadline: Instant) -> Vec<(usize, Decision)> {
        let one = async |(at, owed): (usize, &DescriptorOwed)| match owed {
            DescriptorOwed::GivenBack(chain) => {
                let given_back = self.decider.refund(Some(chain));
                Some((at, timeout_at(deadline, given_back).await.ok()?.ok()?))
            }
            _ => None,
        };
        join_all(owed.each.iter().enumerate().map(one)).await.into_iter().flatten().collect()
    }
}

/// "No" about the request as a whole.
fn over_limit() -> RateLimitResponse {
    RateLimitResponse { overall_code: Code::OverLimit.into(), ..Default::default() }
}
