//! A standalone server.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::client::{RedisClient, RedisReply, ReplyError};
use super::process::{Process, log_tail};
use super::{Certificates, Flavour, config, ports};
use crate::wait;

/// How often another port is tried if another test took the first one.
const STARTS: usize = 5;

/// Settings of a server.
#[derive(Clone, Debug, Default)]
#[must_use = "call start()"]
pub struct RedisServerBuilder {
    flavour: Flavour,
    lines: Vec<String>,
    password: Option<String>,
    port: Option<u16>,
    tls: Option<TlsMode>,
    sentinel: bool,
}

/// Whether a server that speaks TLS asks its clients for a certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum TlsMode {
    AnyClient,
    KnownClients,
}

impl RedisServerBuilder {
    /// The server program.
    pub const fn flavour(mut self, flavour: Flavour) -> Self {
        self.flavour = flavour;
        self
    }

    /// One more line of `redis.conf`: `maxmemory 3mb`, `user app on >secret ~spile:* +@all`.
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// The password of the default user.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.line(format!("requirepass {password}"))
    }

    /// `DEBUG` commands, which Redis 7 refuses unless asked and 6.2 always takes.
    pub fn debug_commands(self) -> Self {
        if self.flavour == Flavour::Redis62 { self } else { self.line("enable-debug-command yes") }
    }

    /// Only TLS on the port, with certificates made for this server.
    pub const fn tls(mut self) -> Self {
        self.tls = Some(TlsMode::AnyClient);
        self
    }

    /// TLS, only for clients with a certificate.
    pub const fn tls_for_known_clients(mut self) -> Self {
        self.tls = Some(TlsMode::KnownClients);
        self
    }

    /// A sentinel instead of a server of data.
    pub(super) const fn sentinel(mut self) -> Self {
        self.sentinel = true;
        self
    }

    /// A port that is known to be free, for a server that must come up where a client already looks for it.
    pub const fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Starts it, and returns when it answers.
    ///
    /// # Panics
    /// Where the binary is missing or the server does not come up; the message holds the end of its log.
    pub fn start(self) -> RedisServer {
        for _ in 1..STARTS {
            if let Ok(server) = self.attempt() {
                return server;
            }
        }
        self.attempt().unwrap_or_else(|log| panic!("the server does not start:\n{log}"))
    }

    fn attempt(&self) -> Result<RedisServer, String> {
        let folder = tempfile::Builder::new().prefix("spile-").tempdir().expect("a temporary folder");
        let port = self.port.unwrap_or_else(ports::free);
        let certificates = self.tls.map(|_| Certificates::make(folder.path()));
        let mut lines = self.lines.clone();
        lines.extend(self.listening(port, certificates.as_ref()));
        let config = config::write(folder.path(), &lines);
        let launch = Launch { binary: self.flavour.binary(), config, sentinel: self.sentinel };
        let process = launch.run(folder.path());
        let password = self.password.clone();
        let mut server = RedisServer { process, launch, folder, port, password, certificates };
        server.wait_until_ready().map(|()| server)
    }

    fn listening(&self, port: u16, certificates: Option<&Certificates>) -> Vec<String> {
        match certificates {
            Some(certificates) => certificates.server_lines(port, self.tls == Some(TlsMode::KnownClients)),
            None => vec![format!("port {port}")],
        }
    }
}

/// A running server. Dropping it kills the process and deletes its folder.
#[derive(Debug)]
pub struct RedisServer {
    process: Process,
    launch: Launch,
    folder: TempDir,
    port: u16,
    password: Option<String>,
    certificates: Option<Certificates>,
}

impl RedisServer {
    /// A plain Redis 7 server.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A builder for a server with other settings.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }

    /// The port that it listens on at 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// `redis://…`, or `rediss://…` with TLS, with the password if there is one.
    pub fn url(&self) -> String {
        let scheme = if self.certificates.is_some() { "rediss" } else { "redis" };
        let user = self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default();
        format!("{scheme}://{user}{}", self.address())
    }

    /// The Unix socket that it listens on too.
    pub fn socket(&self) -> PathBuf {
        config::socket(self.folder.path())
    }

