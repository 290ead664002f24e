//! One call of the script: the requests that share it, their encoding, and the decoding of the reply.

use smallvec::SmallVec;
use spile_core::{Amount, Bucket, Limit, Micros, OneOrMany, Rate, Shape};
use spile_resp::{Value, write};

use crate::script::SPEND;
use crate::script::hashes::CallHashes;
use crate::script::msgpack;
use crate::script::request::{
    BatchGroup, PendingRequest, Request, ScriptOp, ScriptReply, WINDOW_BOUNDS, WireLimit,
};

/// The last microsecond that a double represents exactly.
const LAST_US: i64 = (1 << 53) - 1;

/// Numbers per limit.
const LIMIT_NUMBERS: usize = 5;

/// The most micro-tokens that the script reports, of a debt or a usage.
const MOST_MICRO: i64 = 6_000_000_000_000_000;

/// Encodes an unused quota in the amount of a bucket; the micro-tokens used are subtracted from it.
const UNUSED: i64 = -4_000_000_000_000_000;

/// How the call refers to the script.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ScriptRef {
    /// `EVALSHA`: short, and fails if the node has not cached the script.
    Sha,
    /// `EVAL`: always works, and makes the node cache the script.
    Source,
}

/// Requests that share one script call. In a cluster all their keys are in one slot.
#[derive(Debug)]
pub(crate) struct ScriptCall {
    /// Echoed by the script, so that a reply is never taken for the reply to another call.
    sequence: u64,
    waiting: Vec<PendingRequest>,
    script_ref: ScriptRef,
}

/// The decoded reply to a call.
#[derive(Debug)]
pub(crate) struct CallReply {
    /// One per request, in their order.
    pub(crate) replies: Vec<ScriptReply>,
    /// How many buckets the script found broken and repaired.
    pub(crate) repairs: u64,
    /// How many permits it found that had ended by themselves.
    pub(crate) expired_permits: u64,
}

/// A reply that does not fit the call.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum BadReply {
    #[error("reply to another request")]
    Foreign,
    #[error("reply of an unexpected shape")]
    Shape,
}

impl ScriptCall {
    pub(crate) fn new(sequence: u64, waiting: Vec<PendingRequest>) -> Self {
        Self { sequence, waiting, script_ref: ScriptRef::Sha }
    }

    /// The same call for a node that has not cached the script.
    pub(crate) fn with_source(self) -> Self {
        Self { script_ref: ScriptRef::Source, ..self }
    }

    pub(crate) fn into_waiting(self) -> Vec<PendingRequest> {
        self.waiting
    }

