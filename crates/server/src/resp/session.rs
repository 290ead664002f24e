//! The state of one connection, which dispatches its commands.

use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

use futures_util::future::join_all;
use spile_core::{Decision, PermitId, Reason};
use spile_limiter::Ruling;
use spile_listener::{GuessLimiter, HangUp};
use spile_policy::Policy;
use spile_resp::{Frame, MAX_ARGUMENTS, MAX_COMMAND_BYTES};
use tokio::task::yield_now;

use super::check::{self, Check, Verb};
use super::command_table::{self, CommandInfo};
use super::permit::{self, Acquire, PermitVerb};
use super::reply::{ProtocolVersion, RespReply};
use super::throttle::Throttle;
use super::transaction::Transaction;
use crate::decide::{Decider, UnansweredPermit};
use crate::observe::metrics::{Answered, RpcMetrics};

/// The Redis version that the listener imitates, for clients that check it.
const REDIS_VERSION: &str = "7.0.0";
/// The only user.
const DEFAULT_USER: &[u8] = b"default";
/// The most pipelined decisions that run concurrently.
const MAX_BATCH: usize = 256;
/// The number of databases. Each is a namespace for the keys of `CL.THROTTLE`.
const DATABASES: u8 = 16;
/// The commands that make a decision.
const DECISION_COMMANDS: [(&str, DecisionCommand); 8] = [
    ("cl.throttle", DecisionCommand::Throttle),
    ("spile.acquire", DecisionCommand::Acquire),
    ("spile.charge", DecisionCommand::Rule(Verb::Charge)),
    ("spile.check", DecisionCommand::Rule(Verb::Check)),
    ("spile.peek", DecisionCommand::Rule(Verb::Peek)),
    ("spile.refund", DecisionCommand::Rule(Verb::Refund)),
    ("spile.release", DecisionCommand::Permit(PermitVerb::Release)),
    ("spile.renew", DecisionCommand::Permit(PermitVerb::Renew)),
];

/// A command that makes a decision.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum DecisionCommand {
    /// `CL.THROTTLE`, which has its limit in its arguments.
    Throttle,
    /// A command about a rule.
    Rule(Verb),
    /// A command about a rule that takes a permit.
    Acquire,
    /// A command about an existing permit.
    Permit(PermitVerb),
}

/// The fate of the connection after a reply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum AfterReply {
    Continue,
    Close,
}

/// The client at the other end, and the wrong passwords of each address.
#[derive(Clone)]
pub(super) struct RespPeer {
    pub(super) address: IpAddr,
    pub(super) hang_up: HangUp,
    pub(super) guesses: Arc<GuessLimiter>,
}

/// Replies that have not been sent, and the permits of replies that the client may not have read.
#[derive(Default)]
pub(super) struct Replies {
    pub(super) bytes: Vec<u8>,
    pub(super) permits: Vec<UnansweredPermit>,
}

/// The reply to a decision, how it is counted, and the permit that it contains.
struct DecisionReply {
    reply: RespReply,
    answered: Answered,
    permit: Option<UnansweredPermit>,
}

impl From<(RespReply, Answered)> for DecisionReply {
    fn from((reply, answered): (RespReply, Answered)) -> Self {
        Self { reply, answered, permit: None }
    }
}

/// The state of one connection.
pub(super) struct ClientSession {
    decider: Arc<Decider>,
    metrics: Arc<RpcMetrics>,
    peer: RespPeer,
    id: i64,
    protocol: ProtocolVersion,
    name: Vec<u8>,
    /// Whether the client has given the right password.
    authenticated: bool,
    database: u8,
    /// The open transaction. `None` outside of `MULTI`.
    transaction: Option<Transaction>,
}

