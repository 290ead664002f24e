//! What one connection has agreed on, and how its commands are answered.

use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

use futures_util::future::join_all;
use spile_core::{Decision, Reason};
use spile_listener::GuessLimiter;
use spile_policy::Policy;
use spile_resp::{Frame, MAX_ARGUMENTS, MAX_COMMAND_BYTES};

use super::catalogue::{self, Entry};
use super::check::{self, Check, Verb};
use super::reply::{Protocol, Reply};
use super::throttle::Throttle;
use super::transaction::Transaction;
use crate::decide::Decider;
use crate::observe::metrics::{Answered, RpcMetrics};

/// The Redis whose manners these are, for clients that go by a version.
const REDIS_VERSION: &str = "7.0.0";
/// The only user there is.
const USER: &[u8] = b"default";
/// Questions that are asked side by side.
const MAX_RUN: usize = 256;
/// Databases, each a name space of its own for the keys of `CL.THROTTLE`.
const DATABASES: u8 = 16;
/// The commands that ask for a decision.
const QUESTIONS: [(&str, Question); 4] = [
    ("cl.throttle", Question::Throttle),
    ("spile.check", Question::Rule(Verb::Check)),
    ("spile.peek", Question::Rule(Verb::Peek)),
    ("spile.refund", Question::Rule(Verb::Refund)),
];

/// What a command asks about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Question {
    /// A limit that it brings along.
    Throttle,
    /// A rule.
    Rule(Verb),
}

/// Whether there is more to come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Then {
    GoOn,
    Close,
}

/// Where passwords come from, and how often a wrong one came from there.
#[derive(Clone)]
pub(super) struct Presenter {
    pub(super) address: IpAddr,
    pub(super) guesses: Arc<GuessLimiter>,
}

/// One connection.
pub(super) struct Session {
    decider: Arc<Decider>,
    metrics: Arc<RpcMetrics>,
    presenter: Presenter,
    id: i64,
    protocol: Protocol,
    name: Vec<u8>,
    /// Whether the password was given, where one is asked for.
    known: bool,
    database: u8,
    /// What waits for `EXEC`, if a transaction is under way.
    transaction: Option<Transaction>,
}

impl Session {
    pub(super) const fn new(
        presenter: Presenter,
        decider: Arc<Decider>,
        metrics: Arc<RpcMetrics>,
        id: i64,
    ) -> Self {
        Self {
            decider,
            metrics,
            presenter,
            id,
            protocol: Protocol::Resp2,
            name: Vec::new(),
            known: false,
            database: 0,
            transaction: None,
        }
    }

    /// Answers the first of these, or a run of questions at their beginning, and says how many that were.
    pub(super) async fn answer(&mut self, frames: &[Frame], out: &mut Vec<u8>) -> (usize, Then) {
        let run = if self.is_let_in() && self.transaction.is_none() {
            frames.iter().take(MAX_RUN).map_while(question_of_frame).count()
        } else {
            0
        };
        if run > 0 {
            // On the heap: the future of a run is large, and this one would be as large.
            Box::pin(self.ask_all(&frames[..run], out)).await;
            return (run, Then::GoOn);
        }
        let Some(frame) = frames.first() else { return (0, Then::GoOn) };
        let (reply, then) = match frame {
            Frame::Command(words) => self.command(words).await,
            Frame::TooLarge => {
                if let Some(transaction) = &mut self.transaction {
                    transaction.abort();
                }
                (too_large(), Then::GoOn)
            }
        };
        let refused = matches!(reply, Reply::Error(_));
        self.metrics.count(if refused { Answered::Refused } else { Answered::Other });
        reply.write(self.protocol, out);
        (1, then)
    }

    /// Says what is wrong with bytes that are no command.
    pub(super) fn refuse(&self, why: impl std::fmt::Display, out: &mut Vec<u8>) {
        self.metrics.count(Answered::Refused);
        Reply::error(format!("ERR {why}")).write(self.protocol, out);
    }

    /// Asks all of them at once, so that a store across the network can answer them in one round trip.
    async fn ask_all(&self, frames: &[Frame], out: &mut Vec<u8>) {
        let in_force = self.decider.in_force();
        let asked = frames.iter().filter_map(question_of_frame);
        let in_bulk = frames.len() > 1;
        let mut answers =
            asked.map(|(question, arguments)| self.ask(question, arguments, &in_force.policy, in_bulk));
        let replies = match (in_bulk, answers.next()) {
            (false, Some(only)) => vec![only.await],
            (_, first) => join_all(first.into_iter().chain(answers)).await,
        };
        for (reply, answered) in replies {
            self.metrics.count(answered);
            reply.write(self.protocol, out);
        }
    }

