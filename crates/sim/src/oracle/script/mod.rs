//! Judges every call of the script.
//!
//! A call is decoded by the layout, and its answer is calculated from the design in whole numbers. Rates are exact fractions: where a
//! double may round to the next micro-token, both answers are right. The numbers that an answer reports are then taken over, so that
//! roundings do not add up.
//!
//! The oracle forgets nothing that matters. Redis may forget a bucket once it was full under every limit that asked, a quota once its
//! window was over, a marker or a permit once it had ended, each by the highest time that its clock has shown since. From then on both
//! answers are right. What the reply does not say, such as the time to live, is only judged by its consequences.
//!
//! It shares no code with what it judges.

mod bucket;
mod marker;
mod msgpack;
mod parts;
mod permit;
mod question;
mod rate;
mod reply;
mod state;
mod types;
mod verdict;
mod wire;

use bucket::Look;
use permit::{Swept, TOKEN};
use question::Judgement;
use reply::{Form, Replied};
use spile_resp::Value;
use state::{Foreign, Memory, Permits, Record, ServerClock};
use wire::{Call, Charge, Question};

pub use rate::PlainRate;
pub use types::{
    BucketId, Executed, ExecutedCharge, Found, Op, PlainLimit, PlainWindow, ScriptKind, Shape, Step, Verdict,
};

/// Above this number buckets are dropped that have been full for [`DROPPED_AFTER_US`].
const MOST_BUCKETS: usize = 100_000;
/// A clock that steps back further finds those buckets full.
const DROPPED_AFTER_US: i128 = 86_400_000_000;

/// One executed call of a script as it was sent and answered.
#[derive(Clone, Copy, Debug)]
pub struct ScriptCall<'a> {
    /// The server's clock at execution.
    pub server_us: u64,
    /// The script.
    pub script: ScriptKind,
    /// Its keys.
    pub keys: &'a [&'a [u8]],
    /// Its only argument.
    pub argument: &'a [u8],
    /// Its reply.
    pub reply: &'a Value,
}

/// Knows what every answer has to be.
#[derive(Clone, Debug, Default)]
pub struct ScriptOracle {
    memory: Memory,
    clock: ServerClock,
    foreign: Foreign,
    has_purged: bool,
    doubts: Doubts,
    /// The number of buckets at which to look for some to drop.
    purge_at: usize,
}

/// Reasons to doubt the state of keys.
#[derive(Clone, Copy, Debug, Default)]
struct Doubts {
    /// It may hide expired keys instead of deleting them, as one that is read-only does.
    hides_expired: bool,
    /// It has refused a command.
    has_refused: bool,
    /// Keys that had expired may be back.
    has_revived: bool,
}

impl ScriptOracle {
    /// The oracle of an empty Redis.
    pub fn new() -> Self {
        Self { purge_at: MOST_BUCKETS, ..Self::default() }
    }

    /// Judges a call. Returns the questions that were executed, or the contradiction. After a contradiction the oracle no longer knows
    /// the state of the buckets of that call: keep a clone to go on.
    pub fn judge(&mut self, call: &ScriptCall<'_>) -> Result<Vec<Executed>, String> {
        self.note_clock(call.server_us);
        let wire = wire::read(call.script, call.keys, call.argument)?;
        let now = if wire.time == 0 { self.clock.now } else { wire.time };
        let record = |bucket| self.memory.records.get(bucket).copied().unwrap_or(Record::ABSENT);
        let records = wire.buckets.iter().map(record).collect();
        let mut take = |set| self.memory.sets.get_mut(set).map(|set| std::mem::replace(set, Permits::EMPTY));
        let sets = wire.sets.iter().map(|set| take(set).unwrap_or(Permits::EMPTY)).collect();
        let mut judgement = Judgement {
            call: &wire,
            now,
            clock: &self.clock,
            records,
            sets,
            swept: Swept::default(),
            has_purged: self.has_purged,
            doubts: self.doubts,
            foreign: &self.foreign,
            read_again: Vec::new(),
        };
        let (executed, repaired) = match reply::open(call.reply, wire.sequence)? {
            Form::Answered(replied) => judgement.answers(replied)?,
            Form::Refused(error, wrote) => (judgement.refused(&error, wrote), 0),
        };
        self.doubts.has_refused |=
            executed.iter().any(|question| matches!(question.verdict, Verdict::Refused(..)));
        let Judgement { records, sets, read_again, .. } = judgement;
        for key in read_again {
            self.foreign.newer.remove(&key);
        }
        self.check_repairs(&wire, repaired)?;
        self.store(&wire, records, sets);
        Ok(executed)
    }

