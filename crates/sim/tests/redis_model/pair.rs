//! A real server and the model, which get the same commands.

use std::collections::{BTreeSet, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use spile_resp::Value;
use spile_sim::redis::{Refusals, Server};
use spile_testkit::redis::{Flavour, RedisClient, RedisServer, RedisServerBuilder, ReplyError};
use spile_testkit::wait;

/// The commands that some user may not run. Each user has the name of the command.
const DENIED: [&str; 9] =
    ["hset", "hdel", "zadd", "zrem", "pexpire", "del", "zremrangebyscore", "time", "evalsha"];

/// How many commands a failure shows.
const LATEST: usize = 8;

/// Reads keys of any type, with their times to live.
const DUMP: &str = "
local out = {}
for i, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  local held = kind == 'hash' and redis.call('HGETALL', key) or kind == 'zset' and redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    or kind == 'string' and redis.call('GET', key) or kind == 'list' and redis.call('LLEN', key)
  out[i] = { redis.call('PTTL', key), key, kind, held }
end
return out";

/// The commands that a server refuses for a while.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Mood {
    Willing,
    OutOfMemory,
    /// The user may not run this command.
    Denies(&'static str),
    ReadOnly,
    LacksReplicas,
    CannotSave,
}

impl Mood {
    pub(crate) fn draw(random: &mut Rng) -> Self {
        match random.u32(0..13) {
            0 | 1 => Self::OutOfMemory,
            2..5 => Self::Denies(DENIED[random.usize(..DENIED.len())]),
            5 => Self::ReadOnly,
            6 => Self::LacksReplicas,
            7 => Self::CannotSave,
            _ => Self::Willing,
        }
    }

    fn refusals(self) -> Refusals {
        let denied = if let Self::Denies(command) = self { Some(command) } else { None };
        Refusals {
            out_of_memory: self == Self::OutOfMemory,
            acl_denied: denied.into_iter().collect(),
            read_only: self == Self::ReadOnly,
            lacks_replicas: self == Self::LacksReplicas,
            cannot_save: self == Self::CannotSave,
        }
    }
}

/// A real server and the model.
pub(crate) struct Pair {
    server: RedisServer,
    /// May run every command.
    admin: RedisClient,
    client: RedisClient,
    model: Server,
    mood: Mood,
    seed: u64,
    steps: usize,
    /// By how much times to live may differ: as long as the slowest command took.
    slack_ms: i64,
    /// The latest commands.
    latest: VecDeque<Vec<Vec<u8>>>,
}

impl Pair {
    pub(crate) fn start(flavour: Flavour, seed: u64) -> Self {
        let users = DENIED.map(|command| format!("user {command} on >s3cret ~* &* +@all -{command}"));
        let server =
            users.into_iter().fold(RedisServer::builder().flavour(flavour), RedisServerBuilder::line);
        let server = server.line("maxmemory-policy noeviction").start();
        fail_to_save(&server);
        let [admin, client] = [(); 2].map(|()| server.connect().expect("the server answers"));
        let (model, mood) = (Server::new(), Mood::Willing);
        Self { server, admin, client, model, mood, seed, steps: 0, slack_ms: 2, latest: VecDeque::new() }
    }

    /// Makes both refuse the same.
    pub(crate) fn be(&mut self, mood: Mood) {
        let memory = if mood == Mood::OutOfMemory { "1" } else { "0" };
        let replicas = if mood == Mood::LacksReplicas { "1" } else { "0" };
        let saves = if mood == Mood::CannotSave { "3600 1" } else { "" };
        let master: &[&str] = if mood == Mood::ReadOnly { &["127.0.0.1", "1"] } else { &["NO", "ONE"] };
        self.server.command(&["CONFIG", "SET", "maxmemory", memory]);
        self.server.command(&["CONFIG", "SET", "min-replicas-to-write", replicas]);
        self.server.command(&["CONFIG", "SET", "save", saves]);
        self.server.command(&[&["REPLICAOF"], master].concat());
        self.client = self.server.connect().expect("the server answers");
        if let Mood::Denies(user) = mood {
            self.client.command(&["AUTH", user, "s3cret"]).expect("a known user");
        }
        self.model.refuse(mood.refusals());
        self.mood = mood;
    }

    /// Sends a command to both. Returns the replies of the server and of the model.
    pub(crate) fn send(&mut self, words: &[&[u8]]) -> [Value; 2] {
        self.steps += 1;
        self.latest.truncate(LATEST - 1);
        self.latest.push_front(words.iter().map(|word| word.to_vec()).collect());
        let before = now_us();
        let real = reply(self.client.send(words)).unwrap_or_else(|why| self.fail(&why));
        self.note_delay(before);
        [real, self.model.execute(before, words)]
    }

    fn note_delay(&mut self, before: u64) {
        self.slack_ms = self.slack_ms.max(2 + (now_us().saturating_sub(before) / 1000).cast_signed());
    }

    /// Sends a command to both, and compares the replies.
    pub(crate) fn compare(&mut self, words: &[&[u8]]) {
        let [real, model] = self.send(words);
        if words[0].eq_ignore_ascii_case(b"PTTL") {
            self.compare_times(&real, &model);
        } else {
            self.expect_equal_replies(real, model);
        }
    }

    /// Compares replies, of errors only the codes.
    pub(crate) fn expect_equal_replies(&self, real: Value, model: Value) {
        self.expect_equal(&comparable(real), &comparable(model));
    }

    /// Panics with the latest command unless these are equal.
    pub(crate) fn expect_equal<T: std::fmt::Debug + PartialEq>(&self, real: &T, model: &T) {
        if real != model {
            self.fail(&format!(" server: {real:?}\n  model: {model:?}"));
        }
    }

    /// Panics with the latest commands.
    fn fail(&self, why: &str) -> ! {
        let Self { seed, steps, mood, .. } = self;
        let shorten = |word: &Vec<u8>| word[..word.len().min(200)].escape_ascii().to_string();
        let line = |words: &Vec<Vec<u8>>| words.iter().map(shorten).collect::<Vec<_>>().join(" ");
        let latest = self.latest.iter().map(line).collect::<Vec<_>>().join("\n after: ");
        panic!("seed {seed}, step {steps}, {mood:?}: {latest}\n{why}");
    }

    fn compare_times(&self, real: &Value, model: &Value) {
        let close = match (real, model) {
            (Value::Int(real @ 0..), Value::Int(model @ 0..)) => (real - model).abs() <= self.slack_ms,
            _ => false,
        };
        if !close {
            self.expect_equal(real, model);
        }
    }

    /// Compares what is stored under these keys.
    pub(crate) fn compare_data(&mut self, keys: impl IntoIterator<Item = Vec<u8>>) {
        let keys: BTreeSet<Vec<u8>> = keys.into_iter().collect();
        let count = keys.len().to_string();
        let mut words: Vec<&[u8]> = vec![b"EVAL", DUMP.as_bytes(), count.as_bytes()];
        words.extend(keys.iter().map(Vec::as_slice));
        let before = now_us();
        let real = reply(self.admin.send(&words)).unwrap_or_else(|why| self.fail(&why));
        self.note_delay(before);
        self.model.refuse(Refusals::default());
        let model = self.model.execute(before, &words);
        self.model.refuse(self.mood.refusals());
        let (Value::Array(real), Value::Array(model)) = (&real, &model) else {
            return self.expect_equal(&real, &model);
        };
        assert_eq!(real.len(), keys.len());
        for (real, model) in real.iter().zip(model) {
            let [real_ttl, real @ ..] = real.as_array().expect("an entry") else {
                panic!("an entry is empty")
            };
            let [model_ttl, model @ ..] = model.as_array().expect("an entry") else {
                panic!("an entry is empty")
            };
            self.expect_equal(&real, &model);
            self.compare_times(real_ttl, model_ttl);
        }
    }
}

/// Fails to save a snapshot, which matters while the server is to save them.
fn fail_to_save(server: &RedisServer) {
    // A file does not replace a folder.
    std::fs::create_dir(server.folder().join("dump.rdb")).expect("a new folder");
    server.command(&["BGSAVE"]);
    let has_failed = || server.info("persistence", "rdb_last_bgsave_status").as_deref() == Some("err");
    wait::until_true("the snapshot to fail", has_failed);
}

#[expect(clippy::disallowed_methods, reason = "a real server expires keys in real time")]
pub(crate) fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_micros() as u64
}

fn reply(reply: Result<Value, ReplyError>) -> Result<Value, String> {
    reply.or_else(|why| match why {
        ReplyError::Refused(text) => Ok(Value::Error(text)),
        why @ ReplyError::Io(_) => Err(why.to_string()),
    })
}

/// Replies with the codes of errors instead of their texts, which differ from version to version.
fn comparable(reply: Value) -> Value {
    match reply {
        Value::Error(text) => Value::Error(code(&text).to_owned()),
        Value::Array(items) => Value::Array(items.into_iter().map(comparable).collect()),
        other => other,
    }
}

/// The code of an error. Redis 6.2 puts it behind the place in the script.
fn code(text: &str) -> &str {
    const CODES: [&str; 6] = ["OOM", "READONLY", "NOREPLICAS", "WRONGTYPE", "MISCONF", "NOPERM"];
    if text.contains("The user executing the script") || text.contains("has no permissions") {
        return "NOPERM";
    }
    let words = || text.split_ascii_whitespace().map(|word| word.trim_start_matches('-'));
    CODES.into_iter().find(|code| words().any(|word| word == *code)).unwrap_or_else(|| {
        let first = words().next().unwrap_or_default();
        if first.starts_with('@') { "ERR" } else { first }
    })
}