impl RespPeer {
    /// Fails if the client has closed its side of the connection: it could be gone, so it must hold no permit.
    async fn refuse_if_gone(&self) -> Result<(), RespReply> {
        // Lets the runtime notice.
        yield_now().await;
        if self.hang_up.is_heard() {
            return Err(RespReply::error(
                "GONE the client has closed its side of the connection: it holds no permit",
            ));
        }
        Ok(())
    }
}

impl ClientSession {
    pub(super) const fn new(
        peer: RespPeer,
        decider: Arc<Decider>,
        metrics: Arc<RpcMetrics>,
        id: i64,
    ) -> Self {
        Self {
            decider,
            metrics,
            peer,
            id,
            protocol: ProtocolVersion::Resp2,
            name: Vec::new(),
            authenticated: false,
            database: 0,
            transaction: None,
        }
    }

    /// Answers the first frame, or all decisions at the start of `frames`. Returns how many frames were answered.
    pub(super) async fn answer(&mut self, frames: &[Frame], out: &mut Replies) -> (usize, AfterReply) {
        let batch = if self.is_authenticated() && self.transaction.is_none() {
            frames.iter().take(MAX_BATCH).map_while(decision_command_of_frame).count()
        } else {
            0
        };
        if batch > 0 {
            // Boxed, because the future of a batch is large.
            Box::pin(self.ask_all(&frames[..batch], out)).await;
            return (batch, AfterReply::Continue);
        }
        let Some(frame) = frames.first() else { return (0, AfterReply::Continue) };
        let (reply, then) = match frame {
            Frame::Command(words) => self.command(words, &mut out.permits).await,
            Frame::TooLarge => {
                if let Some(transaction) = &mut self.transaction {
                    transaction.abort();
                }
                (too_large(), AfterReply::Continue)
            }
        };
        let refused = matches!(reply, RespReply::Error(_));
        self.metrics.count(if refused { Answered::Refused } else { Answered::Other });
        reply.write(self.protocol, &mut out.bytes);
        (1, then)
    }

    /// Replies with a protocol error.
    pub(super) fn reject(&self, why: impl std::fmt::Display, out: &mut Vec<u8>) {
        self.metrics.count(Answered::Refused);
        RespReply::error(format!("ERR {why}")).write(self.protocol, out);
    }

    /// Makes all decisions concurrently, so that a remote store answers them in one round trip.
    async fn ask_all(&self, frames: &[Frame], out: &mut Replies) {
        let in_force = self.decider.in_force();
        let asked = frames.iter().filter_map(decision_command_of_frame);
        let in_bulk = frames.len() > 1;
        let mut answers =
            asked.map(|(command, arguments)| self.ask(command, arguments, &in_force.policy, in_bulk));
        let replies = match (in_bulk, answers.next()) {
            (false, Some(only)) => vec![only.await],
            (_, first) => join_all(first.into_iter().chain(answers)).await,
        };
        for DecisionReply { reply, answered, permit } in replies {
            self.metrics.count(answered);
            reply.write(self.protocol, &mut out.bytes);
            out.permits.extend(permit);
        }
    }

    /// Makes one decision. If it is part of a batch (`in_bulk`), it takes turns with other clients.
    async fn ask(
        &self,
        command: DecisionCommand,
        arguments: &[Vec<u8>],
        policy: &Policy,
        in_bulk: bool,
    ) -> DecisionReply {
        let decided = match command {
            DecisionCommand::Throttle => self.throttle(arguments, policy, in_bulk).await,
            // Boxed, because its future is large and is not needed for a throttle.
            DecisionCommand::Rule(verb) => Box::pin(self.check(verb, arguments, policy, in_bulk)).await,
            DecisionCommand::Acquire => {
                let acquired = Box::pin(self.acquire(arguments, policy, in_bulk)).await;
                return acquired.unwrap_or_else(|wrong| (wrong, Answered::Refused).into());
            }
            DecisionCommand::Permit(verb) => {
                let answer = permit::answer(verb, arguments, &self.decider, policy, in_bulk);
                let answer = Box::pin(self.metrics.traced("resp permit", answer)).await;
                answer.map(|reply| (reply, Answered::Other))
            }
        };
        decided.unwrap_or_else(|wrong| (wrong, Answered::Refused)).into()
    }

