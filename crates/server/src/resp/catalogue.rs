//! The commands there are, as `COMMAND` tells clients of them.

use super::reply::Reply;

/// One command.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    /// Words including the name; below zero, at least so many.
    arity: i64,
    flags: &'static [&'static str],
    /// Which word is the key; zero where none is.
    key: i64,
    /// Name and type of each argument, and whether it may be left out.
    arguments: &'static [(&'static str, &'static str, bool)],
    summary: &'static str,
}

/// The arguments of a question about a rule.
const BY_RULE: &[(&str, &str, bool)] =
    &[("rule", "string", false), ("identity", "key", false), ("cost", "integer", true)];

const COMMANDS: [Entry; 17] = [
    entry("auth", -2, &["noscript", "loading", "stale", "fast", "no_auth"], "Says who asks."),
    Entry {
        key: 1,
        arguments: &[
            ("key", "key", false),
            ("max_burst", "integer", false),
            ("count", "integer", false),
            ("period", "integer", false),
            ("quantity", "integer", true),
        ],
        ..entry(
            "cl.throttle",
            -5,
            &["write", "fast"],
            "Spends tokens of a key, unless that is above its limit.",
        )
    },
    entry(
        "client",
        -2,
        &["noscript", "loading", "stale"],
        "Names the connection, or tells its name and number.",
    ),
    entry("command", -1, &["loading", "stale"], "Tells of the commands there are."),
    entry("discard", 1, &["noscript", "loading", "stale", "fast"], "Drops what waits for EXEC."),
    entry("echo", 2, &["loading", "stale", "fast"], "Says what it is told."),
    entry("exec", 1, &["noscript", "loading", "stale"], "Runs what has waited since MULTI, in order."),
    entry("hello", -1, &["noscript", "loading", "stale", "fast", "no_auth"], "Chooses the protocol."),
    entry("info", -1, &["loading", "stale"], "Tells which server this is."),
    entry("multi", 1, &["noscript", "loading", "stale", "fast"], "Lets commands wait for EXEC."),
    entry("ping", -1, &["loading", "stale", "fast"], "Answers."),
    entry("quit", -1, &["noscript", "loading", "stale", "fast", "no_auth"], "Ends the connection."),
    entry(
        "reset",
        1,
        &["noscript", "loading", "stale", "fast", "no_auth"],
        "Makes the connection as good as new.",
    ),
    entry("select", 2, &["loading", "stale", "fast"], "Chooses one of 16 name spaces for CL.THROTTLE."),
    by_rule("spile.check", &["write", "fast"], "Spends tokens of an identity under a rule, or denies."),
    by_rule("spile.peek", &["readonly", "fast"], "Answers as SPILE.CHECK would, and spends nothing."),
    Entry {
        arguments: &[BY_RULE[0], BY_RULE[1], BY_RULE[2], ("id", "string", true)],
        ..by_rule(
            "spile.refund",
            &["write", "fast"],
            "Gives tokens back to an identity under a rule, once for each ID.",
        )
    },
];

const fn by_rule(name: &'static str, flags: &'static [&'static str], summary: &'static str) -> Entry {
    Entry { key: 2, arguments: BY_RULE, ..entry(name, -3, flags, summary) }
}

const fn entry(
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    summary: &'static str,
) -> Entry {
    Entry { name, arity, flags, key: 0, arguments: &[], summary }
}

/// The command of that name, in capitals or not.
pub(super) fn find(name: &[u8]) -> Option<&'static Entry> {
    COMMANDS.iter().find(|entry| entry.name.as_bytes().eq_ignore_ascii_case(name))
}

/// `COMMAND` and what may follow it.
pub(super) fn answer(arguments: &[Vec<u8>]) -> Reply {
    let Some((subcommand, names)) = arguments.split_first() else {
        return Reply::List(COMMANDS.iter().map(Entry::about).collect());
    };
    match subcommand.to_ascii_lowercase().as_slice() {
        b"count" => Reply::count(COMMANDS.len()),
        b"list" => Reply::texts(COMMANDS.iter().map(|entry| entry.name)),
        b"docs" => {
            let wanted = COMMANDS.iter().filter(|entry| names.is_empty() || entry.is_one_of(names));
            Reply::Map(wanted.map(|entry| (entry.name, entry.documentation())).collect())
        }
        b"info" if names.is_empty() => Reply::List(COMMANDS.iter().map(Entry::about).collect()),
        b"info" => {
            Reply::List(names.iter().map(|name| find(name).map_or(Reply::Nil, Entry::about)).collect())
        }
        _ => super::session::unknown_subcommand("COMMAND", subcommand),
    }
}

impl Entry {
    /// Whether a command of so many words, its name included, can be one.
    pub(super) fn takes(&self, words: usize) -> bool {
        let wanted = usize::try_from(self.arity.unsigned_abs()).unwrap_or(usize::MAX);
        if self.arity < 0 { words >= wanted } else { words == wanted }
    }

    /// Whether it can be asked before anybody has said who they are.
    pub(super) fn is_open(&self) -> bool {
        self.flags.contains(&"no_auth")
    }

    fn is_one_of(&self, names: &[Vec<u8>]) -> bool {
        names.iter().any(|name| self.name.as_bytes().eq_ignore_ascii_case(name))
    }

    fn about(&self) -> Reply {
        let flags = self.flags.iter().map(|flag| Reply::Simple(flag)).collect();
        let step = i64::from(self.key > 0);
        Reply::List(vec![
            Reply::text(self.name),
            Reply::Int(self.arity),
            Reply::List(flags),
            Reply::Int(self.key),
            Reply::Int(self.key),
            Reply::Int(step),
            // Categories, tips, key specifications and subcommands, of which there are none to tell.
            Reply::List(Vec::new()),
            Reply::List(Vec::new()),
            Reply::List(Vec::new()),
            Reply::List(Vec::new()),
        ])
    }

    fn documentation(&self) -> Reply {
        let group = if self.key > 0 { "generic" } else { "connection" };
        let mut about = vec![("summary", Reply::text(self.summary)), ("group", Reply::text(group))];
        if self.key > 0 {
            let argument = |&(name, kind, optional): &(&'static str, &'static str, bool)| {
                let mut pairs = vec![("name", Reply::text(name)), ("type", Reply::text(kind))];
                if optional {
                    pairs.push(("flags", Reply::List(vec![Reply::Simple("optional")])));
                }
                Reply::Map(pairs)
            };
            about.push(("arguments", Reply::List(self.arguments.iter().map(argument).collect())));
        }
        Reply::Map(about)
    }
}
