//! Bodies in transit: streamed with bounds on size and silence, never buffered as a whole.

mod activity;
mod discard;
mod download;
mod upload;

use bytes::Bytes;
use http_body_util::{Either, Full};

pub(crate) use activity::{Activity, SharedIdleTimer};
pub(crate) use discard::discard;
pub(crate) use download::{AnswerMeter, Download, IncompleteBody};
pub(crate) use upload::{Upload, UploadError, UploadProgress};

/// The body of a response to a client: the gateway's own, or an upstream's.
pub(crate) type ResponseBody = Either<Full<Bytes>, Download>;