    async fn throttle(
        &self,
        arguments: &[Vec<u8>],
        policy: &Policy,
        in_bulk: bool,
    ) -> Result<(RespReply, Answered), RespReply> {
        let throttle = Throttle::parse(arguments)?;
        let owed = throttle.owed(policy, self.database)?;
        let decided = async {
            if in_bulk { self.decider.allow_in_turn(&owed).await } else { self.decider.allow(&owed).await }
        };
        let ruling = self.metrics.traced("resp throttle", decided).await;
        Ok((throttle.reply(&ruling), answered(&ruling)))
    }

    async fn check(
        &self,
        verb: Verb,
        arguments: &[Vec<u8>],
        policy: &Policy,
        in_bulk: bool,
    ) -> Result<(RespReply, Answered), RespReply> {
        let asked = Check::parse(verb, arguments)?;
        let owed = asked.owed(policy)?;
        let decided = asked.run(&self.decider, &owed, in_bulk);
        let decided = self.metrics.traced("resp check", decided).await;
        let decided = decided.map_err(|why| check::failure(verb, &why))?;
        let after = answered(&decided.0);
        Ok((check::reply(decided), after))
    }

    /// Takes a permit, unless the client has hung up. If it hangs up before the permit is returned, the permit is
    /// released.
    async fn acquire(
        &self,
        arguments: &[Vec<u8>],
        policy: &Policy,
        in_bulk: bool,
    ) -> Result<DecisionReply, RespReply> {
        let address = self.peer.address.to_string();
        // A client's name may be too long for a holder.
        let name = str::from_utf8(&self.name).ok().filter(|name| PermitId::check_holder(name).is_ok());
        let holder = name.filter(|name| !name.is_empty()).unwrap_or(&address);
        let asked = Acquire::parse(arguments, holder)?;
        let owed = asked.owed(policy)?;
        if owed.chains().any(|chain| chain.first_permit().is_some()) {
            self.peer.refuse_if_gone().await?;
        }
        let acquired = asked.run(&self.decider, &owed, in_bulk);
        let (ruling, id) = self.metrics.traced("resp acquire", acquired).await;
        let (reply, answered) = (asked.reply(&owed, &ruling, id.as_ref()), answered(&ruling));
        let permit = id.map(|id| UnansweredPermit::new(&self.decider, owed, id));
        if permit.is_some() {
            self.peer.refuse_if_gone().await?;
        }
        Ok(DecisionReply { reply, answered, permit })
    }

    /// Answers a command that makes no decision, or queues one for its transaction.
    async fn command(
        &mut self,
        words: &[Vec<u8>],
        permits: &mut Vec<UnansweredPermit>,
    ) -> (RespReply, AfterReply) {
        let name = words.first().map(|name| name.to_ascii_lowercase()).unwrap_or_default();
        if !self.is_authenticated() {
            return self.reply(words);
        }
        match (name.as_slice(), self.transaction.is_some()) {
            (b"multi", false) if words.len() == 1 => {
                self.transaction = Some(Transaction::default());
                (RespReply::OK, AfterReply::Continue)
            }
            (b"multi", true) => (RespReply::error("ERR MULTI calls can not be nested"), AfterReply::Continue),
            (b"exec", true) if words.len() == 1 => self.exec(permits).await,
            (b"discard", true) if words.len() == 1 => {
                self.transaction = None;
                (RespReply::OK, AfterReply::Continue)
            }
            (b"exec", false) => (RespReply::error("ERR EXEC without MULTI"), AfterReply::Continue),
            (b"discard", false) => (RespReply::error("ERR DISCARD without MULTI"), AfterReply::Continue),
            (b"quit" | b"reset", true) | (_, false) => self.reply(words),
            _ if is_http(&name) => self.reply(words),
            _ => (self.queue(words), AfterReply::Continue),
        }
    }

