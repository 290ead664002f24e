//! A request that does not reach the service, and its answer.

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use spile_core::{Decision, Micros};
use spile_limiter::LimiterError;

use super::HeaderFields;
use crate::response;

/// gRPC's `INVALID_ARGUMENT`.
const INVALID_ARGUMENT: u8 = 3;
/// gRPC's `UNAUTHENTICATED`.
const UNAUTHENTICATED: u8 = 16;
/// gRPC's `INTERNAL`.
const INTERNAL: u8 = 13;

const NO_KEY: &str = "The request carries nothing that it could be rate limited by.";

/// Why a request does not reach the service.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Cause<'a> {
    /// It is over a limit, or the store failed and the policy is to refuse.
    Denied(&'a Decision),
    /// No resolver found a key, and the layer refuses such requests ([`Keyless::Refuse`](crate::Keyless)).
    NoKey,
    /// It could never be decided: an unknown plan, or a cost above what a limit holds. Nothing was spent.
    Invalid(&'a LimiterError),
}

/// A request that does not reach the service, for [`respond_with`](crate::RateLimitLayerBuilder::respond_with).
#[derive(Clone, Copy, Debug)]
pub struct RefusedRequest<'a> {
    pub(crate) cause: Cause<'a>,
    pub(crate) request: &'a Parts,
    pub(crate) now: Micros,
    pub(crate) fields: HeaderFields,
}

impl<'a> RefusedRequest<'a> {
    /// Why.
    pub const fn cause(&self) -> Cause<'a> {
        self.cause
    }

    /// The decision that refused. `None` if the limiter was not asked.
    pub const fn decision(&self) -> Option<&'a Decision> {
        match self.cause {
            Cause::Denied(decision) => Some(decision),
            _ => None,
        }
    }

    /// The request.
    pub const fn request(&self) -> &'a Parts {
        self.request
    }

    /// The wall-clock time of the decision.
    pub const fn now(&self) -> Micros {
        self.now
    }

    /// The usual answer: 429, 503, or a 4xx or 5xx that says what is wrong; for gRPC the corresponding status.
    pub fn response(&self) -> Response<Bytes> {
        let grpc = response::is_grpc(&self.request.headers);
        match self.cause {
            Cause::Denied(decision) if grpc => self.fields.grpc_refusal(decision, self.now),
            Cause::Denied(decision) => self.fields.refusal(decision, self.now),
            Cause::NoKey if grpc => response::grpc_problem(UNAUTHENTICATED, NO_KEY),
            Cause::NoKey => response::problem(StatusCode::UNAUTHORIZED, NO_KEY),
            Cause::Invalid(error) if grpc => grpc_invalid(error),
            Cause::Invalid(error) => response::invalid(error),
        }
    }
}

fn grpc_invalid(error: &LimiterError) -> Response<Bytes> {
    let code = if response::is_callers_fault(error) { INVALID_ARGUMENT } else { INTERNAL };
    response::grpc_problem(code, &error.to_string())
}
