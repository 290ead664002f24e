//! The commands of a server.

#![expect(clippy::unnecessary_wraps, reason = "all commands have one signature, also those that cannot fail")]

mod hashes;
mod keyspace;
mod server;
mod sorted_sets;

use super::reply::CommandResult;
use super::state::State;

/// The effect of a command on the data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Effect {
    Read,
    /// Writes, and never needs much more memory.
    Write,
    /// Writes, and may need more memory.
    Grow,
}

/// Which words of a command are keys.
#[derive(Clone, Copy, Debug)]
enum Keys {
    None,
    First,
    All,
    /// The third word says how many words after it are keys.
    Counted,
}

/// Where a command runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Run {
    /// Everywhere.
    InScripts(fn(&mut State, &[&[u8]]) -> CommandResult),
    /// Not in scripts.
    OutsideScripts(fn(&mut State, &[&[u8]]) -> CommandResult),
    /// In the interpreter.
    Script(ScriptCommand),
}

/// A command about scripts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ScriptCommand {
    Eval,
    EvalSha,
    Script,
}

/// A command.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) name: &'static str,
    /// The number of words with the name, or minus the least number.
    words: isize,
    keys: Keys,
    pub(super) effect: Effect,
    pub(super) run: Run,
}

type Plain = fn(&mut State, &[&[u8]]) -> CommandResult;

const fn read(name: &'static str, words: isize, keys: Keys, run: Plain) -> Command {
    Command { name, words, keys, effect: Effect::Read, run: Run::InScripts(run) }
}

const fn write(name: &'static str, words: isize, keys: Keys, run: Plain) -> Command {
    Command { name, words, keys, effect: Effect::Write, run: Run::InScripts(run) }
}

const fn grow(name: &'static str, words: isize, run: Plain) -> Command {
    Command { name, words, keys: Keys::First, effect: Effect::Grow, run: Run::InScripts(run) }
}

const fn client(name: &'static str, words: isize, run: Plain) -> Command {
    Command { name, words, keys: Keys::None, effect: Effect::Read, run: Run::OutsideScripts(run) }
}

const fn script(name: &'static str, words: isize, keys: Keys, command: ScriptCommand) -> Command {
    Command { name, words, keys, effect: Effect::Read, run: Run::Script(command) }
}

/// Sorted by how often they are called, because they are searched in this order.
const COMMANDS: &[Command] = &[
    script("evalsha", -3, Keys::Counted, ScriptCommand::EvalSha),
    read("hmget", -3, Keys::First, hashes::hmget),
    grow("hset", -4, hashes::hset),
    read("time", 1, Keys::None, server::time),
    read("pttl", 2, Keys::First, keyspace::pttl),
    write("pexpire", 3, Keys::First, keyspace::pexpire),
    read("zscore", 3, Keys::First, sorted_sets::zscore),
    write("zremrangebyscore", 4, Keys::First, sorted_sets::zremrangebyscore),
    read("zcard", 2, Keys::First, sorted_sets::zcard),
    read("zcount", 4, Keys::First, sorted_sets::zcount),
    grow("zadd", -4, sorted_sets::zadd),
    write("zrem", -3, Keys::First, sorted_sets::zrem),
    read("zrangebyscore", -4, Keys::First, sorted_sets::zrangebyscore),
    write("hdel", -3, Keys::First, hashes::hdel),
    read("hlen", 2, Keys::First, hashes::hlen),
    write("del", -2, Keys::All, keyspace::del),
    script("eval", -3, Keys::Counted, ScriptCommand::Eval),
    script("script", -2, Keys::None, ScriptCommand::Script),
    read("zrange", -4, Keys::First, sorted_sets::zrange),
    read("hget", 3, Keys::First, hashes::hget),
    read("hexists", 3, Keys::First, hashes::hexists),
    read("hgetall", 2, Keys::First, hashes::hgetall),
    read("exists", -2, Keys::All, keyspace::exists),
    read("type", 2, Keys::First, keyspace::type_of),
    read("get", 2, Keys::First, keyspace::get),
    grow("set", -3, keyspace::set),
    grow("lpush", -3, keyspace::lpush),
    read("llen", 2, Keys::First, keyspace::llen),
    write("flushall", -1, Keys::None, keyspace::flushall),
    read("ping", -1, Keys::None, server::ping),
    read("info", -1, Keys::None, server::info),
    read("role", 1, Keys::None, server::role),
    client("auth", -2, server::auth),
    client("select", 2, server::select),
    client("asking", 1, server::asking),
    client("cluster", -2, server::cluster),
];

/// The command with this name, in any case.
pub(super) fn find(name: &[u8]) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| name.eq_ignore_ascii_case(command.name.as_bytes()))
}

impl Command {
    pub(super) fn accepts(&self, words: usize) -> bool {
        let words = words.cast_signed();
        if self.words < 0 { words >= -self.words } else { words == self.words }
    }

    /// The keys among the words.
    pub(super) fn keys<'w>(&self, words: &'w [&'w [u8]]) -> impl Iterator<Item = &'w [u8]> + use<'w> {
        let keys = match self.keys {
            Keys::None => &[],
            Keys::First => &words[1..2],
            Keys::All => &words[1..],
            Keys::Counted => {
                let count = super::number::integer(words[2]).and_then(|count| usize::try_from(count).ok());
                words[3..].get(..count.unwrap_or(0)).unwrap_or_default()
            }
        };
        keys.iter().copied()
    }
}
