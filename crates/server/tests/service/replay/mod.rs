//! `spile replay`: an access log, run through a configuration.

mod agreement;
mod reports;

use std::fs;
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::Process;

/// A folder with a log and a configuration.
struct LogFolder {
    folder: TempDir,
}

impl LogFolder {
    fn new(log: impl AsRef<[u8]>, config: &str) -> Self {
        let new = Self { folder: tempfile::tempdir().expect("a folder") };
        new.write("access.log", log);
        new.write("spile.toml", config);
        new
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("its name is text").to_owned()
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.path(name), text).expect("the folder is ours");
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("it was written")
    }

    /// Replays the log with these flags.
    fn run(&self, flags: &[&str]) -> Output {
        let (log, config) = (self.path("access.log"), self.path("spile.toml"));
        Process::run(&[&["replay", &log, "--config", &config], flags].concat())
    }

    /// What it prints if it works.
    #[track_caller]
    fn prints(&self, flags: &[&str]) -> String {
        let output = self.run(flags);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && stderr.is_empty(), "{stderr}");
        String::from_utf8(output.stdout).expect("it prints text")
    }

    /// The report of the only configuration, as JSON.
    #[track_caller]
    fn report(&self, flags: &[&str]) -> Value {
        let text = self.prints(&[&["--json"], flags].concat());
        let mut report: Value = serde_json::from_str(&text).expect("it prints JSON");
        report["configs"][0].take()
    }

    /// The complaint if it does not work.
    #[track_caller]
    fn complains(&self, flags: &[&str]) -> String {
        let output = self.run(flags);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).expect("it complains in text")
    }
}
