//! Tells the binary what it was built from: the commit, the profile and the target.
//!
//! The commit comes from `SPILE_COMMIT`, from the package if it is one of crates.io, or from git. Development builds do not
//! ask git, because each commit would compile the crate again. Without any of them it is `unknown`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// As many digits of a commit as are shown.
const DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-env-changed=SPILE_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let commit = given().or_else(|| packaged(&root)).or_else(|| checked_out(&root));
    println!("cargo::rustc-env=SPILE_BUILD_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    println!("cargo::rustc-env=SPILE_BUILD_PROFILE={}", profile());
    println!("cargo::rustc-env=SPILE_BUILD_TARGET={}", variable("TARGET"));
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

/// What the variable says. Anything but digits and letters is refused, because it becomes a label of a metric.
fn given() -> Option<String> {
    commit(&variable("SPILE_COMMIT"))
}

/// What `cargo package` wrote down.
fn packaged(root: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join(".cargo_vcs_info.json")).ok()?;
    let (_, rest) = text.split_once("\"sha1\"")?;
    commit(rest.split('"').nth(1)?)
}

fn checked_out(root: &Path) -> Option<String> {
    if variable("PROFILE") != "release" {
        return None;
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
        Some(text.trim().to_owned())
    };
    // The log of HEAD grows with every commit and checkout.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]).map(|path| root.join(path));
    if let Some(log) = log.filter(|log| log.exists()) {
        println!("cargo::rerun-if-changed={}", log.display());
    }
    commit(&git(&["rev-parse", "HEAD"])?)
}

fn commit(text: &str) -> Option<String> {
    let is_commit = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_commit.then(|| text.chars().take(DIGITS).collect())
}

/// The name of the profile: the folder of the target directory that this build is in.
fn profile() -> String {
    let out = PathBuf::from(variable("OUT_DIR"));
    let folder = out.ancestors().nth(3).and_then(Path::file_name);
    folder.map_or_else(|| variable("PROFILE"), |name| name.to_string_lossy().into_owned())
}