    /// The key of the first charge.
    pub(crate) fn first_key(&self) -> Option<&[u8]> {
        self.requests().find_map(|request| request.charges.first()).map(|charge| charge.key.hash())
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_asking(&self) -> bool {
        self.waiting.iter().any(|waiting| waiting.group == BatchGroup::Asking)
    }

    /// Appends the command to `out`. If `now_us` is zero, the script asks Redis for the time.
    pub(crate) fn write(&self, now_us: u64, out: &mut Vec<u8>) {
        let (keys, arguments) = self.arguments(now_us);
        let (command, script): (&[u8], &[u8]) = match self.script_ref {
            ScriptRef::Sha => (b"EVALSHA", SPEND.sha().as_bytes()),
            ScriptRef::Source => (b"EVAL", SPEND.source().as_bytes()),
        };
        write::array(out, 4 + keys.len());
        write::bulk(out, command);
        write::bulk(out, script);
        write::bulk(out, keys.len().to_string().as_bytes());
        for key in keys {
            write::bulk(out, key);
        }
        write::bulk(out, &arguments);
    }

    /// Decodes the reply, and checks that it belongs to this call.
    pub(crate) fn read(&self, reply: &Value) -> Result<CallReply, BadReply> {
        let numbers = reply.as_array().ok_or(BadReply::Shape)?;
        if numbers.first().and_then(Value::as_int) != Some(self.sequence.cast_signed()) {
            return Err(BadReply::Foreign);
        }
        self.read_numbers(numbers).ok_or(BadReply::Shape)
    }

    fn requests(&self) -> impl Iterator<Item = &Request> {
        self.waiting.iter().map(|waiting| &*waiting.request)
    }

    /// The distinct keys, and all other arguments as one msgpack array that refers to buckets and limits by number.
    fn arguments(&self, now_us: u64) -> (Vec<&[u8]>, Vec<u8>) {
        let mut hashes = CallHashes::default();
        let charges = self.requests().flat_map(|request| &request.charges);
        let places: SmallVec<[_; 64]> = charges.map(|charge| hashes.add(charge)).collect();
        hashes.number();
        let mut places = places.iter();
        let mut limits: Vec<WireLimit> = Vec::new();
        let mut decisions = Vec::with_capacity(16 * self.waiting.len());
        let mut entries = hashes.write_shared(&mut decisions);
        for request in self.requests() {
            msgpack::push_int(&mut decisions, request.operation as u64);
            msgpack::push_int(&mut decisions, request.charges.len() as u64);
            for (charge, place) in request.charges.iter().zip(&mut places) {
                match hashes.bucket(*place) {
                    Ok(number) => msgpack::push_int(&mut decisions, number as u64),
                    Err(number) => msgpack::push_double(&mut decisions, number),
                }
                msgpack::push_int(&mut decisions, limit_position(&mut limits, charge.limit) as u64);
                msgpack::push_int(&mut decisions, charge.cost_micro.unsigned_abs());
            }
            entries += 2 + 3 * request.charges.len();
            if let Some(permit) = &request.permit {
                msgpack::push_name(&mut decisions, permit.as_str().as_bytes());
                entries += 1;
            }
        }
        let header = [self.sequence, now_us, limits.len() as u64, hashes.plain() as u64];
        let mut arguments = Vec::with_capacity(40 + 24 * limits.len() + decisions.len());
        let quotas = limits.iter().filter_map(|limit| limit.windows);
        msgpack::push_array(
            &mut arguments,
            header.len() + LIMIT_NUMBERS * limits.len() + entries + WINDOW_BOUNDS * quotas.clone().count(),
        );
        for number in header {
            msgpack::push_int(&mut arguments, number);
        }
        // The windows of quotas come last. In place of a rate, a quota has their place, below zero.
        let mut place = header.len() + LIMIT_NUMBERS * limits.len() + entries + 1;
        for limit in &limits {
            msgpack::push_int(&mut arguments, limit.limit.capacity().micro().unsigned_abs());
            if limit.windows.is_some() {
                msgpack::push_double(&mut arguments, -(place as f64));
                place += WINDOW_BOUNDS;
            } else {
                let rate = limit.limit.rate().map_or(0.0, Rate::per_second);
                msgpack::push_double(&mut arguments, rate);
            }
            msgpack::push_int(&mut arguments, limit.ttl_ms);
            for amount in [limit.limit.debt(), limit.limit.quantum()] {
                msgpack::push_int(&mut arguments, amount.micro().unsigned_abs());
            }
        }
        arguments.extend_from_slice(&decisions);
        for bound in quotas.flatten() {
            msgpack::push_int(&mut arguments, bound);
        }
        (hashes.keys(), arguments)
    }

    fn read_numbers(&self, numbers: &[Value]) -> Option<CallReply> {
        let mut numbers = numbers.iter().skip(1);
        let mut next = |least: i64, most: i64| {
            numbers.next().and_then(Value::as_int).filter(|number| (least..=most).contains(number))
        };
        let at = Micros::new(next(0, LAST_US)?.unsigned_abs());
        let repairs = next(0, LAST_US)?.unsigned_abs();
        let expired_permits = next(0, LAST_US)?.unsigned_abs();
        let mut replies = Vec::with_capacity(self.waiting.len());
        for request in self.requests() {
            let granted = next(ScriptReply::OUTSIDE_WINDOWS, MOST_MICRO)?;
            let mut buckets = OneOrMany::new();
            if request.operation != ScriptOp::Reset {
                for charge in &request.charges {
                    let amount = next(-MOST_MICRO, MOST_MICRO)?;
                    let moment = Micros::new(next(0, LAST_US)?.unsigned_abs());
                    buckets.push(match request.operation {
                        ScriptOp::TimeToLive => Bucket::new(Amount::from_micro(amount), moment),
                        _ => bucket_under(&charge.limit.limit, amount, moment),
                    });
                }
            }
            replies.push(ScriptReply { granted, at, buckets });
        }
        numbers.next().is_none().then_some(CallReply { replies, repairs, expired_permits })
    }
}

/// The bucket of a limit, which may have been written under another shape.
fn bucket_under(limit: &Limit, held: i64, written_at: Micros) -> Bucket {
    let used = UNUSED - held;
    match limit.shape() {
        Shape::Rate(_) if used >= 0 => {
            Bucket::new(limit.capacity().above(Amount::from_micro(used)), written_at)
        }
        Shape::Rate(_) | Shape::Concurrency(_) => Bucket::new(Amount::from_micro(held), written_at),
        Shape::Quota(quota) => {
            // Debts of a rate are owed by the quota that replaces it.
            let used = if used >= 0 { used } else { (-held).max(0) };
            Bucket::new(Amount::from_micro(used), quota.windows().window_at(written_at).end)
        }
    }
}

/// Counted from one. A call has few distinct limits, so a linear search is faster than hashing.
fn limit_position(limits: &mut Vec<WireLimit>, limit: WireLimit) -> usize {
    let found = limits.iter().position(|seen| *seen == limit);
    1 + found.unwrap_or_else(|| {
        limits.push(limit);
        limits.len() - 1
    })
}
