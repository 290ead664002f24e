//! Reports of callers: their questions and the answers that they get.

use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;
use spile_core::{Charges, Decision, Limit, Shape as LimitShape, StoreError};
use spile_limiter::SettleError;

use crate::oracle::script::{BucketId, Shape};
use crate::scenario::Operation;
use crate::scheduler::Nanos;

/// The reports of all callers, in their order.
pub(crate) type Reports = Arc<Mutex<Vec<Report>>>;

/// One report.
pub(crate) struct Report {
    /// The number of the question.
    pub(crate) question: u64,
    pub(crate) instance: usize,
    pub(crate) at: Nanos,
    pub(crate) what: What,
}

/// A charge as the caller knows it.
#[derive(Clone, Debug)]
pub(crate) struct Owed {
    pub(crate) bucket: BucketId,
    pub(crate) limit: Limit,
    pub(crate) cost: i64,
}

pub(crate) enum What {
    /// A question is about to be asked, and may charge this.
    Asks { operation: Operation, charges: Vec<Owed>, shadow: bool },
    /// It was decided. `waited`: it was asked again after the wait that the last decision named.
    Decided { decision: Decision, waited: bool },
    /// So much was granted.
    Granted { granted: i64, decision: Decision },
    /// Charged late.
    Charged(Result<(), StoreError>),
    /// A spend is about to be refunded. `name`: by an id.
    Refunds { spent: u64, charges: Vec<Owed>, name: Option<u64>, operation: Operation },
    /// It was refunded now, or had been before.
    Refunded(Result<bool, StoreError>),
    /// Buckets were reset.
    Reset(Result<(), StoreError>),
    /// A reservation was decided.
    Reserved { reservation: u64, decision: Decision },
    /// A reservation is about to be settled at these amounts.
    Settles { reservation: u64, charges: Vec<Owed>, amounts: Vec<i64> },
    /// It was settled, now or before.
    Settled { reservation: u64, result: Result<(bool, Vec<i64>), SettleError> },
    /// A permit was decided.
    Acquired { decision: Decision, permit: Option<String> },
    /// A permit was given up, and its release was answered if that was waited for.
    Released { permit: String },
    /// The caller went away, or its process ended.
    Abandoned,
    /// Everything was answered.
    Ended,
}

/// The charges of a question.
pub(crate) fn owed(charges: &Charges<'_>) -> Vec<Owed> {
    let owed = |charge: &spile_core::Charge<'_>| Owed {
        bucket: bucket_id(charge.key().as_str(), charge.limit().name().as_str(), charge.limit().limit()),
        limit: *charge.limit().limit(),
        cost: charge.cost().amount().micro(),
    };
    charges.iter().map(owed).collect()
}

/// The bucket of a key under a limit, named as the layout says.
fn bucket_id(key: &str, name: &str, limit: &Limit) -> BucketId {
    let mut tag = String::new();
    for byte in key.bytes() {
        match byte {
            b'{' | b'}' | b'%' | b':' | 0x7f | 0..0x20 => {
                let _ = write!(tag, "%{byte:02X}");
            }
            _ => tag.push(char::from(byte)),
        }
    }
    let shape = match limit.shape() {
        LimitShape::Rate(_) => Shape::Rate,
        LimitShape::Quota(_) => Shape::Quota,
        LimitShape::Concurrency(_) => Shape::Concurrency,
    };
    let (plan, own) = name.split_once('/').unwrap_or((name, ""));
    let (key, name) = match shape {
        Shape::Concurrency => (format!("spile:{{{tag}}}:permits:{name}"), String::new()),
        Shape::Rate | Shape::Quota => (format!("spile:{{{tag}}}:{plan}"), own.to_owned()),
    };
    BucketId { key, name, shape }
}
