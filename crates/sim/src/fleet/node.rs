//! One server of the store: its data, its clock, and the judge of its script.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use spile_core::{Charge, Charges, Cost, Key, Limit, LimitName, Micros, NamedLimit};
use spile_redis::WireCall;
use spile_resp::{Value, write};

use super::cluster;
use crate::oracle::script::{Executed, ScriptCall, ScriptKind, ScriptOracle};
use crate::redis::{ClusterView, Data, Refusals, Server};
use crate::scenario::{CLOCK_STEP_US, FleetSpec, Tampering};
use crate::scheduler::{MS, Nanos, US};

/// How often the state is kept for a failover that loses the last writes.
const KEEP_EVERY: Nanos = 10 * MS;
/// For how long.
const KEEP: Nanos = 400 * MS;

/// A server of the store.
pub(crate) struct Node {
    pub(crate) server: Server,
    pub(crate) oracle: ScriptOracle,
    view: Option<ClusterView>,
    starts_us: u64,
    offset_us: i64,
    drift_ppm: i64,
    former: VecDeque<(Nanos, Data, ScriptOracle)>,
    keeps_former: bool,
    scripts: Rc<Scripts>,
    refusals: Refusals,
    /// Until then it reports a slot map that is wrong.
    pub(crate) map_is_stale_until: Nanos,
}

/// The names of both scripts.
pub(crate) struct Scripts {
    rates: String,
    everything: String,
}

impl Scripts {
    pub(crate) fn new() -> Self {
        let sha1 = |limit: Limit| {
            let limit = NamedLimit::new(LimitName::new("x").expect("a name"), limit);
            let cost = u64::from(limit.limit().is_concurrency());
            let charge = Charge::new(Key::new("x").expect("a key"), limit, Cost::new(cost).expect("a cost"));
            let charges = Charges::from(charge.expect("a charge"));
            let question = [(spile_core::Operation::Peek, &charges)];
            let source = WireCall::new("spile", &question, Micros::from_secs(1)).script();
            sha1_smol::Sha1::from(source).digest().to_string()
        };
        let built = |limit: Result<Limit, _>| -> Limit {
            limit.unwrap_or_else(|_: spile_core::LimitError| unreachable!())
        };
        Self {
            rates: sha1(built(Limit::per_second(1).build())),
            everything: sha1(built(Limit::concurrent(1).build())),
        }
    }

    fn kind(&self, sha1: &str) -> Option<ScriptKind> {
        if sha1.eq_ignore_ascii_case(&self.rates) {
            Some(ScriptKind::Rates)
        } else if sha1.eq_ignore_ascii_case(&self.everything) {
            Some(ScriptKind::Everything)
        } else {
            None
        }
    }
}

impl Node {
    pub(crate) fn new(
        server: Server,
        number: usize,
        spec: &FleetSpec,
        keeps_former: bool,
        scripts: Rc<Scripts>,
    ) -> Self {
        let mut node = Self {
            server,
            oracle: ScriptOracle::new(),
            view: cluster::view(number, usize::from(spec.nodes)),
            starts_us: spec.starts * 1_000_000,
            // Clocks of nodes differ.
            offset_us: (number as u64 * CLOCK_STEP_US).cast_signed(),
            drift_ppm: if number.is_multiple_of(2) { spec.node_drift_ppm } else { 0 },
            former: VecDeque::new(),
            keeps_former,
            scripts,
            refusals: Refusals::default(),
            map_is_stale_until: 0,
        };
        node.lose_everything();
        node
    }

    /// The time of its clock.
    pub(crate) fn clock_us(&self, now: Nanos) -> u64 {
        let us = now / US;
        (self.starts_us + us)
            .saturating_add_signed(self.offset_us + us.cast_signed() * self.drift_ppm / 1_000_000)
    }

