//! Other people's programs, as Debian packages them.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// A program that runs beside the test. It is killed when dropped.
pub(crate) struct Peer(Child);

impl Peer {
    /// Starts the program; a missing one fails the test and says how to get it.
    pub(crate) fn start(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap_or_else(|why| missing(program, &why)))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Both fail where the program has ended already, which is what is wanted.
        let _killed = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Runs a program to its end with this on its standard input.
pub(crate) fn output_of(program: &str, arguments: &[&str], input: &str) -> Output {
    output_in(Path::new("."), program, arguments, input)
}

/// The same in this folder.
pub(crate) fn output_in(folder: &Path, program: &str, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(program);
    command
        .current_dir(folder)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|why| missing(program, &why));
    let mut stdin = child.stdin.take().expect("stdin is piped");
    stdin.write_all(input.as_bytes()).expect("the program reads its input");
    drop(stdin);
    child.wait_with_output().expect("the program ends")
}

fn missing(program: &str, why: &std::io::Error) -> ! {
    panic!("cannot run {program}: {why}; scripts/install-test-deps installs it")
}