    /// Asks one question, in turn with others if it comes `in_bulk`.
    async fn ask(
        &self,
        question: Question,
        arguments: &[Vec<u8>],
        policy: &Policy,
        in_bulk: bool,
    ) -> (Reply, Answered) {
        let decided = match question {
            Question::Throttle => self.throttle(arguments, policy, in_bulk).await,
            Question::Rule(verb) => self.check(verb, arguments, policy, in_bulk).await,
        };
        decided.unwrap_or_else(|wrong| (wrong, Answered::Refused))
    }

    async fn throttle(
        &self,
        arguments: &[Vec<u8>],
        policy: &Policy,
        in_bulk: bool,
    ) -> Result<(Reply, Answered), Reply> {
        let throttle = Throttle::parse(arguments)?;
        let chain = throttle.owed(policy, self.database)?;
        let decided = async {
            if in_bulk {
                self.decider.allow_in_turn(Some(&chain)).await
            } else {
                self.decider.allow_chain(Some(&chain)).await
            }
        };
        let decision = self.metrics.traced("resp throttle", decided).await;
        Ok((throttle.reply(&decision), answered(&decision)))
    }

    async fn check(
        &self,
        verb: Verb,
        arguments: &[Vec<u8>],
        policy: &Policy,
        in_bulk: bool,
    ) -> Result<(Reply, Answered), Reply> {
        let asked = Check::parse(verb, arguments)?;
        let chain = asked.owed(policy)?;
        let decided = asked.run(&self.decider, chain.as_ref(), in_bulk);
        let decided = self.metrics.traced("resp check", decided).await;
        let (decision, refunded) = decided.map_err(|why| {
            let given =
                if why.may_have_run() { "it may have been given back" } else { "nothing was given back" };
            Reply::error(format!("UNAVAILABLE rate limiter backend error: {given}"))
        })?;
        Ok((check::reply(&decision, refunded), answered(&decision)))
    }

    /// A command that is no question, or one that waits for its transaction.
    async fn command(&mut self, words: &[Vec<u8>]) -> (Reply, Then) {
        let name = words.first().map(|name| name.to_ascii_lowercase()).unwrap_or_default();
        if !self.is_let_in() {
            return self.reply(words);
        }
        match (name.as_slice(), self.transaction.is_some()) {
            (b"multi", false) if words.len() == 1 => {
                self.transaction = Some(Transaction::default());
                (Reply::OK, Then::GoOn)
            }
            (b"multi", true) => (Reply::error("ERR MULTI calls can not be nested"), Then::GoOn),
            (b"exec", true) if words.len() == 1 => self.exec().await,
            (b"discard", true) if words.len() == 1 => {
                self.transaction = None;
                (Reply::OK, Then::GoOn)
            }
            (b"exec", false) => (Reply::error("ERR EXEC without MULTI"), Then::GoOn),
            (b"discard", false) => (Reply::error("ERR DISCARD without MULTI"), Then::GoOn),
            (b"quit" | b"reset", true) | (_, false) => self.reply(words),
            _ if is_http(&name) => self.reply(words),
            _ => (self.queue(words), Then::GoOn),
        }
    }

    /// Keeps a command for `EXEC`. One that could never run keeps all of them from running.
    fn queue(&mut self, words: &[Vec<u8>]) -> Reply {
        let name = words.first().map_or(&[][..], Vec::as_slice);
        let refused = match catalogue::find(name) {
            None => Some(self.unknown(name, words.get(1..).unwrap_or_default())),
            Some(entry) if !entry.takes(words.len()) => Some(wrong_number(entry)),
            // Their answers are long, and a transaction is answered whole.
            Some(entry) if ["command", "info"].contains(&entry.name) => {
                Some(Reply::error("ERR Command not allowed inside a transaction"))
            }
            Some(_) => None,
        };
        let Some(transaction) = &mut self.transaction else { return Reply::Nil };
        match refused {
            Some(refused) => {
                transaction.abort();
                refused
            }
            None if transaction.queue(words) => Reply::Simple("QUEUED"),
            None => Reply::error("ERR a transaction takes at most 1000 commands and 1 MiB"),
        }
    }

