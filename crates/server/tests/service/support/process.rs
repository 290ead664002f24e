//! The real binary in a process of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use spile_testkit::wait;

/// A running `spile serve` on free ports. It is killed when dropped.
pub(crate) struct Process {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub(crate) banner: String,
    log: Arc<Mutex<String>>,
}

impl Process {
    /// What opens the admin API of those who are started with it.
    pub(crate) const TOKEN: &str = "a token that nobody guesses";

    /// Has Redis waited for longer than the 50 milliseconds that are shipped: for tests that count what Redis decides, on a
    /// machine that may be busy.
    pub(crate) const PATIENT: (&str, &str) = ("SPILE_STORE__TIMEOUT", "5s");

    /// Starts `spile serve` and waits until it says that it listens.
    pub(crate) fn serve(flags: &[&str]) -> Self {
        Self::serve_with(flags, &[])
    }

    /// The same with these environment variables.
    pub(crate) fn serve_with(flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let ports = ["--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        Self::start(&[&ports, flags].concat(), variables)
    }

    /// The same with these environment variables and no flags, not even for ports.
    pub(crate) fn serve_bare(variables: &[(&str, &str)]) -> Self {
        Self::start(&[], variables)
    }

    /// The same for a process that may open this many files, and may raise that to `hard`.
    pub(crate) fn serve_with_descriptors(soft: u64, hard: u64, flags: &[&str]) -> Self {
        let ports = ["--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let script = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" serve \"$@\"");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_spile")]).args(ports).args(flags);
        Self::spawn(shell)
    }

    fn start(flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = spile();
        command.arg("serve").args(flags).envs(variables.iter().copied());
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary was built with the tests");
        let log = collect(child.stderr.take().expect("stderr is piped"));
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut banner = String::new();
        // The banner is one line if the server logs in JSON.
        while !banner.contains("/v1/check -H") && !banner.ends_with("}\n") {
            let read = stdout.read_line(&mut banner).expect("the banner is text");
            assert_ne!(read, 0, "the server ended after: {banner}");
        }
        Self { child, stdout, banner, log }
    }

    /// Runs `spile` to its end.
    pub(crate) fn run(arguments: &[&str]) -> Output {
        Self::run_with(arguments, &[])
    }

    /// The same with these environment variables.
    pub(crate) fn run_with(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        let output = spile().args(arguments).envs(variables.iter().copied()).output();
        output.expect("the binary was built with the tests")
    }

    /// The same with its output going elsewhere than to the test. It is not waited for.
    pub(crate) fn spawn_to(arguments: &[&str], stdout: impl Into<Stdio>, stderr: impl Into<Stdio>) -> Child {
        Self::spawn_with(arguments, &[], stdout, stderr)
    }

    /// The same with these environment variables.
    pub(crate) fn spawn_with(
        arguments: &[&str],
        variables: &[(&str, &str)],
        stdout: impl Into<Stdio>,
        stderr: impl Into<Stdio>,
    ) -> Child {
        let mut command = spile();
        command.args(arguments).envs(variables.iter().copied());
        let child = command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn();
        child.expect("the binary was built with the tests")
    }

    /// The address that the banner names for a listener.
    pub(crate) fn address(&self, listener: &str) -> &str {
        if let Some((_, rest)) = self.banner.split_once(&format!("\"{listener}\":\"")) {
            let (_, address) = rest.split_once("://").expect("the line names each listener's URL");
            return address.split('"').next().expect("a text ends");
        }
        let line = self.banner.lines().find(|line| line.trim_start().starts_with(listener));
        let url = line.and_then(|line| line.split_whitespace().find_map(|word| word.split_once("://")));
        url.map(|(_, address)| address).expect("the banner names each listener's address")
    }

    /// Its resident memory.
    pub(crate) fn memory_mb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
    }

    /// The most of it until something has happened. `None` if that does not happen.
    pub(crate) async fn most_memory_mb_until(&self, happened: impl Future<Output = ()>) -> Option<u64> {
        let mut most = 0;
        let watched = async {
            loop {
                most = most.max(self.memory_mb());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            () = happened => {}
            () = watched => {}
            () = tokio::time::sleep(wait::PATIENCE) => return None,
        }
        Some(most)
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().clone()
    }

    /// Waits until it has logged these words.
    #[track_caller]
    pub(crate) fn until_logged(&self, words: &str) {
        wait::until_true(&format!("{words:?} in the log"), || self.log().contains(words));
    }

    /// Asks a listener, and hands back the answer whole: head and body.
    #[track_caller]
    pub(crate) fn ask(&self, listener: &str, method: &str, path: &str, body: &str) -> String {
        let bearer = format!("Bearer {}", Self::TOKEN);
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        self.ask_with(listener, method, path, &headers, body)
    }

    /// The same with these header fields and no others.
    #[track_caller]
    pub(crate) fn ask_with(
        &self,
        listener: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> String {
        let fields: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let (fields, length) = (fields.concat(), body.len());
        let mut caller = self.connect(listener);
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{fields}\
             content-length: {length}\r\n\r\n{body}"
        );
        // One that refuses does not wait for all of it.
        let _written = caller.write_all(request.as_bytes());
        let mut answer = String::new();
        caller.read_to_string(&mut answer).expect("it answers");
        answer
    }

    /// A connection to a listener, which is not waited on for ever.
    #[track_caller]
    pub(crate) fn connect(&self, listener: &str) -> TcpStream {
        let caller = TcpStream::connect(self.address(listener)).expect("it listens");
        caller.set_read_timeout(Some(wait::PATIENCE)).expect("it is a socket");
        caller
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The number of its threads that have this name.
    pub(crate) fn threads(&self, name: &str) -> usize {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs");
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|comm| comm.trim() == name).count()
    }

    /// What a counter or gauge shows; nothing where it is not there.
    pub(crate) fn metric(&self, series: &str) -> Option<f64> {
        let metrics = self.ask("admin", "GET", "/metrics", "");
        let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.and_then(|value| value.trim().parse().ok())
    }

    /// Lets it open so many files and sockets from now on, and says how many it was before.
    pub(crate) fn limit_descriptors(&self, most: Option<u64>) -> Option<u64> {
        let pid = Some(Pid::from_child(&self.child));
        let maximum = getrlimit(Resource::Nofile).maximum;
        let limit = Rlimit { current: most, maximum };
        prlimit(pid, Resource::Nofile, limit).expect("the process is ours").current
    }

    pub(crate) fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the process is ours");
    }

    /// Sends the signal and waits for the end; the rest of what it printed comes along.
    pub(crate) fn end_by(mut self, signal: Signal) -> (ExitStatus, String) {
        self.send(signal);
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("what it prints is text");
        (self.child.wait().expect("the process is ours"), rest)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail where the process has ended already, which is what is wanted.
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Gathers what comes, and shows it to whoever reads the test's own output.
fn collect(from: ChildStderr) -> Arc<Mutex<String>> {
    let log = Arc::new(Mutex::new(String::new()));
    let gathered = Arc::clone(&log);
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            eprintln!("{line}");
            let mut gathered = gathered.lock();
            gathered.push_str(&line);
            gathered.push('\n');
        }
    });
    log
}

fn spile() -> Command {
    Command::new(env!("CARGO_BIN_EXE_spile"))
}