    /// Executes a command. What a script did is judged.
    pub(crate) fn execute(
        &mut self,
        now: Nanos,
        command: &[&[u8]],
        reply_bytes: &mut Vec<u8>,
    ) -> Result<Vec<Executed>, String> {
        let server_us = self.clock_us(now);
        if self.keeps_former && self.former.back().is_none_or(|(kept, ..)| *kept + KEEP_EVERY <= now) {
            self.former.push_back((now, self.server.data(), self.oracle.clone()));
            while self.former.front().is_some_and(|(kept, ..)| *kept + KEEP < now) {
                self.former.pop_front();
            }
        }
        let reply = self.reply(now, server_us, command);
        encode(reply_bytes, &reply);
        let Some((kind, keys, argument)) = self.script_call(command) else { return Ok(Vec::new()) };
        if matches!(&reply, Value::Error(_)) {
            return Ok(Vec::new());
        }
        self.oracle.judge(&ScriptCall { server_us, script: kind, keys, argument, reply: &reply })
    }

    fn reply(&mut self, now: Nanos, server_us: u64, command: &[&[u8]]) -> Value {
        let is_map = command.first().is_some_and(|name| name.eq_ignore_ascii_case(b"CLUSTER"));
        let is_stale = is_map && now < self.map_is_stale_until;
        let Some(view) = self.view.as_ref().filter(|_| is_stale) else {
            return self.server.execute(server_us, command);
        };
        self.server.cluster(Some(cluster::stale(view)));
        let reply = self.server.execute(server_us, command);
        self.server.cluster(self.view.clone());
        reply
    }

    /// Executes a command as a replica of itself.
    pub(crate) fn execute_as_replica(
        &mut self,
        now: Nanos,
        command: &[&[u8]],
        reply_bytes: &mut Vec<u8>,
    ) -> Result<Vec<Executed>, String> {
        self.oracle.hide_expired();
        self.server.refuse(Refusals { read_only: true, ..self.refusals.clone() });
        let judged = self.execute(now, command, reply_bytes);
        self.server.refuse(self.refusals.clone());
        judged
    }