    /// Runs what waits, one after the other, and answers for all of it.
    async fn exec(&mut self) -> (Reply, Then) {
        let commands = self.transaction.take().and_then(Transaction::into_commands);
        let Some(commands) = commands else {
            return (Reply::error("EXECABORT Transaction discarded because of previous errors."), Then::GoOn);
        };
        let policy = self.decider.policy();
        let mut replies = Vec::with_capacity(commands.len());
        for words in &commands {
            replies.push(match question_of(words) {
                Some((question, arguments)) => {
                    let (reply, answered) = self.ask(question, arguments, &policy, false).await;
                    self.metrics.count(answered);
                    reply
                }
                None => self.reply(words).0,
            });
        }
        (Reply::List(replies), Then::GoOn)
    }

    fn is_let_in(&self) -> bool {
        self.known || self.decider.in_force().resp_password.is_none()
    }

    fn reply(&mut self, words: &[Vec<u8>]) -> (Reply, Then) {
        let Some((name, arguments)) = words.split_first() else { return (Reply::Nil, Then::GoOn) };
        if is_http(name) {
            // A browser can be made to send this, with commands in the body: none of it is read.
            return (Reply::error("ERR this is no HTTP server"), Then::Close);
        }
        let Some(entry) = catalogue::find(name) else {
            return (self.unknown(name, arguments), Then::GoOn);
        };
        if !entry.takes(words.len()) {
            return (wrong_number(entry), Then::GoOn);
        }
        if !entry.is_open() && !self.is_let_in() {
            return (no_auth(), Then::GoOn);
        }
        let reply = match (entry.name, arguments) {
            ("quit", _) => return (Reply::OK, Then::Close),
            ("ping", []) => Reply::Simple("PONG"),
            ("ping" | "echo", [text]) => Reply::text(text),
            ("auth", [password]) => self.auth(USER, password),
            ("auth", [user, password]) => self.auth(user, password),
            ("hello", arguments) => self.hello(arguments),
            ("reset", _) => {
                let (decider, metrics) = (Arc::clone(&self.decider), Arc::clone(&self.metrics));
                *self = Self::new(self.presenter.clone(), decider, metrics, self.id);
                Reply::Simple("RESET")
            }
            ("select", [database]) => self.select(database),
            ("client", [subcommand, arguments @ ..]) => self.client(subcommand, arguments),
            ("command", arguments) => catalogue::answer(arguments),
            ("info", _) => Reply::text(info()),
            _ => wrong_number(entry),
        };
        (reply, Then::GoOn)
    }

    fn select(&mut self, database: &[u8]) -> Reply {
        let number = std::str::from_utf8(database).ok().and_then(|text| text.parse::<i64>().ok());
        match number.map(u8::try_from) {
            None => Reply::error("ERR value is not an integer or out of range"),
            Some(Ok(database)) if database < DATABASES => {
                self.database = database;
                Reply::OK
            }
            Some(_) => Reply::error("ERR DB index is out of range"),
        }
    }

    fn unknown(&self, name: &[u8], arguments: &[Vec<u8>]) -> Reply {
        if !self.is_let_in() {
            return no_auth();
        }
        let mut text = format!("ERR unknown command '{}', with args beginning with: ", shown(name));
        for argument in arguments.iter().take(4) {
            // Writing to a String cannot fail.
            let _written = write!(text, "'{}' ", shown(argument));
        }
        Reply::error(text)
    }

    fn auth(&mut self, user: &[u8], password: &[u8]) -> Reply {
        let in_force = self.decider.in_force();
        let Some(secret) = &in_force.resp_password else {
            return Reply::error(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure \
                 your configuration is correct?",
            );
        };
        let Presenter { address, guesses } = &self.presenter;
        match guesses.check(*address, password, || secret.is(password) && user == USER) {
            Ok(true) => {
                self.known = true;
                Reply::OK
            }
            Ok(false) => Reply::error("WRONGPASS invalid username-password pair or user is disabled."),
            Err(why) => Reply::error(format!("ERR {why}")),
        }
    }

