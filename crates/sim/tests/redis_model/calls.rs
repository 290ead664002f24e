//! Calls of the store's scripts, with keys that are broken in between.

use std::collections::BTreeSet;
use std::time::Duration;

use fastrand::Rng;
use spile_core::{Clock, FakeClock, Micros};
use spile_redis::{WireAnswer, WireCall};
use spile_resp::Value;

use crate::pair::Pair;
use crate::question::Question;
use crate::{portable, scripts};

const EXAMINE: &str = include_str!("../../../redis/src/store/examine.lua");

/// Commands that break a key, with `KEY` in its place.
const DAMAGE: [&str; 18] = [
    "DEL KEY",
    "SET KEY text",
    "LPUSH KEY item",
    "HSET KEY v 2",
    "HSET KEY v 2",
    "HSET KEY v 7 t 1 ts 1",
    "HSET KEY v 1",
    "HSET KEY v x",
    "HSET KEY t 1.5 ts 7",
    "HSET KEY t x",
    "HSET KEY burst:t -2e15 burst:ts 1",
    "HSET KEY burst:ts 1e400",
    "HDEL KEY v",
    "HDEL KEY t",
    "ZADD KEY 1 member",
    "ZADD KEY 9007199254740991 member inf other",
    "PEXPIRE KEY 60000",
    "PEXPIRE KEY -1",
];

/// A trace of calls.
pub(crate) struct Calls {
    clock: FakeClock,
    /// The keys of all calls.
    keys: BTreeSet<Vec<u8>>,
    /// The kinds of all answers.
    seen: BTreeSet<String>,
}

/// The kinds of answers that every trace has. Others are rarer.
const KINDS: [&str; 6] = [
    "Done",
    "Denied",
    "Unknown",
    "outside windows",
    "RedisError, may have run: false",
    "RedisError, may have run: true",
];

impl Calls {
    pub(crate) fn new() -> Self {
        Self {
            clock: FakeClock::at(Micros::from_secs(1_800_000_000)),
            keys: BTreeSet::new(),
            seen: BTreeSet::new(),
        }
    }

    pub(crate) fn run(&mut self, pair: &mut Pair, random: &mut Rng) {
        self.let_time_pass(random);
        match random.u32(0..64) {
            0..8 => self.damage(pair, random),
            8..16 => self.keys.extend(portable::run(pair, random, self.clock.now())),
            16 => pair.compare(&[b"SCRIPT", b"FLUSH"]),
            17 => pair.compare(&[b"FLUSHALL"]),
            18 => scripts::run_any(pair, random),
            19 => {
                // Figures of memory differ, and are not compared.
                let words: [&[u8]; 6] = [b"EVAL", EXAMINE.as_bytes(), b"1", b"mark", b"new", b"86400000"];
                pair.compare(&words);
            }
            _ => self.ask(pair, random),
        }
        pair.compare_data(self.keys.iter().cloned().chain([b"mark".to_vec()]));
    }

    /// Mostly little, but also by days, and back by less and by more than a second.
    fn let_time_pass(&self, random: &mut Rng) {
        let mut up_to = |us: u64| Duration::from_micros(random.u64(0..=us));
        let (little, some, days) = (up_to(1_000), up_to(30_000_000), up_to(86_400_000_000 * 3));
        let (back, far_back) = (up_to(1_000_000), up_to(3_600_000_000));
        match random.u32(0..20) {
            0..4 => {}
            4..12 => self.clock.advance(little),
            12..16 => self.clock.advance(some),
            16 => self.clock.advance(days),
            17..19 => self.clock.step_back(back),
            _ => self.clock.step_back(far_back),
        }
    }

    /// Panics unless the trace had every kind of answer.
    pub(crate) fn expect_all_kinds(&self) {
        let missing = KINDS.into_iter().find(|kind| !self.seen.contains(*kind));
        assert!(missing.is_none(), "no {missing:?} among {:?}", self.seen);
    }

    fn damage(&self, pair: &mut Pair, random: &mut Rng) {
        let Some(key) = random.choice(&self.keys) else { return };
        let damage = DAMAGE[random.usize(..DAMAGE.len())].split(' ');
        let words: Vec<&[u8]> =
            damage.map(|word| if word == "KEY" { key.as_slice() } else { word.as_bytes() }).collect();
        pair.compare(&words);
    }

    fn ask(&mut self, pair: &mut Pair, random: &mut Rng) {
        let now = self.clock.now();
        let count = if random.bool() { 1 } else { random.usize(2..=12) };
        let only_rates = random.bool();
        let questions: Vec<Question> = (0..count).map(|_| Question::draw(random, now, only_rates)).collect();
        let asked: Vec<_> =
            questions.iter().map(|question| (question.operation(), &question.charges)).collect();
        let call = WireCall::new("spile", &asked, now);
        // Now and then the script sees a time outside the windows that quotas were asked with.
        let late = Duration::from_secs(if random.u32(0..24) == 0 { 86_400 * 3 } else { 0 });
        let (keys, argument) = call.arguments(Some(now + late));
        let sha = sha1_smol::Sha1::from(call.script()).digest().to_string();
        let count = keys.len().to_string();
        let mut words: Vec<&[u8]> = vec![b"EVALSHA", sha.as_bytes(), count.as_bytes()];
        words.extend(keys.iter().map(Vec::as_slice));
        words.push(&argument);
        let [mut real, mut model] = pair.send(&words);
        if is_unknown(&real) || is_unknown(&model) {
            pair.expect_equal(&is_unknown(&real), &is_unknown(&model));
            words[..2].copy_from_slice(&[b"EVAL", call.script().as_bytes()]);
            [real, model] = pair.send(&words);
        }
        let (real_answers, model_answers) = (call.read(&real), call.read(&model));
        self.seen.extend(real_answers.iter().flatten().map(kind));
        let comparable = |answers: Option<Vec<WireAnswer>>| {
            answers.map(|answers| answers.iter().map(comparable).collect::<Vec<_>>())
        };
        pair.expect_equal(&comparable(real_answers), &comparable(model_answers));
        if !matches!(real, Value::Array(ref items) if items.len() == 3) {
            pair.expect_equal_replies(real, model);
        }
        self.keys.extend(keys);
    }
}

fn is_unknown(reply: &Value) -> bool {
    matches!(reply, Value::Error(text) if text.starts_with("NOSCRIPT"))
}

/// The verdict of an answer, or why it has none.
fn kind(answer: &WireAnswer) -> String {
    match answer {
        WireAnswer::Reply(reply) => format!("{:?}", reply.verdict),
        WireAnswer::OutsideWindows(_) => "outside windows".to_owned(),
        // The texts of errors differ from version to version.
        WireAnswer::Failed(why) => format!("{:?}, may have run: {}", why.reason(), why.may_have_run()),
    }
}

fn comparable(answer: &WireAnswer) -> String {
    if let WireAnswer::Failed(_) = answer { kind(answer) } else { format!("{answer:?}") }
}