    /// Queues a command for `EXEC`. An invalid command makes `EXEC` fail.
    fn queue(&mut self, words: &[Vec<u8>]) -> RespReply {
        let name = words.first().map_or(&[][..], Vec::as_slice);
        let refused = match command_table::find(name) {
            None => Some(self.unknown(name, words.get(1..).unwrap_or_default())),
            Some(entry) if !entry.accepts_arguments(words.len()) => Some(wrong_number(entry)),
            // Their replies are long, and the reply of a transaction is held in memory.
            Some(entry) if ["command", "info"].contains(&entry.name) => {
                Some(RespReply::error("ERR Command not allowed inside a transaction"))
            }
            Some(_) => None,
        };
        let Some(transaction) = &mut self.transaction else { return RespReply::Nil };
        match refused {
            Some(refused) => {
                transaction.abort();
                refused
            }
            None if transaction.queue(words) => RespReply::Simple("QUEUED"),
            None => RespReply::error("ERR a transaction takes at most 1000 commands and 1 MiB"),
        }
    }

    /// Runs the queued commands one after the other, and replies to all of them.
    async fn exec(&mut self, permits: &mut Vec<UnansweredPermit>) -> (RespReply, AfterReply) {
        let commands = self.transaction.take().and_then(Transaction::into_commands);
        let Some(commands) = commands else {
            return (
                RespReply::error("EXECABORT Transaction discarded because of previous errors."),
                AfterReply::Continue,
            );
        };
        let policy = self.decider.policy();
        let mut replies = Vec::with_capacity(commands.len());
        for words in &commands {
            replies.push(match decision_command_of(words) {
                Some((command, arguments)) => {
                    let answer = self.ask(command, arguments, &policy, false).await;
                    self.metrics.count(answer.answered);
                    permits.extend(answer.permit);
                    answer.reply
                }
                None => self.reply(words).0,
            });
        }
        (RespReply::List(replies), AfterReply::Continue)
    }

    fn is_authenticated(&self) -> bool {
        self.authenticated || self.decider.in_force().resp_password.is_none()
    }

    fn reply(&mut self, words: &[Vec<u8>]) -> (RespReply, AfterReply) {
        let Some((name, arguments)) = words.split_first() else {
            return (RespReply::Nil, AfterReply::Continue);
        };
        if is_http(name) {
            // A web page can make a browser send this, with commands in the body. None of them is read.
            return (RespReply::error("ERR this is not an HTTP server"), AfterReply::Close);
        }
        let Some(entry) = command_table::find(name) else {
            return (self.unknown(name, arguments), AfterReply::Continue);
        };
        if !entry.accepts_arguments(words.len()) {
            return (wrong_number(entry), AfterReply::Continue);
        }
        if !entry.is_allowed_before_auth() && !self.is_authenticated() {
            return (no_auth(), AfterReply::Continue);
        }
        let reply = match (entry.name, arguments) {
            ("quit", _) => return (RespReply::OK, AfterReply::Close),
            ("ping", []) => RespReply::Simple("PONG"),
            ("ping" | "echo", [text]) => RespReply::text(text),
            ("auth", [password]) => self.auth(DEFAULT_USER, password),
            ("auth", [user, password]) => self.auth(user, password),
            ("hello", arguments) => self.hello(arguments),
            ("reset", _) => {
                let (decider, metrics) = (Arc::clone(&self.decider), Arc::clone(&self.metrics));
                *self = Self::new(self.peer.clone(), decider, metrics, self.id);
                RespReply::Simple("RESET")
            }
            ("select", [database]) => self.select(database),
            ("client", [subcommand, arguments @ ..]) => self.client(subcommand, arguments),
            ("command", arguments) => command_table::answer(arguments),
            ("info", _) => RespReply::text(info()),
            _ => wrong_number(entry),
        };
        (reply, AfterReply::Continue)
    }

