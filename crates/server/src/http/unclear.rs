//! Requests that can be read in two ways, of which one may hide another request.

use http::Request;
use hyper::body::Body;
use spile_listener::{ClientBody, RequestOrigin, is_only_chunked};

/// Whether a request can be read in two ways: it has two ends, or its body is in a coding that is not taken off here.
pub(crate) fn is_unclear(origin: RequestOrigin, request: &Request<ClientBody>) -> bool {
    // Only a body of unknown length can have a coding.
    origin.ambiguous || (request.body().size_hint().exact().is_none() && !is_only_chunked(request.headers()))
}
