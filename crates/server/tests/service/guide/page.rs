//! A page as a reader follows it: every block of `sh` is pasted into one terminal, in an empty folder.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use spile_testkit::redis::Certificates;
use tempfile::TempDir;

use super::block::{Block, Mark, agrees};

/// How long all blocks of a page may take together, in seconds.
const PATIENCE: &str = "120";

/// What a page is followed with: a folder, and a loopback address on which every port is free.
pub(super) struct Page {
    folder: TempDir,
    address: Ipv4Addr,
    /// Other pages find the address taken.
    _held: UdpSocket,
}

impl Page {
    pub(super) fn prepare() -> Self {
        let mut addresses = (1..=u16::MAX).map(|host| Ipv4Addr::from(0x7f4e_0000 + u32::from(host)));
        let (address, held) = addresses
            .find_map(|address| UdpSocket::bind((address, 8080)).ok().map(|held| (address, held)))
            .expect("an address of 127.78.0.0/16 is free");
        let folder = tempfile::tempdir().expect("a folder");
        // `cargo run --release -- serve` runs what the tests have built.
        let cargo = folder.path().join(".bin/cargo");
        fs::create_dir(folder.path().join(".bin")).expect("the folder is ours");
        fs::write(&cargo, "#!/bin/sh\nshift 3\nexec spile \"$@\"\n").expect("the folder is ours");
        fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).expect("the file is ours");
        Self { folder, address, _held: held }
    }

    /// Runs the blocks of `sh`, and says what is wrong with which line.
    pub(super) fn run(&self, blocks: &[Block]) -> Vec<(usize, String)> {
        let pasted = |block: &&Block| block.language == "sh" && matches!(block.mark, Mark::None);
        let blocks_of_sh: Vec<&Block> = blocks.iter().filter(pasted).collect();
        if blocks_of_sh.is_empty() {
            return Vec::new();
        }
        let mut script = String::from("set -e\ntrap 'kill $(jobs -p) 2> /dev/null || true; wait' EXIT\n");
        for block in &blocks_of_sh {
            // The blank line ends a line that a block leaves open.
            let _infallible = write!(script, "printf '\\n%%%% {}\\n'\n{}", block.line, block.text);
            script += &until_started(&block.text);
        }
        let file = self.folder.path().join(".pasted");
        fs::write(&file, script.replace("127.0.0.1", &self.address.to_string())).expect("the folder is ours");
        let output = self.command("timeout").args(["--kill-after=5", PATIENCE, "bash"]).arg(&file).output();
        self.compare(blocks, &output.expect("bash and timeout are there"))
    }

    /// Checks a file of settings as it stands, or as a part of one.
    pub(super) fn config_check(&self, settings: &str) -> Result<(), String> {
        self.write_what_settings_name();
        let file = self.folder.path().join("checked.toml");
        fs::write(&file, settings).expect("the folder is ours");
        // A block is a part of a file: the gateway's listener and the token may be in another.
        let spile = Command::new(env!("CARGO_BIN_EXE_spile"))
            .args(["config", "check", "--gateway", "127.0.0.1:0"])
            .arg(&file)
            .env("SPILE_ADMIN_TOKEN", "a token that is long enough")
            .output();
        let checked = spile.expect("the binary was built with the tests");
        if checked.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&checked.stderr).into_owned())
        }
    }

    fn compare(&self, blocks: &[Block], output: &Output) -> Vec<(usize, String)> {
        let said = String::from_utf8_lossy(&output.stdout).replace(&self.address.to_string(), "127.0.0.1");
        let parts: Vec<(usize, &str)> = said
            .split("\n%% ")
            .skip(1)
            .filter_map(|part| part.split_once('\n'))
            .map(|(line, text)| (line.parse().expect("a line's number"), text.trim_end()))
            .collect();
        let mut failures = Vec::new();
        if !output.status.success() {
            let (line, text) = parts.last().copied().unwrap_or_default();
            let errors = String::from_utf8_lossy(&output.stderr);
            failures.push((line, format!("{}, after\n{text}\n{errors}", output.status)));
        }
        let mut before = None;
        for block in blocks {
            if matches!(block.mark, Mark::Output) {
                let printed = parts.iter().find(|(line, _)| Some(*line) == before).map(|(_, text)| *text);
                let lines: Vec<&str> = printed.unwrap_or_default().lines().collect();
                let expected: Vec<&str> = block.text.trim_end().lines().collect();
                if !agrees(&expected, &lines) {
                    failures.push((block.line, format!("it prints\n{}", lines.join("\n"))));
                }
            }
            before = Some(block.line);
        }
        failures
    }

    /// A program in the page's folder that finds `spile`, which listens on the page's address.
    fn command(&self, program: &str) -> Command {
        let binary = Path::new(env!("CARGO_BIN_EXE_spile"));
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!(
            "{}:{}:{path}",
            self.folder.path().join(".bin").display(),
            binary.parent().expect("a folder").display()
        );
        let (http, admin) = (format!("{}:8080", self.address), format!("{}:8081", self.address));
        let mut command = Command::new(program);
        command
            .current_dir(self.folder.path())
            .env("PATH", path)
            .env("SPILE_LISTEN__HTTP", &http)
            .env("SPILE_LISTEN__ADMIN", &admin)
            .env("SPILE_SERVER", format!("http://{http}"))
            .env("SPILE_ADMIN", format!("http://{admin}"));
        command
    }

    /// The files that settings of the guide name: secrets, certificates and keys.
    fn write_what_settings_name(&self) {
        let tls = self.folder.path().join("tls");
        if tls.exists() {
            return;
        }
        fs::create_dir(&tls).expect("the folder is ours");
        Certificates::make(&tls);
        for (made, named) in
            [("server.pem", "spile.pem"), ("server.key", "spile.key"), ("ca.pem", "clients-ca.pem")]
        {
            fs::rename(tls.join(made), tls.join(named)).expect("it was made");
        }
        for secret in ["hook.secret", "resp.password", "admin.token"] {
            let file = self.folder.path().join(secret);
            fs::write(file, "0123456789abcdef0123456789abcdef").expect("the folder is ours");
        }
        fs::write(self.folder.path().join("otlp-headers"), "x-team: games").expect("the folder is ours");
    }
}

/// Waits as a reader does who pastes the next block when the programs of this one are there: for every port that it names.
/// A block that starts a Spile, or the one after it, waits for it by itself.
fn until_started(block: &str) -> String {
    if !block.lines().any(|line| line.ends_with(" &")) {
        return String::new();
    }
    if block.contains(" serve") {
        return String::new();
    }
    let mut waits = String::new();
    for named in block.split("127.0.0.1:").skip(1) {
        let port: String = named.chars().take_while(char::is_ascii_digit).collect();
        let _infallible =
            writeln!(waits, "until (: < /dev/tcp/127.0.0.1/{port}) 2> /dev/null; do sleep 0.1; done");
    }
    waits
}
