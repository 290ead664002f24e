//! grpcio, gRPC's own C library: it knows nothing of the messages but what reflection tells it.

use std::process::{Command, Stdio};

use super::RULES;
use crate::support::Process;

const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/grpcio-reflection/bin/python");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/service/grpc/client.py");

#[test]
fn grpcio_learns_the_messages_by_reflection_and_asks() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("spile.toml");
    std::fs::write(&path, RULES).expect("the folder is ours");
    let spile = Process::serve(&["--config", path.to_str().expect("the folder's name is text")]);
    let output = Command::new(PYTHON)
        .args([SCRIPT, spile.address("grpc")])
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|why| panic!("cannot run {PYTHON}: {why}; scripts/install-test-deps installs it"));
    let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && told == "all is well\n", "{told}\n{errors}");
}