    /// `HELLO [protover [AUTH user password] [SETNAME name]]`. All of it holds, or nothing does.
    fn hello(&mut self, arguments: &[Vec<u8>]) -> Reply {
        let (version, mut options) = match arguments.split_first() {
            None => (None, arguments),
            Some((version, options)) => (Some(version), options),
        };
        let protocol = match version.map(Vec::as_slice) {
            None => self.protocol,
            Some(b"2") => Protocol::Resp2,
            Some(b"3") => Protocol::Resp3,
            Some(other) if other.iter().all(u8::is_ascii_digit) && !other.is_empty() => {
                return Reply::error("NOPROTO unsupported protocol version");
            }
            Some(_) => return Reply::error("ERR Protocol version is not an integer or out of range"),
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
                _ => return Reply::error(format!("ERR Syntax error in HELLO option '{}'", shown(option))),
            };
        }
        if name.is_some_and(|name| !is_name(name)) {
            return bad_name();
        }
        if let Some((user, password)) = credentials {
            let reply = self.auth(user, password);
            if reply != Reply::OK {
                return reply;
            }
        }
        if !self.is_let_in() {
            return Reply::error(
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

    fn about(&self) -> Reply {
        Reply::Map(vec![
            ("server", Reply::text("spile")),
            ("version", Reply::text(REDIS_VERSION)),
            ("proto", Reply::Int(self.protocol.number())),
            ("id", Reply::Int(self.id)),
            ("mode", Reply::text("standalone")),
            ("role", Reply::text("master")),
            ("modules", Reply::List(Vec::new())),
        ])
    }

    fn client(&mut self, subcommand: &[u8], arguments: &[Vec<u8>]) -> Reply {
        match (subcommand.to_ascii_lowercase().as_slice(), arguments) {
            (b"id", []) => Reply::Int(self.id),
            (b"getname", []) if self.name.is_empty() => Reply::Nil,
            (b"getname", []) => Reply::text(&self.name),
            (b"setname", [name]) if is_name(name) => {
                self.name.clone_from(name);
                Reply::OK
            }
            (b"setname", [_]) => bad_name(),
            (b"setinfo", [attribute, value]) => set_info(attribute, value),
            (known @ (b"id" | b"getname" | b"setname" | b"setinfo"), _) => Reply::error(format!(
                "ERR wrong number of arguments for 'client|{}' command",
                String::from_utf8_lossy(known)
            )),
            _ => unknown_subcommand("CLIENT", subcommand),
        }
    }
}

/// The question that a frame asks, with its arguments.
fn question_of_frame(frame: &Frame) -> Option<(Question, &[Vec<u8>])> {
    match frame {
        Frame::Command(words) => question_of(words),
        Frame::TooLarge => None,
    }
}

fn question_of(words: &[Vec<u8>]) -> Option<(Question, &[Vec<u8>])> {
    let (name, arguments) = words.split_first()?;
    let known = QUESTIONS.iter().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()));
    known.map(|&(_, question)| (question, arguments))
}

/// How an answer is counted.
fn answered(decision: &Decision) -> Answered {
    match decision.reason() {
        Reason::FailClosed => Answered::Unavailable,
        _ if decision.allowed() => Answered::Allowed,
        _ => Answered::Limited,
    }
}

/// What the beginning of an HTTP request looks like from here.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// What libraries say of themselves is heard, and kept nowhere.
fn set_info(attribute: &[u8], value: &[u8]) -> Reply {
    let known = [b"lib-name".as_slice(), b"lib-ver"];
    if !known.iter().any(|known| attribute.eq_ignore_ascii_case(known)) {
        return Reply::error(format!("ERR Unrecognized option '{}'", shown(attribute)));
    }
    if is_name(value) { Reply::OK } else { bad_name() }
}

/// Redis takes no spaces and nothing that cannot be seen in a name.
fn is_name(name: &[u8]) -> bool {
    name.len() <= 256 && name.iter().all(u8::is_ascii_graphic)
}

fn bad_name() -> Reply {
    Reply::error("ERR Client names cannot contain spaces, newlines or special characters, nor over 256 bytes")
}

fn no_auth() -> Reply {
    Reply::error("NOAUTH Authentication required.")
}

fn wrong_number(entry: &Entry) -> Reply {
    Reply::error(format!("ERR wrong number of arguments for '{}' command", entry.name))
}

fn too_large() -> Reply {
    Reply::error(format!(
        "ERR a command takes at most {MAX_COMMAND_BYTES} bytes in {MAX_ARGUMENTS} arguments"
    ))
}

pub(super) fn unknown_subcommand(command: &str, subcommand: &[u8]) -> Reply {
    Reply::error(format!("ERR unknown subcommand '{}' of {command}", shown(subcommand)))
}

/// As much of what somebody typed as an error repeats.
fn shown(text: &[u8]) -> String {
    text[..text.len().min(64)].escape_ascii().to_string()
}

/// What clients look for: that this is no cluster, no replica and not loading.
fn info() -> String {
    format!(
        "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nspile_version:{}\r\n\r\n\
         # Persistence\r\nloading:0\r\n\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n\
         # Cluster\r\ncluster_enabled:0\r\n",
        env!("CARGO_PKG_VERSION")
    )
}