    fn select(&mut self, database: &[u8]) -> RespReply {
        let number = std::str::from_utf8(database).ok().and_then(|text| text.parse::<i64>().ok());
        match number.map(u8::try_from) {
            None => RespReply::error("ERR value is not an integer or out of range"),
            Some(Ok(database)) if database < DATABASES => {
                self.database = database;
                RespReply::OK
            }
            Some(_) => RespReply::error("ERR DB index is out of range"),
        }
    }

    fn unknown(&self, name: &[u8], arguments: &[Vec<u8>]) -> RespReply {
        if !self.is_authenticated() {
            return no_auth();
        }
        let mut text = format!("ERR unknown command '{}', with args beginning with: ", excerpt(name));
        for argument in arguments.iter().take(4) {
            // Writing to a String cannot fail.
            let _written = write!(text, "'{}' ", excerpt(argument));
        }
        RespReply::error(text)
    }

    fn auth(&mut self, user: &[u8], password: &[u8]) -> RespReply {
        let in_force = self.decider.in_force();
        let Some(secret) = &in_force.resp_password else {
            return RespReply::error(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure \
                 your configuration is correct?",
            );
        };
        let RespPeer { address, guesses, .. } = &self.peer;
        match guesses.check(*address, password, || secret.is(password) && user == DEFAULT_USER) {
            Ok(true) => {
                self.authenticated = true;
                RespReply::OK
            }
            Ok(false) => RespReply::error("WRONGPASS invalid username-password pair or user is disabled."),
            Err(why) => RespReply::error(format!("ERR {why}")),
        }
    }

    /// `HELLO [protover [AUTH user password] [SETNAME name]]`. Either all of it takes effect, or nothing.
    fn hello(&mut self, arguments: &[Vec<u8>]) -> RespReply {
        let (version, mut options) = match arguments.split_first() {
            None => (None, arguments),
            Some((version, options)) => (Some(version), options),
        };
        let protocol = match version.map(Vec::as_slice) {
            None => self.protocol,
            Some(b"2") => ProtocolVersion::Resp2,
            Some(b"3") => ProtocolVersion::Resp3,
            Some(other) if other.iter().all(u8::is_ascii_digit) && !other.is_empty() => {
                return RespReply::error("NOPROTO unsupported protocol version");
            }
            Some(_) => return RespReply::error("ERR Protocol version is not an integer or out of range"),
        };
        let (mut credentials, mut name) = (None, None);
        while let Some((option, values)) = options.split_first() {
            options = match (option.to_ascii_lowercase().as_slice(), values) {
                (b"auth", [user, password, rest @ ..]) => {
                    credentials = Some((user, password));
                    rest
                }
                (b"setname", [chosen, rest @ ..]) => {
                    name = Some(chosen);
                    rest
                }
                _ => {
                    return RespReply::error(format!(
                        "ERR Syntax error in HELLO option '{}'",
                        excerpt(option)
                    ));
                }
            };
        }
        if name.is_some_and(|name| !is_name(name)) {
            return bad_name();
        }
        if let Some((user, password)) = credentials {
            let reply = self.auth(user, password);
            if reply != RespReply::OK {
                return reply;
            }
        }
        if !self.is_authenticated() {
            return RespReply::error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
                 AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
                 version at the same time",
            );
        }
        if let Some(name) = name {
            self.name.clone_from(name);
        }
        self.protocol = protocol;
        self.about()
    }

    fn about(&self) -> RespReply {
        RespReply::Map(vec![
            ("server", RespReply::text("spile")),
            ("version", RespReply::text(REDIS_VERSION)),
            ("proto", RespReply::Int(self.protocol.number())),
            ("id", RespReply::Int(self.id)),
            ("mode", RespReply::text("standalone")),
            ("role", RespReply::text("master")),
            ("modules", RespReply::List(Vec::new())),
        ])
    }

    fn client(&mut self, subcommand: &[u8], arguments: &[Vec<u8>]) -> RespReply {
        match (subcommand.to_ascii_lowercase().as_slice(), arguments) {
            (b"id", []) => RespReply::Int(self.id),
            (b"getname", []) if self.name.is_empty() => RespReply::Nil,
            (b"getname", []) => RespReply::text(&self.name),
            (b"setname", [name]) if is_name(name) => {
                self.name.clone_from(name);
                RespReply::OK
            }
            (b"setname", [_]) => bad_name(),
            (b"setinfo", [attribute, value]) => set_info(attribute, value),
            (known @ (b"id" | b"getname" | b"setname" | b"setinfo"), _) => RespReply::error(format!(
                "ERR wrong number of arguments for 'client|{}' command",
                String::from_utf8_lossy(known)
            )),
            _ => unknown_subcommand("CLIENT", subcommand),
        }
    }
}

