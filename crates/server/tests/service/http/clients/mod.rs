//! Clients that are generated from what `spile openapi` prints, compiled, and used on a real server.

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::openapi::printed;
use crate::support::Process;

/// The name of the document in the folder that [`with_document`] makes.
const DOCUMENT: &str = "openapi.json";
const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/openapi-python-client/bin/python");
const NODE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/openapi-typescript/node");
const NODE_MODULES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/openapi-typescript/node_modules");

#[test]
fn the_description_is_valid_openapi() {
    let folder = with_document();
    run(Command::new(PYTHON).args(["-m", "openapi_spec_validator", DOCUMENT]).current_dir(&folder));
}

#[test]
fn a_generated_python_client_asks_and_administers() {
    let folder = with_document();
    // TOML is text to the generator, and there is no formatter for it to run.
    write(&folder, "config.yml", "content_type_overrides: {application/toml: text/plain}\npost_hooks: []\n");
    run(Command::new(PYTHON)
        .args(["-m", "openapi_python_client", "generate", "--path", DOCUMENT, "--fail-on-warning"])
        .args(["--meta", "none", "--output-path", "spile_client", "--config", "config.yml"])
        .current_dir(&folder));
    run(Command::new(PYTHON).args(["-m", "compileall", "-q", "spile_client"]).current_dir(&folder));
    write(&folder, "client.py", include_str!("client.py"));
    use_it(Command::new(PYTHON).arg("client.py").current_dir(&folder));
}

#[test]
fn a_generated_typescript_client_asks_and_administers() {
    let folder = with_document();
    std::os::unix::fs::symlink(NODE_MODULES, folder.path().join("node_modules")).expect("the folder is ours");
    let tool = |path: &str| {
        let mut command = Command::new(NODE);
        command.arg(Path::new(NODE_MODULES).join(path)).current_dir(&folder);
        command
    };
    run(tool("openapi-typescript/bin/cli.js").args([DOCUMENT, "--output", "spile.ts"]));
    write(&folder, "package.json", r#"{"type": "module"}"#);
    write(&folder, "client.ts", include_str!("client.ts"));
    let shape = ["--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom"];
    run(tool("typescript/bin/tsc").args(["--strict", "client.ts"]).args(shape));
    use_it(Command::new(NODE).arg("client.js").current_dir(&folder));
}

/// A folder with the document in it.
fn with_document() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    write(&folder, DOCUMENT, &printed());
    folder
}

/// Runs a client that takes the addresses of both listeners and the token.
#[track_caller]
fn use_it(client: &mut Command) {
    let spile = Process::serve_with(&[], &[("SPILE_ADMIN_TOKEN", Process::TOKEN)]);
    let told = run(client.args([spile.address("http"), spile.address("admin"), Process::TOKEN]));
    assert_eq!(told, "all is well\n");
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|why| panic!("cannot run {command:?}: {why}; scripts/install-test-deps installs it"));
    let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {told}\n{errors}");
    told.into_owned()
}

fn write(folder: &TempDir, name: &str, text: &str) {
    std::fs::write(folder.path().join(name), text).expect("the folder is ours");
}
