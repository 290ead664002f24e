//! One call of the script: the requests that share it, their encoding, and the decoding of the reply.

use smallvec::SmallVec;
use spile_core::{Amount, Bucket, Micros, OneOrMany, Rate, Reply, Shape, SpendTime, StoreError, Verdict};
use spile_resp::Value;

use crate::connection::ConnectionError;
use crate::script::call_keys::CallKeys;
use crate::script::error_reply::Rejection;
use crate::script::key::BucketKey;
use crate::script::msgpack;
use crate::script::request::{
    BatchGroup, Marker, PendingRequest, Request, RequestDetails, ScriptOp, WINDOW_BOUNDS, WireLimit,
};
use crate::script::{EVERYTHING, RATES, Script, ScriptRef};

/// The last microsecond that a double represents exactly.
pub(crate) const LAST_US: i64 = (1 << 53) - 1;

/// Numbers before the lists of fields.
const HEADER: usize = 4;

/// Numbers per limit.
const LIMIT_NUMBERS: usize = 5;

/// The most micro-tokens that the script reports, of a debt or a usage.
const MOST_MICRO: i64 = 6_000_000_000_000_000;

/// The script's verdicts after those of [`VERDICTS`].
const OUTSIDE_WINDOWS: i64 = 5;
const NEWER_FORMAT: i64 = 6;

/// The verdicts by their numbers.
const VERDICTS: [Verdict; 5] =
    [Verdict::Denied, Verdict::Done, Verdict::Before, Verdict::Expired, Verdict::Unknown];

/// Requests that share one script call. In a cluster all their keys are in one slot.
#[derive(Debug)]
pub(crate) struct ScriptCall {
    /// Echoed by the script, so that a reply is never taken for the reply to another call.
    sequence: u64,
    waiting: Vec<PendingRequest>,
    script_ref: ScriptRef,
}

/// The error that answered a call.
#[derive(Debug)]
pub(crate) struct RefusedCall {
    pub(crate) text: String,
    /// Whether the script had written anything. `None` if the script did not report it.
    pub(crate) wrote: Option<bool>,
}

/// The answers of a call.
#[derive(Debug)]
pub(crate) struct CallAnswers {
    /// One per request, in their order.
    pub(crate) replies: Vec<Result<Reply, Rejection>>,
    /// How many buckets the script found broken and repaired.
    pub(crate) repairs: u64,
    /// How many permits it found that had ended by themselves.
    pub(crate) expired_permits: u64,
}

impl ScriptCall {
    pub(crate) fn new(sequence: u64, waiting: Vec<PendingRequest>) -> Self {
        Self { sequence, waiting, script_ref: ScriptRef::Sha }
    }

    /// Returns the call for a node that has not cached the script.
    pub(crate) fn with_source(self) -> Self {
        Self { script_ref: ScriptRef::Source, ..self }
    }

    /// Answers each request with this rejection.
    pub(crate) fn reject(self, why: &Rejection) {
        for waiting in self.waiting {
            waiting.answer(Err(why.clone()));
        }
    }

    pub(crate) fn into_waiting(self) -> Vec<PendingRequest> {
        self.waiting
    }

    /// The key of the first charge.
    pub(crate) fn first_key(&self) -> Option<&[u8]> {
        self.requests().find_map(|request| request.keys().next()).map(BucketKey::hash)
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
        self.script().write(self.script_ref, keys.into_iter(), &[&arguments], out);
    }

    /// Decodes the reply, and checks that it belongs to this call.
    pub(crate) fn read(&self, reply: &Value) -> Result<Result<CallAnswers, RefusedCall>, ConnectionError> {
        if let Value::Error(text) = reply {
            return Ok(Err(RefusedCall { text: text.clone(), wrote: None }));
        }
        let numbers = reply.as_array().ok_or(ConnectionError::WrongShape)?;
        if numbers.first().and_then(Value::as_int) != Some(self.sequence.cast_signed()) {
            return Err(ConnectionError::Foreign);
        }
        if let [_, Value::Text(error), wrote] = numbers {
            let text = String::from_utf8_lossy(error).into_owned();
            return Ok(Err(RefusedCall { text, wrote: Some(wrote.as_int() != Some(0)) }));
        }
        self.read_numbers(numbers).map(Ok).ok_or(ConnectionError::WrongShape)
    }