    /// `unix://…`, for the same server by its socket.
    pub fn unix_url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// The certificates with which a client and this server trust each other.
    ///
    /// # Panics
    /// Where the server does not speak TLS.
    pub fn certificates(&self) -> &Certificates {
        self.certificates.as_ref().expect("a server started with tls()")
    }

    /// The folder that holds its data, log and configuration.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Freezes it (SIGSTOP): connections stay open, but it does not answer.
    pub fn freeze(&self) {
        self.process.freeze();
    }

    /// Lets it go on (SIGCONT).
    pub fn thaw(&self) {
        self.process.thaw();
    }

    /// Kills it (SIGKILL). Its data is lost, because nothing is saved by default.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on the same port and folder, and returns when it answers.
    ///
    /// # Panics
    /// Where it does not come up.
    pub fn restart(&mut self) {
        self.launch_again();
        self.wait_until_ready().unwrap_or_else(|log| panic!("the server does not start again:\n{log}"));
    }

    /// Starts it again without waiting, for tests that need it while it loads its data.
    pub fn launch_again(&mut self) {
        self.process.kill();
        self.process = self.launch.run(self.folder.path());
    }

    /// The server's reply to a command.
    ///
    /// # Panics
    /// Where it refuses or does not answer.
    pub fn command(&self, words: &[&str]) -> RedisReply {
        self.try_command(words).unwrap_or_else(|why| panic!("{} failed: {why}", words[0]))
    }

    /// The server's reply to a command, or the reason why it did not arrive.
    pub fn try_command(&self, words: &[&str]) -> Result<RedisReply, ReplyError> {
        self.connect()?.command(words)
    }

    /// A client, for several commands over one connection.
    pub fn connect(&self) -> Result<RedisClient, ReplyError> {
        let mut connection = RedisClient::open(&self.socket())?;
        if let Some(password) = &self.password {
            connection.command(&["AUTH", password])?;
        }
        Ok(connection)
    }

    /// One field of `INFO`. `None` if the section has no such field.
    pub fn info(&self, section: &str, field: &str) -> Option<String> {
        let reply = self.try_command(&["INFO", section]).ok()?;
        let value =
            |line: &str| line.strip_prefix(field)?.strip_prefix(':').map(|value| value.trim().to_owned());
        reply.text().lines().find_map(value)
    }

    /// The CPU time that it has used, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        let field =
            |name| self.info("cpu", name).and_then(|text| text.parse::<f64>().ok()).unwrap_or_default();
        field("used_cpu_sys") + field("used_cpu_user")
    }

    /// Whether it answers a ping now.
    pub fn answers(&self) -> bool {
        matches!(self.try_command(&["PING"]), Ok(RedisReply::Text(pong)) if pong == "PONG")
    }

    /// Whether it runs and is not frozen, so that a command would be answered or refused but not hang.
    pub fn is_awake(&self) -> bool {
        !self.process.is_frozen() && self.answers()
    }

    /// The reply to a command. `None` if the server is dead or frozen, or refuses it.
    pub(super) fn asked_if_awake(&self, words: &[&str]) -> Option<RedisReply> {
        if self.process.is_frozen() { None } else { self.try_command(words).ok() }
    }

    /// Returns when it answers, or the end of its log if it has exited.
    fn wait_until_ready(&mut self) -> Result<(), String> {
        let mut ended = false;
        wait::until_true("the server to answer", || {
            ended = !self.process.is_running();
            ended || self.answers()
        });
        if ended { Err(log_tail(self.folder.path())) } else { Ok(()) }
    }
}

/// How to start the same server again.
#[derive(Debug)]
struct Launch {
    binary: PathBuf,
    config: PathBuf,
    sentinel: bool,
}

impl Launch {
    fn run(&self, folder: &Path) -> Process {
        // A socket file left by a killed server would refuse connections.
        let _ = std::fs::remove_file(config::socket(folder));
        let config = self.config.to_string_lossy();
        let arguments: &[&str] = if self.sentinel { &[&config, "--sentinel"] } else { &[&config] };
        Process::start(&self.binary, arguments, folder)
    }
}