/// The decision that a frame asks for, with its arguments. `None` for other commands.
fn decision_command_of_frame(frame: &Frame) -> Option<(DecisionCommand, &[Vec<u8>])> {
    match frame {
        Frame::Command(words) => decision_command_of(words),
        Frame::TooLarge => None,
    }
}

fn decision_command_of(words: &[Vec<u8>]) -> Option<(DecisionCommand, &[Vec<u8>])> {
    let (name, arguments) = words.split_first()?;
    let known = DECISION_COMMANDS.iter().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()));
    known.map(|&(_, command)| (command, arguments))
}

/// How a decision is counted.
fn answered(ruling: &Ruling) -> Answered {
    match ruling.enforced.decision().map(Decision::reason) {
        Some(Reason::FailClosed) => Answered::Unavailable,
        _ if ruling.allowed() => Answered::Allowed,
        _ => Answered::Limited,
    }
}

/// Whether the name is one with which an HTTP request begins.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// `CLIENT SETINFO`: accepted, and not stored.
fn set_info(attribute: &[u8], value: &[u8]) -> RespReply {
    let known = [b"lib-name".as_slice(), b"lib-ver"];
    if !known.iter().any(|known| attribute.eq_ignore_ascii_case(known)) {
        return RespReply::error(format!("ERR Unrecognized option '{}'", excerpt(attribute)));
    }
    if is_name(value) { RespReply::OK } else { bad_name() }
}

/// Whether Redis would accept the name: printable ASCII without spaces.
fn is_name(name: &[u8]) -> bool {
    name.len() <= 256 && name.iter().all(u8::is_ascii_graphic)
}

fn bad_name() -> RespReply {
    RespReply::error(
        "ERR Client names cannot contain spaces, newlines or special characters, nor over 256 bytes",
    )
}

fn no_auth() -> RespReply {
    RespReply::error("NOAUTH Authentication required.")
}

fn wrong_number(entry: &CommandInfo) -> RespReply {
    RespReply::error(format!("ERR wrong number of arguments for '{}' command", entry.name))
}

fn too_large() -> RespReply {
    RespReply::error(format!(
        "ERR a command takes at most {MAX_COMMAND_BYTES} bytes in {MAX_ARGUMENTS} arguments"
    ))
}

pub(super) fn unknown_subcommand(command: &str, subcommand: &[u8]) -> RespReply {
    RespReply::error(format!("ERR unknown subcommand '{}' of {command}", excerpt(subcommand)))
}

/// The start of an argument, escaped, for an error message.
fn excerpt(text: &[u8]) -> String {
    text[..text.len().min(64)].escape_ascii().to_string()
}

/// The fields that clients check: a standalone master that has loaded its data.
fn info() -> String {
    format!(
        "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nspile_version:{}\r\n\r\n\
         # Persistence\r\nloading:0\r\n\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n\
         # Cluster\r\ncluster_enabled:0\r\n",
        env!("CARGO_PKG_VERSION")
    )
}
