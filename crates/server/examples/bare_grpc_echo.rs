//! What gRPC alone costs: tonic, reading Envoy's question and answering with a verdict that is always the same.
//! `bench/grpc/run` measures `spile serve` against it.

#[allow(dead_code, unreachable_pub, reason = "the messages of the server, of which this needs some")]
#[path = "../src/grpc/message.rs"]
mod message;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::Service;

use crate::message::{
    Code, CurrentLimit, DescriptorStatus, HeaderValue, RateLimitRequest, RateLimitResponse, SERVICE, TimeUnit,
};

/// The same allocator as `spile`, so that only the work differs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    Ok(Server::builder().add_service(EchoServer { verdict: verdict() }).serve_with_incoming(incoming).await?)
}

/// What `tonic-build` makes of a service with one method.
#[derive(Clone)]
struct EchoServer {
    verdict: RateLimitResponse,
}

impl NamedService for EchoServer {
    const NAME: &'static str = SERVICE;
}

impl Service<http::Request<Body>> for EchoServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let echo = self.clone();
        Box::pin(async move { Ok(Grpc::new(ProstCodec::default()).unary(echo, request).await) })
    }
}

impl UnaryService<RateLimitRequest> for EchoServer {
    type Response = RateLimitResponse;
    type Future = Ready<Result<Response<RateLimitResponse>, Status>>;

    fn call(&mut self, question: Request<RateLimitRequest>) -> Self::Future {
        // Reading the question to its end is part of the price of answering it.
        drop(question);
        ready(Ok(Response::new(std::mem::take(&mut self.verdict))))
    }
}

/// What `spile serve` answers to a question with one descriptor, with the same header fields.
fn verdict() -> RateLimitResponse {
    let field = |(key, value): (&str, &str)| HeaderValue { key: key.to_owned(), value: value.to_owned() };
    RateLimitResponse {
        overall_code: Code::Ok.into(),
        statuses: vec![DescriptorStatus {
            code: Code::Ok.into(),
            current_limit: Some(CurrentLimit {
                requests_per_unit: 1_000_000_000,
                unit: TimeUnit::Second.into(),
                name: "bench".to_owned(),
            }),
            limit_remaining: 999_999_999,
            duration_until_reset: Some(prost_types::Duration { seconds: 0, nanos: 1_000 }),
        }],
        response_headers_to_add: [
            ("x-ratelimit-limit", "1000000000"),
            ("x-ratelimit-remaining", "999999999"),
            ("x-ratelimit-reset", "1763404800"),
            ("ratelimit-policy", "\"bench\";q=1000000000;w=1"),
            ("ratelimit", "\"bench\";r=999999999;t=1"),
        ]
        .map(field)
        .into(),
        ..RateLimitResponse::default()
    }
}