    fn requests(&self) -> impl Iterator<Item = &Request> {
        self.waiting.iter().map(|waiting| &*waiting.request)
    }

    pub(crate) fn script(&self) -> &'static Script {
        if self.requests().all(Request::is_about_rates) { &RATES } else { &EVERYTHING }
    }

    /// The distinct keys, and all other arguments as msgpack values that refer to buckets by number and to limits by their
    /// place among the values.
    pub(crate) fn arguments(&self, now_us: u64) -> (Vec<&[u8]>, Vec<u8>) {
        let counts_shapes = !self.requests().all(Request::is_about_rates);
        let mut keys = CallKeys::default();
        let mut places: SmallVec<[_; 64]> = SmallVec::new();
        for request in self.requests() {
            places.extend(request.by_shape().map(|(_, charge)| keys.add(charge)));
            let settles = request.operation == ScriptOp::Settle;
            places.extend(request.details.marker.iter().map(|marker| keys.add_marker(&marker.key, settles)));
        }
        keys.number();
        let mut lists = Vec::with_capacity(32);
        let first_limit = 1 + HEADER + keys.write_lists(&mut lists);
        let mut limits: SmallVec<[WireLimit; 1]> = SmallVec::new();
        let mut decisions = Vec::with_capacity(16 * self.waiting.len());
        let (mut entries, mut places) = (0, places.iter());
        for request in self.requests() {
            msgpack::push_int(&mut decisions, request.operation as u64);
            let counts: &[usize] = if counts_shapes { &request.counts() } else { &[request.charges.len()] };
            for count in counts {
                msgpack::push_int(&mut decisions, *count as u64);
            }
            for ((_, charge), place) in request.by_shape().zip(&mut places) {
                let limit = first_limit + LIMIT_NUMBERS * position(&mut limits, charge.limit);
                msgpack::push_int(&mut decisions, keys.index(*place));
                msgpack::push_int(&mut decisions, limit as u64);
                msgpack::push_signed(&mut decisions, charge.cost_micro);
            }
            entries += 1 + counts.len() + 3 * request.charges.len();
            if counts_shapes {
                let marker = || places.next().map_or(0, |place| keys.index(*place));
                entries += request.write_details(&mut decisions, marker);
            }
        }
        let first_decision = first_limit + LIMIT_NUMBERS * limits.len();
        let mut bounds = first_decision + entries;
        let quotas = limits.iter().filter_map(|limit| limit.windows);
        let mut arguments = Vec::with_capacity(64 + 24 * limits.len() + lists.len() + decisions.len());
        for number in [self.sequence, now_us, first_decision as u64, bounds as u64] {
            msgpack::push_int(&mut arguments, number);
        }
        arguments.extend_from_slice(&lists);
        for limit in &limits {
            limit.write(&mut bounds, &mut arguments);
        }
        arguments.extend_from_slice(&decisions);
        for bound in quotas.flatten() {
            msgpack::push_int(&mut arguments, bound);
        }
        (keys.keys(), arguments)
    }

    fn read_numbers(&self, numbers: &[Value]) -> Option<CallAnswers> {
        let mut numbers = numbers.iter().skip(1);
        let at = Micros::new(count(&mut numbers)?);
        let repairs = count(&mut numbers)?;
        let expired_permits = count(&mut numbers)?;
        let mut replies = Vec::with_capacity(self.waiting.len());
        for request in self.requests() {
            let verdict = match within(&mut numbers, 0, NEWER_FORMAT)? {
                OUTSIDE_WINDOWS => Err(Rejection::OutsideWindows { now: at }),
                NEWER_FORMAT => Err(Rejection::Failed(StoreError::BadTypes(NEWER.into()))),
                known => Ok(VERDICTS[known as usize]),
            };
            let mut amount = Amount::ZERO;
            if verdict.is_ok() && request.operation.has_amount() {
                amount = Amount::from_micro(within(&mut numbers, 0, MOST_MICRO)?);
            }
            let none = Bucket::new(Amount::ZERO, at);
            let mut buckets: OneOrMany<Bucket> = std::iter::repeat_n(none, request.charges.len()).collect();
            for (position, _) in request.by_shape() {
                let amount = Amount::from_micro(within(&mut numbers, -MOST_MICRO, MOST_MICRO)?);
                let moment = Micros::new(count(&mut numbers)?);
                buckets[position] = Bucket::new(amount, moment);
            }
            let settled = match (&request.details.marker, &verdict) {
                (Some(marker), Ok(Verdict::Done | Verdict::Before))
                    if request.operation == ScriptOp::Settle =>
                {
                    settled_amounts(numbers.next()?, marker.settled.len())?
                }
                _ => Box::default(),
            };
            replies.push(verdict.map(|verdict| Reply { verdict, amount, at, buckets, settled }));
        }
        numbers.next().is_none().then_some(CallAnswers { replies, repairs, expired_permits })
    }
}

