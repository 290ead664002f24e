//! A standalone server.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::process::{Process, log_tail};
use super::resp::{Connection, Reply, ReplyError};
use super::{Flavour, config, ports};
use crate::wait;

/// How often another port is tried where a server of another test took the first.
const STARTS: usize = 5;

/// How a server is to be.
#[derive(Clone, Debug, Default)]
#[must_use = "call start()"]
pub struct RedisServerBuilder {
    flavour: Flavour,
    lines: Vec<String>,
    password: Option<String>,
    port: Option<u16>,
}

impl RedisServerBuilder {
    /// Which server program runs.
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
        let mut lines = self.lines.clone();
        lines.push(format!("port {port}"));
        let config = config::write(folder.path(), &lines);
        let binary = self.flavour.binary();
        let process = launched(&binary, &config, folder.path());
        let password = self.password.clone();
        let mut server = RedisServer { process, binary, config, folder, port, password };
        server.wait_until_ready().map(|()| server)
    }
}

/// A running server. Dropping it kills the process and deletes its folder.
#[derive(Debug)]
pub struct RedisServer {
    process: Process,
    binary: PathBuf,
    config: PathBuf,
    folder: TempDir,
    port: u16,
    password: Option<String>,
}

impl RedisServer {
    /// A plain Redis 7 server.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A server that differs.
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

    /// `redis://…`, with the password where there is one.
    pub fn url(&self) -> String {
        match &self.password {
            Some(password) => format!("redis://:{password}@{}", self.address()),
            None => format!("redis://{}", self.address()),
        }
    }

    /// The Unix socket that it listens on too.
    pub fn socket(&self) -> PathBuf {
        config::socket(self.folder.path())
    }

    /// `redis+unix://…`, for the same server by its socket.
    pub fn unix_url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// The folder that holds its data, log and configuration.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Stops it where it stands (SIGSTOP): connections stay open, nothing answers.
    pub fn freeze(&self) {
        self.process.freeze();
    }

    /// Lets it go on (SIGCONT).
    pub fn thaw(&self) {
        self.process.thaw();
    }

    /// Ends it at once (SIGKILL). What it held is lost, for nothing is saved unless asked.
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

    /// Starts it again and does not wait, for tests that want to meet it while it loads.
    pub fn launch_again(&mut self) {
        self.process.kill();
        self.process = launched(&self.binary, &self.config, self.folder.path());
    }

    /// What the server answers to a command.
    ///
    /// # Panics
    /// Where it refuses or does not answer.
    pub fn command(&self, words: &[&str]) -> Reply {
        self.try_command(words).unwrap_or_else(|why| panic!("{} failed: {why}", words[0]))
    }

    /// What the server answers to a command, or why it does not.
    pub fn try_command(&self, words: &[&str]) -> Result<Reply, ReplyError> {
        let mut connection = Connection::open(&self.socket())?;
        if let Some(password) = &self.password {
            connection.command(&["AUTH", password])?;
        }
        connection.command(words)
    }

    /// One field of `INFO`, as text; nothing where the section lacks it.
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
        matches!(self.try_command(&["PING"]), Ok(Reply::Text(pong)) if pong == "PONG")
    }

    /// Returns when it answers, or with the end of its log where it has ended instead.
    fn wait_until_ready(&mut self) -> Result<(), String> {
        let mut ended = false;
        wait::until_true("the server to answer", || {
            ended = !self.process.is_running();
            ended || self.answers()
        });
        if ended { Err(log_tail(self.folder.path())) } else { Ok(()) }
    }
}

fn launched(binary: &Path, config: &Path, folder: &Path) -> Process {
    // A socket file left by a killed server would be found and answer nothing.
    let _ = std::fs::remove_file(config::socket(folder));
    Process::start(binary, &[&config.to_string_lossy()], folder)
}
