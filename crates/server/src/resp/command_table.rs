//! All commands, as `COMMAND` describes them to clients.

use super::reply::RespReply;

/// One command.
#[derive(Debug)]
pub(super) struct CommandInfo {
    pub(super) name: &'static str,
    /// The number of words including the name. If negative, the minimum.
    arity: i64,
    flags: &'static [&'static str],
    /// The position of the key; zero for a command without a key.
    key: i64,
    /// The name and type of each argument, and whether it is optional.
    arguments: &'static [(&'static str, &'static str, bool)],
    summary: &'static str,
}

/// The arguments of a command about a rule.
const BY_RULE: &[(&str, &str, bool)] =
    &[("rule", "string", false), ("identity", "key", false), ("cost", "integer", true)];

const COMMANDS: [CommandInfo; 21] = [
    entry("auth", -2, &["noscript", "loading", "stale", "fast", "no_auth"], "Authenticates the connection."),
    CommandInfo {
        key: 1,
        arguments: &[
            ("key", "key", false),
            ("max_burst", "integer", false),
            ("count", "integer", false),
            ("period", "integer", false),
            ("quantity", "integer", true),
        ],
        ..entry("cl.throttle", -5, &["write", "fast"], "Spends tokens of a key, or denies.")
    },
    entry(
        "client",
        -2,
        &["noscript", "loading", "stale"],
        "Sets or returns the name of the connection, or returns its id.",
    ),
    entry("command", -1, &["loading", "stale"], "Describes the commands."),
    entry(
        "discard",
        1,
        &["noscript", "loading", "stale", "fast"],
        "Discards the commands queued since MULTI.",
    ),
    entry("echo", 2, &["loading", "stale", "fast"], "Returns its argument."),
    entry("exec", 1, &["noscript", "loading", "stale"], "Runs the commands queued since MULTI, in order."),
    entry("hello", -1, &["noscript", "loading", "stale", "fast", "no_auth"], "Chooses the protocol version."),
    entry("info", -1, &["loading", "stale"], "Describes the server."),
    entry("multi", 1, &["noscript", "loading", "stale", "fast"], "Queues commands until EXEC."),
    entry("ping", -1, &["loading", "stale", "fast"], "Answers."),
    entry("quit", -1, &["noscript", "loading", "stale", "fast", "no_auth"], "Closes the connection."),
    entry(
        "reset",
        1,
        &["noscript", "loading", "stale", "fast", "no_auth"],
        "Resets the connection to its initial state.",
    ),
    entry("select", 2, &["loading", "stale", "fast"], "Chooses one of 16 namespaces for CL.THROTTLE."),
    CommandInfo {
        arguments: &[BY_RULE[0], BY_RULE[1], BY_RULE[2], ("holder", "string", true)],
        ..by_rule(
            "spile.acquire",
            &["write", "fast"],
            "Spends tokens of an identity under a rule and takes a permit of it, or denies.",
        )
    },
    by_rule(
        "spile.charge",
        &["write", "fast"],
        "Charges what was used of an identity under a rule, into debt if need be.",
    ),
    by_rule("spile.check", &["write", "fast"], "Spends tokens of an identity under a rule, or denies."),
    by_rule("spile.peek", &["readonly", "fast"], "Answers like SPILE.CHECK, and spends nothing."),
    CommandInfo {
        arguments: &[BY_RULE[0], BY_RULE[1], BY_RULE[2], ("id", "string", true)],
        ..by_rule(
            "spile.refund",
            &["write", "fast"],
            "Refunds tokens of an identity under a rule, once per ID.",
        )
    },
    by_permit("spile.release", "Ends a permit, so that another can have its place."),
    by_permit("spile.renew", "Keeps a permit for another hold time."),
];

