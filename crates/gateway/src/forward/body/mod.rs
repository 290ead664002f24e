//! Bodies on their way through: streamed, counted, timed and never held.

mod activity;
mod discard;
mod download;
mod upload;

use bytes::Bytes;
use http_body_util::{Either, Full};

pub(crate) use activity::Movement;
pub(crate) use discard::discard;
pub(crate) use download::{BrokenOff, Download};
pub(crate) use upload::{Meter, Upload, UploadFailure};

/// What goes back to the client: the gateway's own words, or an upstream's answer.
pub(crate) type Reply = Either<Full<Bytes>, Download>;
