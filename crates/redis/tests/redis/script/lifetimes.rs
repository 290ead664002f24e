//! Redis expires keys by its own clock. In these tests they expire by the test's clock, which runs far ahead of it and steps back.

use std::collections::BTreeMap;
use std::time::Instant;

use spile_core::{Clock, FakeClock};
use spile_testkit::redis::{RedisClient, RedisReply, RedisServer};

const READ: &str = "local found = {}
    for _, key in ipairs(redis.call('KEYS', '*')) do
      found[#found + 1] = { key, redis.call('PTTL', key) }
    end
    return found";
const WRITE: &str = "for at = 1, #ARGV, 2 do
      redis.call('PEXPIRE', ARGV[at], ARGV[at + 1])
    end";

/// The times to live of all keys of a server, by the test's clock.
pub(crate) struct Lifetimes {
    client: RedisClient,
    clock: FakeClock,
    lives: BTreeMap<String, Life>,
    /// When the keys were last looked at, in real time.
    looked: Instant,
}

struct Life {
    /// When the key expires, in microseconds of the test's clock.
    ends: i128,
    /// The time to live that Redis reported, or was given, when the keys were last looked at.
    ttl_ms: i128,
}

impl Lifetimes {
    /// An empty server's.
    pub(crate) fn new(server: &RedisServer, clock: FakeClock) -> Self {
        let client = server.connect().expect("the server answers");
        Self { client, clock, lives: BTreeMap::new(), looked: Instant::now() }
    }

    /// When a key expires. `None` if there is no such key, or it lives for ever.
    pub(crate) fn end_of(&self, key: &str) -> Option<i128> {
        self.lives.get(key).map(|life| life.ends)
    }

    /// Sends a command, by the connection that is open.
    pub(crate) fn command(&mut self, words: &[&str]) -> RedisReply {
        self.client.command(words).expect("the server answers")
    }

    /// Deletes all keys.
    pub(crate) fn clear(&mut self) {
        self.command(&["FLUSHALL"]);
        self.lives.clear();
    }

    /// Notes which keys got another time to live since the last call. Has to be called before the clock moves.
    pub(crate) fn read(&mut self) {
        let looked = Instant::now();
        let found = self.eval(READ, &[]);
        let gone_us = i128::try_from(self.looked.elapsed().as_micros()).expect("a span fits");
        self.looked = looked;
        let now = self.now();
        let mut former = std::mem::take(&mut self.lives);
        for pair in found.list() {
            let (key, ttl_ms) = (pair.list()[0].text(), i128::from(pair.list()[1].int()));
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
            self.lives.insert(key.to_owned(), Life { ends, ttl_ms });
        }
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
