//! Checks for HTTP/1 that hyper does not make: requests with two lengths, and connections that are closed while the client
//! sends.

mod framing;
mod linger;

pub use self::framing::is_only_chunked;
pub(crate) use self::framing::{FirstAmbiguous, RequestFraming};
pub(crate) use self::linger::Linger;
