//! One running server program, and the signals it is sent.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::wait;

/// A server process that is killed when dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
}

impl Process {
    /// Starts `binary` on a configuration file, in `folder`, with its output in `server.log` there.
    pub(super) fn start(binary: &Path, arguments: &[&str], folder: &Path) -> Self {
        let log = File::options().create(true).append(true).open(log_path(folder)).expect("a log file");
        let child = Command::new(binary)
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle on the log"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|why| panic!("{} does not start: {why}", binary.display()));
        Self { child }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Freezes the program, as a long garbage collection or a starved machine would.
    ///
    /// Returns once the kernel has stopped it, so that no command slips through afterwards.
    pub(super) fn freeze(&self) {
        self.signal(Signal::STOP);
        wait::until_true("the server to freeze", || self.is_frozen());
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.state() == Some('T')
    }

    pub(super) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Ends it at once, with no chance to save or say goodbye.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap_or_else(|why| panic!("server {pid:?} cannot be signalled: {why}"));
    }

    /// The state letter from `/proc`: the field after the program's name, which is in parentheses.
    fn state(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The end of what the server said, for the message of a test that fails.
pub(super) fn log_tail(folder: &Path) -> String {
    let log = std::fs::read_to_string(log_path(folder)).unwrap_or_default();
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

fn log_path(folder: &Path) -> PathBuf {
    folder.join("server.log")
}