    /// The script that a command executes, its keys and its argument.
    #[expect(clippy::type_complexity, reason = "three parts of a command")]
    fn script_call<'a>(&self, command: &'a [&'a [u8]]) -> Option<(ScriptKind, &'a [&'a [u8]], &'a [u8])> {
        let [name, script, count, rest @ ..] = command else { return None };
        let kind = if name.eq_ignore_ascii_case(b"EVALSHA") {
            self.scripts.kind(std::str::from_utf8(script).ok()?)?
        } else if name.eq_ignore_ascii_case(b"EVAL") {
            self.scripts.kind(&sha1_smol::Sha1::from(script).digest().to_string())?
        } else {
            return None;
        };
        let count: usize = std::str::from_utf8(count).ok()?.parse().ok()?;
        let (keys, arguments) = rest.split_at_checked(count)?;
        Some((kind, keys, arguments.first()?))
    }

    /// Starts again without data.
    pub(crate) fn lose_everything(&mut self) {
        self.server.clear();
        self.server.cluster(self.view.clone());
        self.server.refuse(self.refusals.clone());
        self.oracle = ScriptOracle::new();
        self.note_refusals();
        self.former.clear();
    }

    /// Takes the state of a replica that was so far behind.
    pub(crate) fn fail_over(&mut self, now: Nanos, behind: Nanos) {
        while self.former.back().is_some_and(|(kept, ..)| *kept + behind > now) {
            self.former.pop_back();
        }
        if behind == 0 {
            return;
        }
        match self.former.pop_back() {
            Some((_, data, oracle)) => {
                self.server.restore(data);
                let former = std::mem::replace(&mut self.oracle, oracle);
                if former.may_hide_expired() {
                    self.oracle.hide_expired();
                }
                self.note_refusals();
                // The clock may have stepped since.
                self.oracle.step_back();
            }
            None => self.lose_everything(),
        }
        self.server.flush_scripts();
    }

    /// Steps its clock.
    pub(crate) fn step(&mut self, us: i64) {
        self.offset_us += us;
        if us < 0 {
            self.oracle.step_back();
        }
    }

    /// Lets another writer change one of its keys. Returns the key if that has to be undone.
    pub(crate) fn tamper(&mut self, now: Nanos, nth: u16, how: Tampering) -> Option<Vec<u8>> {
        let data = self.server.data();
        let key = data.keys().nth(usize::from(nth) % data.len().max(1))?.to_vec();
        let server_us = self.clock_us(now);
        self.oracle.note_clock(server_us);
        // A newer version would make what is left of a broken hash readable again.
        let is_hash = matches!(self.server.execute(server_us, &[b"HLEN", &key]), Value::Int(1..))
            && !self.oracle.is_broken(&key);
        // Replicas and full servers refuse the other writer, too.
        let mut write =
            |command: &[&[u8]]| !matches!(self.server.execute(server_us, command), Value::Error(_));
        match how {
            Tampering::Delete => {
                write(&[b"DEL", &key]).then(|| self.oracle.delete_key(&key));
            }
            Tampering::Retype => {
                write(&[b"SET", &key, b"taken"]).then(|| self.oracle.break_key(&key));
            }
            Tampering::Garble if is_hash => {
                write(&[b"HSET", &key, b"v", b"nan"]).then(|| self.oracle.break_key(&key));
            }
            Tampering::NewerFormat(_) if is_hash && write(&[b"HSET", &key, b"v", b"2"]) => {
                self.oracle.write_version(&key, true);
                return Some(key);
            }
            Tampering::Garble | Tampering::NewerFormat(_) => {}
        }
        None
    }

    /// Makes a hash one of this version again, unless it is gone.
    pub(crate) fn restore_version(&mut self, now: Nanos, key: &[u8]) -> bool {
        // A read-only server hides an expired key and keeps it: it is there again after its clock has stepped back.
        if self.refusals.read_only {
            return false;
        }
        let server_us = self.clock_us(now);
        self.oracle.note_clock(server_us);
        let version = self.server.execute(server_us, &[b"HGET", key, b"v"]);
        if matches!(&version, Value::Text(text) if text == b"2")
            && matches!(self.server.execute(server_us, &[b"HSET", key, b"v", b"1"]), Value::Error(_))
        {
            return false;
        }
        self.oracle.write_version(key, false);
        true
    }

    /// Refuses commands from now on, or none.
    pub(crate) fn refuse(&mut self, refusals: Refusals) {
        self.refusals = refusals;
        self.note_refusals();
        self.server.refuse(self.refusals.clone());
    }

    fn note_refusals(&mut self) {
        if self.refusals.read_only {
            self.oracle.hide_expired();
        }
    }

    /// The end of a permit, if the set has it.
    pub(crate) fn permit_until(&mut self, now: Nanos, set: &str, id: &str) -> Option<u64> {
        let server_us = self.clock_us(now);
        self.oracle.note_clock(server_us);
        match self.server.execute(server_us, &[b"ZSCORE", set.as_bytes(), id.as_bytes()]) {
            Value::Text(score) => Some(std::str::from_utf8(&score).ok()?.parse::<f64>().ok()? as u64),
            _ => None,
        }
    }
}

/// The commands that a user may be denied.
pub(crate) fn denied_command(number: u8) -> BTreeSet<&'static str> {
    const DENIED: [&str; 6] = ["hset", "zadd", "pexpire", "hmget", "zrem", "zremrangebyscore"];
    BTreeSet::from([DENIED[usize::from(number) % DENIED.len()]])
}

fn encode(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Int(number) => write::integer(out, *number),
        Value::Text(bytes) => write::bulk(out, bytes),
        Value::Error(text) => write::error(out, text),
        Value::Array(items) => {
            write::array(out, items.len());
            for item in items {
                encode(out, item);
            }
        }
        Value::Map(pairs) => {
            write::map(out, pairs.len());
            for (key, value) in pairs {
                encode(out, key);
                encode(out, value);
            }
        }
        Value::Nil => out.extend_from_slice(b"$-1\r\n"),
    }
}
