//! A gRPC client with Envoy's messages, written down anew from Envoy's own files: a number that is wrong in the server
//! cannot be wrong here in the same way.

use std::net::SocketAddr;

use bytes::BufMut;
use prost_types::value::Kind;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Status, client::Grpc};
use tonic_prost::ProstCodec;

pub(crate) const OK: i32 = 1;
pub(crate) const OVER_LIMIT: i32 = 2;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Request {
    #[prost(string, tag = "1")]
    pub(crate) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) descriptors: Vec<Descriptor>,
    #[prost(uint32, tag = "3")]
    pub(crate) hits_addend: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<Pair>,
    #[prost(message, optional, tag = "2")]
    pub(crate) limit: Option<Rate>,
    #[prost(message, optional, tag = "3")]
    pub(crate) hits_addend: Option<Wrapped>,
    #[prost(bool, tag = "4")]
    pub(crate) is_negative_hits: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Pair {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    /// Envoy sends whatever bytes a header has.
    #[prost(bytes, tag = "2")]
    pub(crate) value: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Wrapped {
    #[prost(uint64, tag = "1")]
    pub(crate) value: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Rate {
    #[prost(uint32, tag = "1")]
    pub(crate) requests_per_unit: u32,
    #[prost(int32, tag = "2")]
    pub(crate) unit: i32,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Response {
    #[prost(int32, tag = "1")]
    pub(crate) overall_code: i32,
    #[prost(message, repeated, tag = "2")]
    pub(crate) statuses: Vec<DescriptorStatus>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) headers: Vec<Pair>,
    #[prost(message, optional, tag = "6")]
    pub(crate) dynamic_metadata: Option<prost_types::Struct>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DescriptorStatus {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) current_limit: Option<Rate>,
    #[prost(uint32, tag = "3")]
    pub(crate) limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    pub(crate) duration_until_reset: Option<prost_types::Duration>,
}

impl Request {
    pub(crate) fn new(domain: &str, descriptors: &[&[(&str, &str)]]) -> Self {
        let pair =
            |&(key, value): &(&str, &str)| Pair { key: key.to_owned(), value: value.as_bytes().to_vec() };
        let descriptor = |entries: &&[(&str, &str)]| Descriptor {
            entries: entries.iter().map(pair).collect(),
            ..Descriptor::default()
        };
        let descriptors = descriptors.iter().map(descriptor).collect();
        Self { domain: domain.to_owned(), descriptors, hits_addend: 0 }
    }

    pub(crate) fn hits(mut self, hits: u32) -> Self {
        self.hits_addend = hits;
        self
    }

    /// The same with the last descriptor changed.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Descriptor)) -> Self {
        change(self.descriptors.last_mut().expect("there is a descriptor"));
        self
    }
}

impl Response {
    /// The overall code, the code of each descriptor and what it has left.
    pub(crate) fn told(&self) -> (i32, Vec<(i32, u32)>) {
        let each = self.statuses.iter().map(|status| (status.code, status.limit_remaining));
        (self.overall_code, each.collect())
    }

    /// The alternatives that are over their limits. `None` if there is no metadata.
    pub(crate) fn violations(&self) -> Option<Vec<f64>> {
        let Some(Kind::ListValue(list)) = &self.dynamic_metadata.as_ref()?.fields["quotaModeViolations"].kind
        else {
            panic!("{self:?}")
        };
        let number = |value: &prost_types::Value| match value.kind {
            Some(Kind::NumberValue(number)) => number,
            _ => panic!("{value:?}"),
        };
        Some(list.values.iter().map(number).collect())
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|header| header.key == name);
        found.map(|header| std::str::from_utf8(&header.value).expect("a header of text"))
    }
}

/// Sends bytes as they are.
#[derive(Clone, Copy)]
struct Bytes;

impl Codec for Bytes {
    type Encode = &'static [u8];
    type Decode = Response;
    type Encoder = Self;
    type Decoder = tonic_prost::ProstDecoder<Response>;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<Request, Response>::default().decoder()
    }
}

impl Encoder for Bytes {
    type Item = &'static [u8];
    type Error = Status;

    fn encode(&mut self, message: &'static [u8], out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put_slice(message);
        Ok(())
    }
}

/// One connection.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) channel: Channel,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let endpoint = Channel::from_shared(format!("http://{address}")).expect("an address is a URI");
        Self { channel: endpoint.connect().await.expect("it listens") }
    }

    pub(crate) async fn ask(&self, request: Request) -> Response {
        self.try_ask(request).await.expect("it answers")
    }

    pub(crate) async fn try_ask(&self, request: Request) -> Result<Response, Status> {
        self.ask_with(ProstCodec::default(), request).await
    }

    /// Asks with these bytes for a message.
    pub(crate) async fn ask_bytes(&self, message: &'static [u8]) -> Result<Response, Status> {
        self.ask_with(Bytes, message).await
    }

    async fn ask_with<T, C>(&self, codec: C, request: T) -> Result<Response, Status>
    where
        T: Send + Sync + 'static,
        C: Codec<Encode = T, Decode = Response> + Send + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.expect("the connection stands");
        let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
        let answer = grpc.unary(tonic::Request::new(request), PathAndQuery::from_static(path), codec).await;
        answer.map(tonic::Response::into_inner)
    }
}