/// The next number of a reply, if it is within these bounds.
fn within<'v>(numbers: &mut impl Iterator<Item = &'v Value>, least: i64, most: i64) -> Option<i64> {
    numbers.next().and_then(Value::as_int).filter(|number| (least..=most).contains(number))
}

/// The next number of a reply that is a moment or a count.
fn count<'v>(numbers: &mut impl Iterator<Item = &'v Value>) -> Option<u64> {
    within(numbers, 0, LAST_US).map(i64::unsigned_abs)
}

/// The amounts of a tombstone. One that is missing or that cannot be read is zero.
fn settled_amounts(text: &Value, count: usize) -> Option<Box<[Amount]>> {
    let Value::Text(text) = text else { return None };
    let text = String::from_utf8_lossy(text);
    let amounts = text.split(',').map(|amount| amount.parse().unwrap_or_default());
    let amounts = amounts.map(|micro: i64| Amount::from_micro(micro.clamp(0, MOST_MICRO)));
    Some(amounts.chain(std::iter::repeat(Amount::ZERO)).take(count).collect())
}

impl Request {
    /// Appends what only some operations have. `marker` returns the bucket of the marker. Returns the number of entries.
    fn write_details(&self, out: &mut Vec<u8>, marker: impl FnOnce() -> u64) -> usize {
        let RequestDetails { permit, spent, marker: details } = &self.details;
        let mut entries = 0;
        if let Some(permit) = permit {
            msgpack::push_text(out, &[permit.as_str().as_bytes()]);
            entries += 1;
        }
        if self.operation.has_spend_time() {
            match spent {
                SpendTime::Unknown => msgpack::push_bool(out, false),
                SpendTime::ThisWindow => msgpack::push_bool(out, true),
                SpendTime::At(moment) => msgpack::push_int(out, moment.get()),
            }
            entries += 1;
        }
        if let Some(Marker { amount, settled, .. }) = details {
            msgpack::push_int(out, marker());
            if self.operation == ScriptOp::Settle {
                let amounts: Vec<_> = settled.iter().map(i64::to_string).collect();
                msgpack::push_text(out, &[amounts.join(",").as_bytes()]);
            } else {
                msgpack::push_signed(out, *amount);
            }
            entries += 2;
        }
        entries
    }
}

/// Why a bucket of a newer format is left alone.
const NEWER: &str = "it was written by a newer version";

impl WireLimit {
    /// Appends the numbers of the limit. Those of a quota say where the bounds of its windows are.
    fn write(&self, bounds: &mut usize, out: &mut Vec<u8>) {
        let ttl_ms = self.ttl_ms();
        msgpack::push_int(out, self.limit.capacity().micro().unsigned_abs());
        match self.limit.shape() {
            Shape::Rate(rate) => msgpack::push_double(out, Rate::per_second(rate)),
            Shape::Quota(_) => {
                msgpack::push_int(out, *bounds as u64);
                *bounds += WINDOW_BOUNDS;
            }
            Shape::Concurrency(_) => msgpack::push_int(out, ttl_ms),
        }
        msgpack::push_int(out, ttl_ms);
        for amount in [self.limit.debt(), self.limit.quantum()] {
            msgpack::push_int(out, amount.micro().unsigned_abs());
        }
    }
}

/// The position of a limit, which is added unless it is there. A call has few distinct limits, so a linear search is faster than
/// hashing.
fn position(limits: &mut SmallVec<[WireLimit; 1]>, limit: WireLimit) -> usize {
    let found = limits.iter().position(|seen| *seen == limit);
    found.unwrap_or_else(|| {
        limits.push(limit);
        limits.len() - 1
    })
}