    /// Notes the server's clock where it shows a time without a call, because it expires keys by that.
    pub fn note_clock(&mut self, server_us: u64) {
        self.clock.advance(server_us.into());
    }

    /// Returns the amount that a bucket has available at this time under the limit that last came with it. Permits that Redis may have
    /// forgotten count as free. `None` if the bucket was never seen, or is full and forgotten.
    pub fn available(&self, bucket: &BucketId, now_us: u64) -> Option<i128> {
        let now = i128::from(now_us);
        if bucket.shape == Shape::Concurrency {
            let set = self.memory.sets.get(bucket)?;
            return Some((set.limit?.capacity - set.held(now).0 * TOKEN).max(0));
        }
        let record = self.memory.records.get(bucket)?;
        let charge = Charge { shape: bucket.shape, bucket: 0, limit: record.limit?, cost: 0, bounds: None };
        Some(Look::new(&charge, record.fields, now).available.least)
    }

    /// True if the last question about a bucket came with a limit of this capacity and rate.
    pub fn was_asked_under(&self, bucket: &BucketId, limit: &spile_core::Limit) -> bool {
        let last = self.memory.records.get(bucket).and_then(|record| record.limit);
        last.is_none_or(|last| {
            last.capacity == i128::from(limit.capacity().micro())
                && last.rate == limit.rate().and_then(|rate| rate::PlainRate::new(rate.per_second()))
        })
    }

    /// True if expired keys may be hidden.
    pub fn may_hide_expired(&self) -> bool {
        self.doubts.hides_expired
    }

    /// Learns that the server hides expired keys from now on, because it is read-only or was.
    pub fn hide_expired(&mut self) {
        self.doubts.hides_expired = true;
    }

    /// Learns that the server's clock stepped back. Hidden keys may be back.
    pub fn step_back(&mut self) {
        if self.doubts.hides_expired {
            self.doubts.has_revived = true;
            self.memory.records.values_mut().for_each(|record| record.is_uncertain = true);
        }
    }

    /// All buckets with state, and the limit that last came with each. Markers have no limit and are left out.
    pub fn buckets(&self) -> impl Iterator<Item = (&BucketId, &PlainLimit)> {
        let hashes = self.memory.records.iter().filter_map(|(id, record)| Some((id, record.limit.as_ref()?)));
        let sets = self.memory.sets.iter().filter_map(|(id, set)| Some((id, set.limit.as_ref()?)));
        hashes.chain(sets)
    }

    /// Learns that another writer deleted a key.
    pub fn delete_key(&mut self, key: &[u8]) {
        let key = parts::text(key);
        self.memory.records.retain(|id, _| id.key != key);
        self.memory.sets.retain(|id, _| id.key != key);
        self.foreign.newer.remove(&key);
    }

    /// Learns that another writer made a key unreadable. Only such a key may be repaired.
    pub fn break_key(&mut self, key: &[u8]) {
        self.delete_key(key);
        self.foreign.broken.insert(parts::text(key));
    }

    /// The keys that a newer version wrote.
    pub fn newer_keys(&self) -> Vec<Vec<u8>> {
        self.foreign.newer.iter().map(|key| key.clone().into_bytes()).collect()
    }

    /// True if another writer made a key unreadable, and no answer said that it was repaired.
    pub fn is_broken(&self, key: &[u8]) -> bool {
        self.foreign.broken.contains(&parts::text(key))
    }

    /// Learns that a newer version wrote a hash, or that it is of this version again. Nothing else of it has changed.
    pub fn write_version(&mut self, key: &[u8], is_newer: bool) {
        let key = parts::text(key);
        if is_newer {
            self.foreign.newer.insert(key);
        } else {
            self.foreign.newer.remove(&key);
        }
    }

