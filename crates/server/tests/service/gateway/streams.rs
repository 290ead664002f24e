//! grpcio, gRPC's own C library, on both sides of the gateway.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use super::serve;

const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/grpcio-reflection/bin/python");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/service/gateway/streams.py");

#[test]
fn long_streams_of_small_messages_pass_in_every_direction_and_leave_strangers_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    stream_through(folder.path(), 25_000, &[], |port| format!("h2c://127.0.0.1:{port}"));
}

#[test]
fn streams_pass_to_upstreams_over_tls_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let files = [("ca.pem", signed.cert.pem()), ("key.pem", signed.signing_key.serialize_pem())];
    let [certificate, key] = files.map(|(name, pem)| {
        let path = folder.path().join(name);
        std::fs::write(&path, pem).expect("the folder is ours");
        path.to_str().expect("the folder's name is text").to_owned()
    });
    stream_through(folder.path(), 5_000, &[&certificate, &key], |port| format!("https://localhost:{port}"));
}

/// Streams so many messages each way, from the script through the gateway to the script.
fn stream_through(folder: &Path, messages: u32, tls: &[&str], upstream: impl Fn(&str) -> String) {
    let mut script = Command::new(PYTHON)
        .args([SCRIPT, &messages.to_string()])
        .args(tls)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|why| panic!("cannot run {PYTHON}: {why}; scripts/install-test-deps installs it"));
    let mut told = BufReader::new(script.stdout.take().expect("stdout is piped"));
    let mut port = String::new();
    told.read_line(&mut port).expect("the script tells its port");
    let ca = if tls.is_empty() { "" } else { "[gateway]\nupstream_ca_file = \"ca.pem\"\n" };
    let config = format!(
        "unmatched = \"pass\"\n{ca}[[routes]]\npath = \"/\"\nupstream = \"{}\"\n",
        upstream(port.trim())
    );
    let spile = serve(folder, &config);
    let mut stdin = script.stdin.take().expect("stdin is piped");
    writeln!(stdin, "{}", spile.address("gateway")).expect("the script reads the address");
    let mut rest = String::new();
    told.read_to_string(&mut rest).expect("the script tells in text");
    let output = script.wait_with_output().expect("the script ends");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && rest.contains("strangers"), "{rest}\n{errors}\n{}", spile.log());
}
