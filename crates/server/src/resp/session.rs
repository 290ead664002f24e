//! What one connection has agreed on, and how its commands are answered.

use std::fmt::Write;
use std::sync::Arc;

use futures_util::future::join_all;
use spile_core::Reason;

use super::catalogue::{self, Entry};
use super::framer::{Frame, MAX_ARGUMENTS, MAX_BYTES};
use super::reply::{Protocol, Reply};
use super::throttle::Throttle;
use crate::decider::Decider;
use crate::metrics::{Answered, RpcMetrics};
use crate::policies::Policies;

/// The Redis whose manners these are, for clients that go by a version.
const REDIS_VERSION: &str = "7.0.0";
/// The only user there is.
const USER: &[u8] = b"default";
/// Throttles that are asked side by side.
const MAX_RUN: usize = 256;
const CL_THROTTLE: &str = "cl.throttle";

/// Whether there is more to come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Then {
    GoOn,
    Close,
}

/// One connection.
pub(super) struct Session {
    decider: Arc<Decider>,
    metrics: Arc<RpcMetrics>,
    id: i64,
    protocol: Protocol,
    name: Vec<u8>,
    /// Whether the password was given, where one is asked for.
    known: bool,
}

impl Session {
    pub(super) const fn new(decider: Arc<Decider>, metrics: Arc<RpcMetrics>, id: i64) -> Self {
        Self { decider, metrics, id, protocol: Protocol::Resp2, name: Vec::new(), known: false }
    }

    /// Answers the first of these, or a run of throttles at their beginning, and says how many that were.
    pub(super) async fn answer(&mut self, frames: &[Frame], out: &mut Vec<u8>) -> (usize, Then) {
        let run = if self.is_let_in() {
            frames.iter().take(MAX_RUN).map_while(throttle_arguments).count()
        } else {
            0
        };
        if run > 0 {
            self.throttle(&frames[..run], out).await;
            return (run, Then::GoOn);
        }
        let Some(frame) = frames.first() else { return (0, Then::GoOn) };
        let (reply, then) = match frame {
            Frame::Command(words) => self.reply(words),
            Frame::TooLarge => (too_large(), Then::GoOn),
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
    async fn throttle(&self, frames: &[Frame], out: &mut Vec<u8>) {
        let policies = self.decider.policies();
        let asked = frames.iter().filter_map(throttle_arguments);
        let mut answers = asked.map(|arguments| self.decide(arguments, &policies));
        let replies = match (frames.len(), answers.next()) {
            (1, Some(only)) => vec![only.await],
            (_, first) => join_all(first.into_iter().chain(answers)).await,
        };
        for (reply, answered) in replies {
            self.metrics.count(answered);
            reply.write(self.protocol, out);
        }
    }

    async fn decide(&self, arguments: &[Vec<u8>], policies: &Policies) -> (Reply, Answered) {
        let throttle = match Throttle::parse(arguments) {
            Ok(throttle) => throttle,
            Err(wrong) => return (wrong, Answered::Refused),
        };
        let question = match throttle.question(policies) {
            Ok(question) => question,
            Err(wrong) => return (wrong, Answered::Refused),
        };
        let decision = self.metrics.traced("resp throttle", self.decider.check(question)).await;
        let answered = match decision.reason() {
            Reason::FailClosed => Answered::Unavailable,
            _ if decision.allowed() => Answered::Allowed,
            _ => Answered::Limited,
        };
        (throttle.reply(&decision), answered)
    }

    fn is_let_in(&self) -> bool {
        self.known || self.decider.policies().resp_password.is_none()
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
                *self = Self::new(Arc::clone(&self.decider), Arc::clone(&self.metrics), self.id);
                Reply::Simple("RESET")
            }
            ("select", [database]) if database == b"0" => Reply::OK,
            ("select", _) => Reply::error("ERR DB index is out of range"),
            ("client", [subcommand, arguments @ ..]) => self.client(subcommand, arguments),
            ("command", arguments) => catalogue::answer(arguments),
            ("info", _) => Reply::text(info()),
            _ => wrong_number(entry),
        };
        (reply, Then::GoOn)
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
        match &self.decider.policies().resp_password {
            None => Reply::error(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure \
                 your configuration is correct?",
            ),
            Some(secret) if secret.is(password) && user == USER => {
                self.known = true;
                Reply::OK
            }
            Some(_) => Reply::error("WRONGPASS invalid username-password pair or user is disabled."),
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

/// What follows the name of a throttle, where the frame is one.
fn throttle_arguments(frame: &Frame) -> Option<&[Vec<u8>]> {
    match frame {
        Frame::Command(words) => {
            let (name, arguments) = words.split_first()?;
            name.eq_ignore_ascii_case(CL_THROTTLE.as_bytes()).then_some(arguments)
        }
        Frame::TooLarge => None,
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
    Reply::error(format!("ERR a command takes at most {MAX_BYTES} bytes in {MAX_ARGUMENTS} arguments"))
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