    fn check_repairs(&mut self, call: &Call<'_>, repaired: i128) -> Result<(), String> {
        if repaired == 0 {
            return Ok(());
        }
        let mut keys: Vec<_> = call.buckets.iter().chain(&call.sets).map(|id| &id.key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.retain(|key| self.foreign.broken.contains(*key));
        if keys.len() as i128 == repaired {
            for key in keys {
                self.foreign.broken.remove(key);
            }
        } else if repaired > keys.len() as i128 || repaired < 0 {
            return Err(format!("{} keys may be broken, replied {repaired} repairs", keys.len()));
        }
        Ok(())
    }

    fn store(&mut self, call: &Call<'_>, records: Vec<Record>, sets: Vec<Permits>) {
        for (id, record) in call.buckets.iter().zip(records) {
            if record.is_nothing() {
                self.memory.records.remove(id);
            } else if let Some(stored) = self.memory.records.get_mut(id) {
                *stored = record;
            } else {
                self.memory.records.insert(id.clone(), record);
            }
        }
        for (id, set) in call.sets.iter().zip(sets) {
            if set.certain.is_empty() && set.possible.is_empty() {
                self.memory.sets.remove(id);
            } else if let Some(stored) = self.memory.sets.get_mut(id) {
                *stored = set;
            } else {
                self.memory.sets.insert(id.clone(), set);
            }
        }
        if self.memory.records.len() + self.memory.sets.len() > self.purge_at {
            self.purge();
        }
    }

    fn purge(&mut self) {
        let Self { memory: Memory { records, sets }, clock, .. } = self;
        let before = records.len();
        records
            .retain(|_, record| record.is_uncertain || !record.lifetime.is_over_for(DROPPED_AFTER_US, clock));
        self.has_purged |= records.len() < before;
        let now = clock.now;
        let lasts = |end: &i128| end.saturating_add(DROPPED_AFTER_US) > now;
        sets.retain(|_, set| set.certain.values().chain(set.possible.values()).any(lasts));
        self.purge_at = MOST_BUCKETS.max(2 * (records.len() + sets.len()));
    }
}

impl Judgement<'_> {
    /// Judges the answers to all questions. Returns the number of repairs, too.
    fn answers(&mut self, mut replied: Replied<'_>) -> Result<(Vec<Executed>, i128), String> {
        replied.expect("time", self.now)?;
        let (repaired, swept) = (replied.int()?, replied.int()?);
        let mut executed = Vec::with_capacity(self.call.questions.len());
        for (number, question) in self.call.questions.iter().enumerate() {
            let answer = self.question(question, &mut replied);
            executed
                .push(answer.map_err(|why| format!("question {}: {:?}: {why}", number + 1, question.op))?);
        }
        replied.end()?;
        let Swept { least, most } = self.swept;
        // A set that was hidden or could not be swept has permits that ended long ago.
        if swept < least || most < swept && !self.doubts.hides_expired && !self.doubts.has_refused {
            return Err(format!("expected {least} to {most} ended permits, replied {swept}"));
        }
        Ok((executed, repaired))
    }

    /// Marks what a refused call may have changed.
    fn refused(&mut self, error: &str, wrote: bool) -> Vec<Executed> {
        let (call, now) = (self.call, self.now);
        let mut executed = Vec::with_capacity(call.questions.len());
        for question in &call.questions {
            executed.push(self.unchanged(question, Verdict::Refused(error.to_owned(), wrote)));
            for charge in &question.charges {
                if charge.shape == Shape::Concurrency {
                    let set = &mut self.sets[charge.bucket];
                    set.doubt(charge, question.op, question.permit, wrote, now);
                } else {
                    self.records[charge.bucket].is_uncertain |= wrote && question.op != Op::Peek;
                }
            }
            if wrote {
                self.doubt_markers(question);
            }
        }
        executed
    }

    /// A question that was not decided.
    fn unchanged(&self, question: &Question<'_>, verdict: Verdict) -> Executed {
        let (call, now) = (self.call, self.now);
        let charges = question.charges.iter().map(|charge| {
            let (bucket, there) = if charge.shape == Shape::Concurrency {
                (&call.sets[charge.bucket], self.sets[charge.bucket].free(charge, now))
            } else {
                let fields = self.records[charge.bucket].fields;
                (&call.buckets[charge.bucket], bucket::available(charge, fields, now))
            };
            ExecutedCharge {
                bucket: bucket.clone(),
                limit: charge.limit,
                cost: charge.cost,
                found: if verdict == Verdict::NewerFormat { Found::Broken } else { Found::Partial },
                before: there,
                after: there,
                step: Step::None,
                window: charge.window(now),
            }
        });
        Executed {
            operation: question.op,
            at: now,
            charges: charges.collect(),
            permit: question.permit.map(<[u8]>::to_vec),
            amount: 0,
            settled: Vec::new(),
            markers: question.markers.iter().map(|(bucket, _)| call.buckets[*bucket].clone()).collect(),
            marker_amounts: question.markers.iter().map(|(_, amount)| *amount).collect(),
            spent: None,
            verdict,
        }
    }
}
