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

/// What reflection tells is compiled from the files that people read.
#[test]
fn the_descriptor_set_is_what_the_proto_files_say() {
    const PROTOC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/grpcio-tools/bin/python");
    const PROTO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/proto");
    let folder = tempfile::tempdir().expect("a folder");
    let compiled = folder.path().join("ratelimit.pb");
    let status = Command::new(PROTOC)
        .current_dir(PROTO)
        .args(["-m", "grpc_tools.protoc", "-I.", "--include_imports", "--descriptor_set_out"])
        .arg(&compiled)
        .arg("envoy/service/ratelimit/v3/rls.proto")
        .status()
        .unwrap_or_else(|why| panic!("cannot run {PROTOC}: {why}; scripts/install-test-deps installs it"));
    assert!(status.success());
    let committed = std::fs::read(format!("{PROTO}/ratelimit.pb")).expect("the committed set");
    assert!(
        std::fs::read(compiled).expect("protoc wrote it") == committed,
        "{PROTO}/README.md says how to compile it"
    );
}
