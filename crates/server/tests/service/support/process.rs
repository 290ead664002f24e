//! The real binary in a process of its own.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A running `spile serve` on free ports. It is killed when dropped.
pub(crate) struct Process {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub(crate) banner: String,
}

impl Process {
    /// Starts `spile serve` and waits until it says that it listens.
    pub(crate) fn serve(flags: &[&str]) -> Self {
        Self::serve_with(flags, &[])
    }

    /// The same with these environment variables.
    pub(crate) fn serve_with(flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let ports = ["--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let mut child = spile()
            .arg("serve")
            .args(ports)
            .args(flags)
            // A test machine may be busy; what a slow answer leads to is tested where it is meant.
            .env("SPILE_STORE__TIMEOUT", "5s")
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary was built with the tests");
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut banner = String::new();
        while !banner.contains("/v1/check -H") {
            let read = stdout.read_line(&mut banner).expect("the banner is text");
            assert_ne!(read, 0, "the server ended after: {banner}");
        }
        Self { child, stdout, banner }
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

    /// The address that the banner names for a listener.
    pub(crate) fn address(&self, listener: &str) -> &str {
        let line = self.banner.lines().find(|line| line.trim_start().starts_with(listener));
        let url = line.and_then(|line| line.split_whitespace().find(|word| word.starts_with("http://")));
        url.and_then(|url| url.strip_prefix("http://")).expect("the banner names each listener's address")
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

fn spile() -> Command {
    Command::new(env!("CARGO_BIN_EXE_spile"))
}
