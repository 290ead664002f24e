//! Redis expires keys by its own clock. In these tests they expire by the test's clock, which runs far ahead of it and steps back.

use std::collections::BTreeMap;
use std::time::Instant;

use spile_core::{Clock, FakeClock, Micros, Verdict};
use spile_testkit::redis::{RedisClient, RedisReply, RedisServer};
use spile_testkit::table::axes::OperationKind;

use crate::common::BucketPlace;

const READ: &str = "local found = {}
    for _, key in ipairs(redis.call('KEYS', '*')) do
      local last = redis.call('TYPE', key).ok == 'zset' and redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
      found[#found + 1] = { key, redis.call('PTTL', key), last or '0' }
    end
    return found";
const WRITE: &str = "for at = 1, #ARGV, 2 do
      redis.call('PEXPIRE', ARGV[at], ARGV[at + 1])
    end";

/// The longest time to live, a century, less a millisecond because Redis rounds.
const LONGEST_US: i128 = 3_155_759_999_999_000;

/// The times to live of all keys of a server, by the test's clock, and how long each has to live.
pub(crate) struct Lifetimes {
    client: RedisClient,
    clock: FakeClock,
    lives: BTreeMap<String, Life>,
    /// When each bucket will be full under any limit that asked.
    full: BTreeMap<BucketPlace, i128>,
    /// When the keys were last looked at, in real time.
    looked: Instant,
}

struct Life {
    /// When the key expires, in microseconds of the test's clock.
    ends: i128,
    /// The time to live that Redis reported, or was given, when the keys were last looked at.
    ttl_ms: i128,
    /// When the last permit of a set ends. Zero for other keys.
    last_permit: i128,
}

impl Lifetimes {
    /// An empty server's.
    pub(crate) fn new(server: &RedisServer, clock: FakeClock) -> Self {
        let client = server.connect().expect("the server answers");
        Self { client, clock, lives: BTreeMap::new(), full: BTreeMap::new(), looked: Instant::now() }
    }

    /// Sends a command, by the connection that is open.
    pub(crate) fn command(&mut self, words: &[&str]) -> RedisReply {
        self.client.command(words).expect("the server answers")
    }

    /// Deletes all keys.
    pub(crate) fn clear(&mut self) {
        self.command(&["FLUSHALL"]);
        self.lives.clear();
        self.full.clear();
    }

    /// Records that a question was answered about a bucket, which will be full by its limit in `full_in` microseconds.
    pub(crate) fn note(
        &mut self,
        place: BucketPlace,
        operation: OperationKind,
        verdict: Verdict,
        full_in: i128,
    ) {
        let now = self.now();
        match (operation, verdict) {
            // Permits live until they end, as the set says.
            _ if place[1].is_empty() => {}
            (OperationKind::Peek | OperationKind::Renew, _)
            | (OperationKind::Release, Verdict::Denied)
            | (_, Verdict::Before | Verdict::Expired | Verdict::Unknown) => {}
            (OperationKind::Reset, _) => self.forget(&place),
            _ => {
                let full = self.full.entry(place).or_default();
                *full = (*full).max(now + full_in.min(LONGEST_US));
            }
        }
    }

    /// Notes that a bucket has no state.
    pub(crate) fn forget(&mut self, place: &BucketPlace) {
        self.full.remove(place);
    }

    /// Reads all times to live. Has to be called after questions were noted, before the clock moves. Returns which key does not live long
    /// enough.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        self.read();
        let now = self.now();
        let buckets = self.full.iter().map(|([key, ..], full)| (key, *full));
        let permits = self.lives.iter().map(|(key, life)| (key, life.last_permit));
        for (key, until) in buckets.chain(permits).filter(|(_, until)| *until > now) {
            let ends = self.lives.get(key).map(|life| life.ends);
            if ends.is_none_or(|ends| ends < until) {
                let kept = ends.map(|ends| ends - now);
                return Err(format!("{key} is needed for {} us and kept for {kept:?}", until - now));
            }
        }
        Ok(())
    }

    fn read(&mut self) {
        let looked = Instant::now();
        let found = self.eval(READ, &[]);
        let gone_us = i128::try_from(self.looked.elapsed().as_micros()).expect("a span fits");
        self.looked = looked;
        let now = self.now();
        let mut former = std::mem::take(&mut self.lives);
        for found in found.list() {
            let [key, ttl_ms, last_permit] = found.list() else { panic!("three parts: {found:?}") };
            let (key, ttl_ms) = (key.text(), i128::from(ttl_ms.int()));
            if ttl_ms < 0 {
                continue;
            }
            // The real time that went by shortens no life.
            let mut ends = now + ttl_ms * 1_000 + gone_us;
            if let Some(life) = former.remove(key)
                && ttl_ms * 1_000 + gone_us >= (life.ttl_ms - 1) * 1_000
            {
                ends = ends.max(life.ends);
            }
            let life = Life { ends, ttl_ms, last_permit: last_permit.int().into() };
            self.lives.insert(key.to_owned(), life);
        }
    }

    /// When the next key expires. `None` without keys.
    pub(crate) fn next_end(&self) -> Option<Micros> {
        let next = self.lives.values().map(|life| life.ends).filter(|ends| *ends > self.now()).min();
        next.map(|ends| Micros::new(u64::try_from(ends).expect("a moment fits")))
    }

    /// Lets each key live until its time by the clock that was moved, and deletes those whose time is up. Returns what was deleted.
    pub(crate) fn follow_clock(&mut self) -> Vec<String> {
        let (now, looked) = (self.now(), Instant::now());
        let mut words = Vec::new();
        for (key, life) in &mut self.lives {
            life.ttl_ms = (life.ends - now + 999).div_euclid(1_000);
            // Redis deletes a key that is given no time.
            words.extend([key.clone(), life.ttl_ms.to_string()]);
        }
        self.eval(WRITE, &words);
        self.looked = looked;
        let ended = |life: &Life| life.ttl_ms <= 0;
        let gone = self.lives.iter().filter(|(_, life)| ended(life)).map(|(key, _)| key.clone()).collect();
        self.lives.retain(|_, life| !ended(life));
        self.full.retain(|_, full| {
            *full = (*full).min(now + LONGEST_US);
            *full > now
        });
        gone
    }

    fn now(&self) -> i128 {
        self.clock.now().get().into()
    }

    fn eval(&mut self, script: &str, arguments: &[String]) -> RedisReply {
        let words: Vec<&str> =
            ["EVAL", script, "0"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
        self.command(&words)
    }
}
