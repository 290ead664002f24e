//! A gRPC client with Envoy's messages, written down anew from Envoy's own files: a number that is wrong in the server
//! cannot be wrong here in the same way.

use std::net::SocketAddr;

use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Status, client::Grpc};
use tonic_prost::ProstCodec;

pub(super) const OK: i32 = 1;
pub(super) const OVER_LIMIT: i32 = 2;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Request {
    #[prost(string, tag = "1")]
    pub(super) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) descriptors: Vec<Descriptor>,
    #[prost(uint32, tag = "3")]
    pub(super) hits_addend: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    pub(super) entries: Vec<Pair>,
    #[prost(message, optional, tag = "2")]
    pub(super) limit: Option<Rate>,
    #[prost(message, optional, tag = "3")]
    pub(super) hits_addend: Option<Wrapped>,
    #[prost(bool, tag = "4")]
    pub(super) is_negative_hits: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Pair {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Wrapped {
    #[prost(uint64, tag = "1")]
    pub(super) value: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Rate {
    #[prost(uint32, tag = "1")]
    pub(super) requests_per_unit: u32,
    #[prost(int32, tag = "2")]
    pub(super) unit: i32,
    #[prost(string, tag = "3")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Response {
    #[prost(int32, tag = "1")]
    pub(super) overall_code: i32,
    #[prost(message, repeated, tag = "2")]
    pub(super) statuses: Vec<DescriptorStatus>,
    #[prost(message, repeated, tag = "3")]
    pub(super) headers: Vec<Pair>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DescriptorStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) current_limit: Option<Rate>,
    #[prost(uint32, tag = "3")]
    pub(super) limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    pub(super) duration_until_reset: Option<prost_types::Duration>,
}

impl Request {
    pub(super) fn new(domain: &str, descriptors: &[&[(&str, &str)]]) -> Self {
        let pair = |&(key, value): &(&str, &str)| Pair { key: key.to_owned(), value: value.to_owned() };
        let descriptor = |entries: &&[(&str, &str)]| Descriptor {
            entries: entries.iter().map(pair).collect(),
            ..Descriptor::default()
        };
        let descriptors = descriptors.iter().map(descriptor).collect();
        Self { domain: domain.to_owned(), descriptors, hits_addend: 0 }
    }

    pub(super) fn hits(mut self, hits: u32) -> Self {
        self.hits_addend = hits;
        self
    }

    /// The same with the last descriptor changed.
    pub(super) fn with(mut self, change: impl FnOnce(&mut Descriptor)) -> Self {
        change(self.descriptors.last_mut().expect("there is a descriptor"));
        self
    }
}

impl Response {
    /// The overall code, the code of each descriptor and what it has left.
    pub(super) fn told(&self) -> (i32, Vec<(i32, u32)>) {
        let each = self.statuses.iter().map(|status| (status.code, status.limit_remaining));
        (self.overall_code, each.collect())
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|header| header.key == name);
        found.map(|header| header.value.as_str())
    }
}

/// One connection.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) channel: Channel,
}

impl Client {
    pub(super) async fn connect(address: SocketAddr) -> Self {
        let endpoint = Channel::from_shared(format!("http://{address}")).expect("an address is a URI");
        Self { channel: endpoint.connect().await.expect("it listens") }
    }

    pub(super) async fn ask(&self, request: Request) -> Response {
        self.try_ask(request).await.expect("it answers")
    }

    pub(super) async fn try_ask(&self, request: Request) -> Result<Response, Status> {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.expect("the connection stands");
        let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
        let codec: ProstCodec<Request, Response> = ProstCodec::default();
        let answer = grpc.unary(tonic::Request::new(request), PathAndQuery::from_static(path), codec).await;
        answer.map(tonic::Response::into_inner)
    }
}