const fn by_rule(name: &'static str, flags: &'static [&'static str], summary: &'static str) -> CommandInfo {
    CommandInfo { key: 2, arguments: BY_RULE, ..entry(name, -3, flags, summary) }
}

/// A permit contains the identity, and no client can find it there: it has no key.
const fn by_permit(name: &'static str, summary: &'static str) -> CommandInfo {
    CommandInfo { arguments: &[("permit", "string", false)], ..entry(name, 2, &["write", "fast"], summary) }
}

const fn entry(
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    summary: &'static str,
) -> CommandInfo {
    CommandInfo { name, arity, flags, key: 0, arguments: &[], summary }
}

/// The command of this name, in any case.
pub(super) fn find(name: &[u8]) -> Option<&'static CommandInfo> {
    COMMANDS.iter().find(|entry| entry.name.as_bytes().eq_ignore_ascii_case(name))
}

/// The reply to `COMMAND` and its subcommands.
pub(super) fn answer(arguments: &[Vec<u8>]) -> RespReply {
    let Some((subcommand, names)) = arguments.split_first() else {
        return RespReply::List(COMMANDS.iter().map(CommandInfo::info).collect());
    };
    match subcommand.to_ascii_lowercase().as_slice() {
        b"count" => RespReply::count(COMMANDS.len()),
        b"list" => RespReply::texts(COMMANDS.iter().map(|entry| entry.name)),
        b"docs" => {
            let wanted = COMMANDS.iter().filter(|entry| names.is_empty() || entry.is_one_of(names));
            RespReply::Map(wanted.map(|entry| (entry.name, entry.documentation())).collect())
        }
        b"info" if names.is_empty() => RespReply::List(COMMANDS.iter().map(CommandInfo::info).collect()),
        b"info" => RespReply::List(
            names.iter().map(|name| find(name).map_or(RespReply::Nil, CommandInfo::info)).collect(),
        ),
        _ => super::session::unknown_subcommand("COMMAND", subcommand),
    }
}

impl CommandInfo {
    /// Whether it takes this many words, including its name.
    pub(super) fn accepts_arguments(&self, words: usize) -> bool {
        let wanted = usize::try_from(self.arity.unsigned_abs()).unwrap_or(usize::MAX);
        if self.arity < 0 { words >= wanted } else { words == wanted }
    }

    /// Whether it is allowed before the client has authenticated.
    pub(super) fn is_allowed_before_auth(&self) -> bool {
        self.flags.contains(&"no_auth")
    }

    fn is_one_of(&self, names: &[Vec<u8>]) -> bool {
        names.iter().any(|name| self.name.as_bytes().eq_ignore_ascii_case(name))
    }

    fn info(&self) -> RespReply {
        let flags = self.flags.iter().map(|flag| RespReply::Simple(flag)).collect();
        let step = i64::from(self.key > 0);
        RespReply::List(vec![
            RespReply::text(self.name),
            RespReply::Int(self.arity),
            RespReply::List(flags),
            RespReply::Int(self.key),
            RespReply::Int(self.key),
            RespReply::Int(step),
            // Categories, tips, key specifications and subcommands: all empty.
            RespReply::List(Vec::new()),
            RespReply::List(Vec::new()),
            RespReply::List(Vec::new()),
            RespReply::List(Vec::new()),
        ])
    }

    fn documentation(&self) -> RespReply {
        let group = if self.arguments.is_empty() { "connection" } else { "generic" };
        let mut info = vec![("summary", RespReply::text(self.summary)), ("group", RespReply::text(group))];
        if !self.arguments.is_empty() {
            let argument = |&(name, kind, optional): &(&'static str, &'static str, bool)| {
                let mut pairs = vec![("name", RespReply::text(name)), ("type", RespReply::text(kind))];
                if optional {
                    pairs.push(("flags", RespReply::List(vec![RespReply::Simple("optional")])));
                }
                RespReply::Map(pairs)
            };
            info.push(("arguments", RespReply::List(self.arguments.iter().map(argument).collect())));
        }
        RespReply::Map(info)
    }
}
